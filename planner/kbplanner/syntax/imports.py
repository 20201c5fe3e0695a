"""Places of the rule sets that `import NAME.` uses: shipped ones, and those of installed packages.

A package offers one as an entry point of the group `kb_rule_sets`, whose value names a file of a
package: `tax = "acme_rules:tax.kb"`. An import names a rule set, never a file.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable  # of importlib.resources.abc, which 3.10 does not have

GROUP = "kb_rule_sets"

SHIPPED = {"memory": "kbcore:memory.kb"}
"""Rule sets that are always there; no package replaces them."""


@cache
def installed() -> dict[str, str]:
    """Return the places of all rule sets that can be imported, by name."""
    return {each.name: each.value for each in entry_points(group=GROUP)} | SHIPPED


@cache
def text_of(name: str) -> str:
    """Return the text of an installed rule set. Raises OSError, ImportError or ValueError if it
    cannot be read.
    """
    return _file_of(name).read_text("utf-8")


def address_of(name: str) -> str:
    """Return the URI of the file of an installed rule set."""
    return f"file://{_file_of(name)}"


def _file_of(name: str) -> Traversable:
    package, _, file = installed()[name].partition(":")
    return files(package.strip()).joinpath(file.strip())
