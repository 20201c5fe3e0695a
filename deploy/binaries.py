"""The demands of a compiled library on the system that loads it, ELF (Linux) or Mach-O (macOS).

A wheel is named after the oldest system on which it works. `problems_of` compares that name with
the library: its processor, the libraries that it loads, the version of each symbol of glibc, the
oldest macOS, and the signature without which macOS loads nothing on arm64.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from macholib import mach_o
from macholib.MachO import MachO

GLIBC = frozenset(("libc.so.6", "libm.so.6", "libpthread.so.0"))
MUSL = frozenset(("libc.so",))
"""The loader of musl takes every file of this name for itself."""

MACOS = frozenset(("/usr/lib/libSystem.B.dylib",))

_ELF_MAGIC, _MACH_MAGIC = b"\x7fELF", b"\xcf\xfa\xed\xfe"
_ELF_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
_MACH_MACHINES = {"x86_64": 0x01000007, "arm64": 0x0100000C}


def problems_of(library: bytes, tag: str) -> list[str]:
    """Return how a library differs from the platform tag of its wheel; empty if it does not."""
    is_macos = tag.startswith("macosx")
    if not library.startswith(_MACH_MAGIC if is_macos else _ELF_MAGIC):
        return [f"it is not a library of {'macOS' if is_macos else 'Linux'}"]
    find = _mach_problems if is_macos else _elf_problems
    return list(dict.fromkeys(find(library, tag)))


def _elf_problems(library: bytes, tag: str) -> Iterator[str]:
    match = re.fullmatch(r"(many|musl)linux_(\d+)_(\d+)_(\w+)", tag)
    if match is None:
        raise ValueError(f"not a tag of Linux: {tag}")
    is_glibc, version, machine = match[1] == "many", (int(match[2]), int(match[3])), match[4]
    elf = ELFFile(io.BytesIO(library))
    if elf["e_machine"] != _ELF_MACHINES[machine]:
        yield f"it is for {elf['e_machine']}"
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            for entry in section.iter_tags():
                if entry.entry.d_tag == "DT_NEEDED" and entry.needed not in (
                    GLIBC if is_glibc else MUSL
                ):
                    yield f"it loads {entry.needed}"
                if entry.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
                    yield "it looks for libraries in a folder of its own"
                if entry.entry.d_tag == "DT_TEXTREL":
                    yield "its code is changed while it is loaded"
        if isinstance(section, GNUVerNeedSection):
            for _, symbols in section.iter_versions():
                for symbol in symbols:
                    if not is_glibc or _is_newer(symbol.name, version):
                        yield f"it needs {symbol.name}"
    stack = [each for each in elf.iter_segments() if each["p_type"] == "PT_GNU_STACK"]
    if not stack or stack[0]["p_flags"] & 1:
        yield "its stack can be executed"


def _is_newer(symbol: str, version: tuple[int, int]) -> bool:
    """Return True unless a name such as GLIBC_2.17 is at most a version."""
    match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", symbol)
    return match is None or (int(match[1]), int(match[2])) > version


def _mach_problems(library: bytes, tag: str) -> Iterator[str]:
    match = re.fullmatch(r"macosx_(\d+)_(\d+)_(\w+)", tag)
    if match is None:
        raise ValueError(f"not a tag of macOS: {tag}")
    with tempfile.TemporaryDirectory() as folder:  # macholib reads files only
        path = Path(folder, "library")
        path.write_bytes(library)
        (header,) = MachO(str(path)).headers
    if header.header.cputype & 0xFFFFFFFF != _MACH_MACHINES[match[3]]:
        yield f"it is for processor {header.header.cputype:#x}"
    oldest = (int(match[1]) << 16) | (int(match[2]) << 8)
    numbers = {command[0].cmd for command in header.commands}
    if mach_o.LC_CODE_SIGNATURE not in numbers and match[3] == "arm64":
        yield "it has no signature"
    if mach_o.LC_BUILD_VERSION not in numbers:
        yield "it does not name the oldest macOS"
    for command, values, data in header.commands:
        if command.cmd == mach_o.LC_BUILD_VERSION and values.minos > oldest:
            yield f"it needs macOS {values.minos >> 16}.{values.minos >> 8 & 0xFF}"
        if command.cmd in (mach_o.LC_LOAD_DYLIB, mach_o.LC_LOAD_WEAK_DYLIB):
            name = data.partition(b"\0")[0].decode()
            if name not in MACOS:
                yield f"it loads {name}"
        if command.cmd == mach_o.LC_RPATH:
            yield "it looks for libraries in a folder of its own"
