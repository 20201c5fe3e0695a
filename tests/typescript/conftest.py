"""Tests of the TypeScript client run where its packages are installed; CI requires them."""

from pathlib import Path

from support.optional import ignored

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"

collect_ignore_glob = ignored(
    "typescript",
    "the packages of clients/typescript: npm ci",
    is_installed=(CLIENT / "node_modules").is_dir(),
)
