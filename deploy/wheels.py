"""Compile the wheels of kbcore for every platform on one machine, with the compiler of Zig.

    python deploy/wheels.py FOLDER [--target NAME ...]

FOLDER gets a wheel for each target, the platform of this machine among them. Zig is a C compiler
(clang) with the headers and the symbols of the C libraries of its targets, so a wheel does not
depend on the system that builds it: its oldest C library is part of the name of the target. The
flags are those below, not those that this Python was built with.

The headers of Python are those of the Python that runs this program, at least 3.10, with
`deploy/wheels/pyconfig.h` in place of its own, which says why that is right for each target.

Needs the packages `build`, `cffi`, `setuptools` and `ziglang`; the checks also need `abi3audit` and
`auditwheel`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import binaries

ROOT = Path(__file__).resolve().parents[1]


class WheelError(Exception):
    """A wheel that cannot be built, or is not what its name says; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Target:
    """A platform: `triple` is its name for Zig, `tag` that of wheels, `platform` that of Python."""

    triple: str
    tag: str
    platform: str

    @property
    def is_macos(self) -> bool:
        """True for macOS."""
        return "macos" in self.triple


TARGETS = {
    "manylinux-x86_64": Target("x86_64-linux-gnu.2.28", "manylinux_2_28_x86_64", "linux-x86_64"),
    "manylinux-aarch64": Target(
        "aarch64-linux-gnu.2.28", "manylinux_2_28_aarch64", "linux-aarch64"
    ),
    "musllinux-x86_64": Target("x86_64-linux-musl", "musllinux_1_2_x86_64", "linux-x86_64"),
    "musllinux-aarch64": Target("aarch64-linux-musl", "musllinux_1_2_aarch64", "linux-aarch64"),
    "macos-arm64": Target("aarch64-macos.11.0", "macosx_11_0_arm64", "macosx-11.0-arm64"),
    "macos-x86_64": Target("x86_64-macos.10.15", "macosx_10_15_x86_64", "macosx-10.15-x86_64"),
}
"""The platforms that have a wheel."""

PARTS = (
    *("csrc", "kbcore", "planner", "plugins", "server"),
    *("LICENSE", "README.md", "pyproject.toml", "setup.py"),
)
"""The files that a wheel is built from."""

LEFT_OUT = ("*.so", "*.egg-info", "__pycache__", "node_modules", "_engine.c")
"""The files that other builds leave in the tree."""

C_FLAGS = "-O3 -g0 -DNDEBUG -fwrapv -fno-sanitize=all"
"""Zig turns sanitizers on unless told; `-fwrapv` is what CPython compiles extensions with."""


def main() -> int:
    """Build and check the wheels of the tree; return the exit status."""
    parser = argparse.ArgumentParser(description="Compile the wheels for every platform.")
    parser.add_argument("folder", type=Path, help="gets the wheels")
    parser.add_argument("--target", action="append", choices=TARGETS, help="default: all of them")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or 1_700_000_000
    try:
        with tempfile.TemporaryDirectory(prefix="kbcore-wheels-") as work:
            for name in options.target or TARGETS:
                wheel = build_wheel(ROOT, name, Path(work), epoch)
                check_wheel(wheel, name)
                shutil.copy(wheel, folder)
                print(folder / wheel.name)
    except WheelError as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    return 0


def build_wheel(source: Path, name: str, work: Path, epoch: int) -> Path:
    """Build the wheel of a target from a source tree, in a new folder of `work`; return its path.

    `epoch` is the time of the files in the wheel, in seconds. The tree is copied, so that nothing
    that was compiled for another target is in the wheel. Raises WheelError.
    """
    target = TARGETS[name]
    tree, made = work / name / "source", work / name / "wheel"
    tree.mkdir(parents=True)
    for part in PARTS:
        path = source / part
        if path.is_dir():
            shutil.copytree(path, tree / part, ignore=shutil.ignore_patterns(*LEFT_OUT))
        else:
            shutil.copy(path, tree)
    headers = tree / "python-headers"
    shutil.copytree(sysconfig.get_path("include"), headers)
    shutil.copy(ROOT / "deploy" / "wheels" / "pyconfig.h", headers)
    arguments = ["-m", "build", "--no-isolation", "--wheel", "--outdir", str(made)]
    arguments.append(f"--config-setting=--build-option=--plat-name={target.tag}")
    run(arguments, tree, settings_of(target, tree, work, epoch))
    (wheel,) = made.glob("*.whl")
    return wheel


def settings_of(target: Target, tree: Path, work: Path, epoch: int) -> dict[str, str]:
    """Return the environment in which setuptools compiles for a target, with Zig."""
    compiler = f"{sys.executable} -m ziglang cc -target {target.triple}"
    # Symbols of Python are those of the process that loads the library: Linux needs no flag.
    shared = (
        "-shared -Wl,-undefined,dynamic_lookup -Wl,-install_name,kbcore"
        if target.is_macos
        else "-shared"
    )
    return {
        **{key: value for key, value in os.environ.items() if key not in ("CPATH", "LDFLAGS")},
        "CC": compiler,
        "LDSHARED": f"{compiler} {shared} -s",
        "CFLAGS": C_FLAGS,
        # No names of folders in the result, and the headers before those of this Python.
        "CPPFLAGS": f"-ffile-prefix-map={tree}=. -Ipython-headers",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": "",
        "SOURCE_DATE_EPOCH": str(epoch),
        "ZIG_GLOBAL_CACHE_DIR": str(work / "zig-cache"),
        "ZIG_LOCAL_CACHE_DIR": str(work / "zig-cache"),
        "_PYTHON_HOST_PLATFORM": target.platform,
    }


def run(arguments: Sequence[str], folder: Path, settings: Mapping[str, str] | None = None) -> str:
    """Run Python in a folder; return what it prints. Raises WheelError."""
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise WheelError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_wheel(wheel: Path, name: str) -> None:
    """Raise WheelError unless the wheel is what its name says."""
    target = TARGETS[name]
    if not wheel.name.endswith(f"-cp310-abi3-{target.tag}.whl"):
        raise WheelError(f"{wheel.name} is not named after {target.tag}")
    with zipfile.ZipFile(wheel) as archive:
        libraries = [each for each in archive.namelist() if each.endswith(".so")]
        expected = [f"kbplanner/_{each}.abi3.so" for each in ("answers", "engine", "proofs")]
        if sorted(libraries) != expected:
            raise WheelError(f"{wheel.name} has the libraries {libraries}, not {expected}")
        for library in libraries:
            if problems := binaries.problems_of(archive.read(library), target.tag):
                raise WheelError(f"{wheel.name}: {library}: {'; '.join(problems)}")
    run(["-m", "abi3audit", "--strict", str(wheel)], wheel.parent)
    if target.tag.startswith("manylinux"):  # auditwheel knows no musl on a system with glibc
        listing = " ".join(run(["-m", "auditwheel", "show", str(wheel)], wheel.parent).split())
        tag = re.search(r'platform tag: "manylinux_2_(\d+)_(\w+)"', listing)
        newest = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", target.tag)
        if not tag or not newest or tag[2] != newest[2] or int(tag[1]) > int(newest[1]):
            raise WheelError(f"{wheel.name} does not fit its name: {listing}")


if __name__ == "__main__":
    sys.exit(main())
