"""Tests of agent frameworks run where these are installed: with `tox -e frameworks`."""

from importlib.util import find_spec

from support.optional import ignored

collect_ignore_glob = ignored(
    "frameworks",
    "CrewAI and AutoGen, of tox -e frameworks",
    is_installed=all(find_spec(name) is not None for name in ("autogen_ext", "crewai")),
)
