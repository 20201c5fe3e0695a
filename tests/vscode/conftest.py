"""Tests of the extension run where its packages are installed; CI requires them."""

from pathlib import Path

from support.optional import ignored

EXTENSION = Path(__file__).parents[2] / "clients" / "vscode"

collect_ignore_glob = ignored(
    "vscode",
    "the packages of clients/vscode: npm ci",
    is_installed=(EXTENSION / "node_modules").is_dir(),
)
