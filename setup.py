"""The build facts that pyproject.toml cannot say, and one clear sentence when no C compiler is there."""

import shutil
import sys
import sysconfig

from setuptools import setup

compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
if not any(shutil.which(name) for name in (compiler, "cc", "gcc", "clang")):
    sys.exit(
        "kbcore needs a C compiler to build its engine: on Debian or Ubuntu run "
        "'apt-get install gcc libc6-dev python3-dev', then install again."
    )

setup(
    cffi_modules=["csrc/build_engine.py:ffibuilder"],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
