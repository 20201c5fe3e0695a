"""The one door to the C engine: the compiled module, its statuses as exceptions, buffers for its calls.

Only `engine`, `counted`, `matches`, `relation`, `model`, `solved` and `written`, the faces of the engine, come in here.
"""

from __future__ import annotations

from array import array

from kbplanner._engine import ffi, lib
from kbplanner.errors import BudgetExceeded, Cancelled, EngineFault, InvalidInput

__all__ = ["check", "encode", "ffi", "lib", "opcodes", "room"]


def check(status: int, memory: int = 0) -> int:
    """Raise what a status means, or return it when it is not an error; `memory` is the byte budget in force."""
    if status >= 0:
        return status
    if status == lib.KB_NOMEM:
        raise BudgetExceeded("the knowledge base has no more memory", "memoryBytes", memory)
    if status == lib.KB_CANCELLED:
        raise Cancelled("the evaluation was cancelled")
    raise EngineFault(f"engine: {ffi.string(lib.kb_status_text(status)).decode()}", {"status": status})


def opcodes() -> dict[str, tuple[int, int]]:
    """Name of each opcode to its number and how many operands it has (-1: as many as its relation has columns)."""
    table: dict[str, tuple[int, int]] = {}
    name, operands = ffi.new("char **"), ffi.new("int32_t *")
    while lib.kb_opcode(len(table), name, operands) == lib.KB_OK:
        table[ffi.string(name[0]).decode()] = (len(table), operands[0])
    return table


def room(count: int) -> array[int]:
    """Space for `count` symbols or ids."""
    return array("I", bytes(4 * count))


def encode(text: str) -> bytes:
    """UTF-8; half of a surrogate pair is refused."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("text is not valid Unicode: it has half of a surrogate pair") from error
