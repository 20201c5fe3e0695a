"""Tests of the TypeScript client run where its packages are installed; CI requires them."""

import os
from pathlib import Path

INSTALLED = Path(__file__).parents[2] / "clients" / "typescript" / "node_modules"

if not INSTALLED.is_dir() and os.environ.get("KB_TEST_EXTRAS") != "required":
    collect_ignore_glob = ["test_*.py"]
