"""The examples of property tests: all, a few in `make test`, some in CI, which tries the same in
each run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SHARE = {"few": 20, "some": 4}.get(os.environ.get("KB_TEST_EXAMPLES", ""), 1)
"""One of this number of examples is tried."""

# No deadline: how long one example takes says nothing on a busy machine. The health checks measure
# time as well.
settings.register_profile(
    "kbcore",
    max_examples=max(10, 100 // SHARE),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize="KB_TEST_DERANDOMIZE" in os.environ,
)
settings.load_profile("kbcore")


def examples(count: int) -> settings:
    """Return settings for a test that tries `count` examples in a full run, and a share of them in
    a quicker one.
    """
    return settings(max_examples=max(5, count // SHARE))
