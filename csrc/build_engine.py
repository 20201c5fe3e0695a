"""The cffi build of the engine, with the declarations of kbengine.h.

`setup.py` uses `ffibuilder`; `python setup.py build_ext --inplace` compiles into planner/kbplanner.
KB_WERROR=1 makes warnings errors.
"""

import os
import sys
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
FOLDERS = ("store", "verify", "run", "dense", "text", "search", "models", "output")
SOURCES = sorted(
    f"csrc/{folder}/{path.name}" for folder in FOLDERS for path in HERE.glob(f"{folder}/*.c")
)
HEADERS = sorted(f"csrc/{path.relative_to(HERE).as_posix()}" for path in HERE.rglob("*.h"))


def declarations() -> str:
    """Return the part of kbengine.h between the cdef marks."""
    header = (HERE / "kbengine.h").read_text(encoding="utf-8")
    return header.partition("/* cdef: begin */")[2].partition("/* cdef: end */")[0]


def make_ffibuilder() -> FFI:
    """Return the cffi builder; paths are relative to the project, so that builds are
    reproducible.
    """
    flags = ["-std=c11", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden"]
    # Products and sums are rounded one by one: with fused ones, which clang prefers where the
    # processor has them, the last digit of a number would depend on the platform.
    flags.append("-ffp-contract=off")
    if os.environ.get("KB_WERROR") == "1":
        # the code that cffi generates casts integers to enums and leaves parameters unused
        flags += ["-Werror", "-Wno-error=unused-parameter", "-Wno-error=sign-compare"]
    builder = FFI()
    builder.cdef(declarations())
    builder.set_source(
        "kbplanner._engine",
        '#include "kbengine.h"',
        sources=SOURCES,
        include_dirs=["csrc"],
        depends=HEADERS,
        extra_compile_args=flags,
        libraries=[] if sys.platform == "win32" else ["m", "pthread"],
        py_limited_api=True,
    )
    return builder


ffibuilder = make_ffibuilder()
