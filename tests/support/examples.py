"""The examples of property tests: all, or a few in `make test`; the same in each run of CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

QUICK = os.environ.get("KB_TEST_EXAMPLES") == "few"

# No deadline: how long one example takes says nothing on a busy machine. The health checks measure time as well.
settings.register_profile(
    "kbcore",
    max_examples=10 if QUICK else 100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize="KB_TEST_DERANDOMIZE" in os.environ,
)
settings.load_profile("kbcore")


def examples(count: int) -> settings:
    """Return settings for a test that tries `count` examples in a full run, and a twentieth of them in a quick one."""
    return settings(max_examples=max(5, count // 20) if QUICK else count)
