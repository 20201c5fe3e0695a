"""Folders of tests that need more than the usual packages: run where these are installed, required
in CI.
"""

from __future__ import annotations

import os

LEFT_OUT: dict[str, str] = {}
"""Needs of each folder that is left out of this run, by its name; the summary shows them."""


def ignored(folder: str, needs: str, *, is_installed: bool) -> list[str]:
    """Return the patterns of the files that a conftest ignores: all tests if something is missing.

    With KB_TEST_EXTRAS=required none are ignored, so that they fail.
    """
    if is_installed or os.environ.get("KB_TEST_EXTRAS") == "required":
        return []
    LEFT_OUT[folder] = needs
    return ["test_*.py"]
