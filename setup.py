"""The build settings that pyproject.toml cannot express, and an error message for missing build
tools.

`python setup.py --check-tools` only checks the tools; it needs nothing but Python.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
has_compiler = any(shutil.which(name) for name in (compiler, "cc", "gcc", "clang"))
has_headers = Path(sysconfig.get_path("include"), "Python.h").exists()
tools = {"a C compiler": has_compiler, "the Python headers (Python.h)": has_headers}
missing = [name for name, is_installed in tools.items() if not is_installed]
if missing:
    sys.exit(
        f"kbcore needs {' and '.join(missing)} to build its engine. "
        "On Debian or Ubuntu run: apt-get install gcc libc6-dev python3-dev. "
        "Or install a wheel, which needs neither: docs/operations/install.md"
    )

if sys.argv[1:] != ["--check-tools"]:
    from setuptools import Extension, setup

    python_objects = [
        Extension(
            f"kbplanner._{name}",
            sources=[f"csrc/python/{name}.c"],
            extra_compile_args=["-std=c11", "-O3", "-Wall", "-Wextra"],
            define_macros=[("Py_LIMITED_API", "0x030A0000")],
            py_limited_api=True,
        )
        for name in ("answers", "proofs")
    ]
    setup(
        cffi_modules=["csrc/build_engine.py:ffibuilder"],
        ext_modules=python_objects,
        options={"bdist_wheel": {"py_limited_api": "cp310"}},
    )
