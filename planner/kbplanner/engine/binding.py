"""The only access to the C engine: the compiled module, exceptions for statuses, buffers.

Imported only by `engine`, `relation`, `model`, `ground_solver` and `json_rows` of this package.
"""

from __future__ import annotations

from array import array
from typing import Any

from kbplanner._engine import ffi, lib
from kbplanner.engine.backend import RunLimits
from kbplanner.engine.ground import Ground
from kbplanner.errors import BudgetExceeded, Cancelled, EngineFault, InvalidInput

ENGINE_ABI = 8
"""Version of the C interface that this package calls: KB_ABI in csrc/kbengine.h."""

BUDGETS = {1: "derivedRows", 2: "memoryBytes", 3: "steps"}
"""Names of budgets, by their numbers in the engine."""

__all__ = ["check", "encode", "ffi", "lib", "new_array", "opcodes"]


def check_abi(abi: int) -> None:
    """Raise ImportError if the compiled engine has another interface than this package calls."""
    if abi != ENGINE_ABI:
        raise ImportError(
            f"the compiled engine has interface version {abi}, this kbplanner needs version "
            f"{ENGINE_ABI}; build the engine again, for example with: pip install -e ."
        )


check_abi(lib.KB_ABI)


def check(status: int, memory: int = 0) -> int:
    """Return a status that is not an error; raise the exception of one that is, with `memory` as
    the limit in bytes.
    """
    if status >= 0:
        return status
    if status == lib.KB_NOMEM:
        raise BudgetExceeded("the knowledge base is out of memory", "memoryBytes", memory)
    if status == lib.KB_CANCELLED:
        raise Cancelled("the evaluation was cancelled")
    raise EngineFault(
        f"engine: {ffi.string(lib.kb_status_text(status)).decode()}", {"status": status}
    )


def limits_struct(limits: RunLimits) -> Any:
    """Return limits as the engine takes them."""
    return ffi.new("kb_limits *", (limits.rows, limits.bytes, limits.steps))


class GroundStruct:
    """A ground program as the engine takes it, in `struct`; keeps the arrays it refers to alive."""

    def __init__(self, ground: Ground) -> None:
        arrays = ground.heads, ground.ends, ground.premises
        self._views = [ffi.from_buffer("uint32_t[]", values) for values in arrays]
        sizes = ground.nodes, len(ground), ground.free, len(ground.premises)
        self.struct = ffi.new("kb_ground *", (*sizes, *self._views))


def opcodes() -> dict[str, tuple[int, int]]:
    """Return the number of each opcode by name, and its operand count (-1: the arity of its
    relation).
    """
    table: dict[str, tuple[int, int]] = {}
    name, operands = ffi.new("char **"), ffi.new("int32_t *")
    while lib.kb_opcode(len(table), name, operands) == lib.KB_OK:
        table[ffi.string(name[0]).decode()] = (len(table), operands[0])
    return table


def new_array(count: int) -> array[int]:
    """Return an array for `count` symbols or ids."""
    return array("I", bytes(4 * count))


def encode(text: str) -> bytes:
    """Return UTF-8; refuse a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("text is not valid Unicode: it has half of a surrogate pair") from error
