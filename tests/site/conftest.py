"""Tests of the documentation site run where its generator is installed; CI requires them."""

from importlib.util import find_spec

from support.optional import ignored

collect_ignore_glob = ignored(
    "site", "zensical, of tox -e browser", is_installed=find_spec("zensical") is not None
)
