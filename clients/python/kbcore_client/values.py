"""The names of `kbtypes.values`: programs may import them from here too."""

from kbtypes.values import (
    Arg,
    Instant,
    Row,
    Value,
    Values,
    arguments,
    atom_of,
    check_constants,
    checked_values,
    columns,
    instant,
    present,
    python_value,
    read_atom,
    row_text,
    text_of,
    texts_of,
    variables_of,
    written_atom,
)
from kbtypes.values import (
    ReadAtom as Atom,
)

__all__ = [
    "Arg",
    "Atom",
    "Instant",
    "Row",
    "Value",
    "Values",
    "arguments",
    "atom_of",
    "check_constants",
    "checked_values",
    "columns",
    "instant",
    "present",
    "python_value",
    "read_atom",
    "row_text",
    "text_of",
    "texts_of",
    "variables_of",
    "written_atom",
]
