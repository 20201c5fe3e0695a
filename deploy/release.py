"""Build the files of a release and check them; `make release` writes them to `dist`.

    python deploy/release.py FOLDER [--environment VENV]

FOLDER gets a source archive and a wheel of each distribution, a list of all components (CycloneDX),
and SHA256SUMS. Everything is built twice, in folders with other names, from the files that git
knows; the two must be equal byte by byte. Wheels are built from the source archives alone, without
an index; those of kbcore are compiled for all platforms (`wheels.py`), the second time for this one
and for macOS, which has another linker. VENV is a new environment with the wheels installed, by
default a temporary one.

Needs the packages that the environment `release` of `tox.ini` lists.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import wheels

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = {"kbcore": Path(), "kbcore-client": Path("clients/python")}
"""The folder of each distribution."""

TWICE = ("manylinux-x86_64", "macos-arm64")
"""The targets of the second build: one for each linker."""


class ReleaseError(Exception):
    """A release that cannot be published, with the reason."""


def main() -> int:
    """Build, check and list the files; return the exit status."""
    parser = argparse.ArgumentParser(description="Build the files of a release and check them.")
    parser.add_argument("folder", type=Path, help="gets the files; its content is replaced")
    parser.add_argument("--environment", type=Path, help="new environment for the wheels")
    options = parser.parse_args()
    folder = options.folder.resolve()
    try:
        with tempfile.TemporaryDirectory(prefix="kbcore-release-") as work:
            first = build(Path(work, "first"), tuple(wheels.TARGETS))
            second = build(Path(work, "the-second-build"), TWICE)
            once = [each.tag for name, each in wheels.TARGETS.items() if name not in TWICE]
            compare(first, second, once)
            environment = options.environment or Path(work, "environment")
            check(first)
            components(first, environment.resolve())
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(first, folder)
    except (ReleaseError, wheels.WheelError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(checksums(folder))
    return 0


def released() -> tuple[str, int]:
    """Return the newest version in the changelog, and midnight UTC of its day in epoch seconds."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    match = re.search(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", text, re.M)
    if match is None:
        raise ReleaseError("CHANGELOG.md has no line such as: ## 0.2.1 - 2026-11-27")
    day = datetime.datetime.fromisoformat(match[2]).replace(tzinfo=datetime.timezone.utc)
    return match[1], int(day.timestamp())


def build(work: Path, targets: Sequence[str]) -> Path:
    """Build the source archives and the wheels for some targets in a new folder; return the folder
    of the files.
    """
    version, epoch = released()
    source, dist = work / "source", work / "dist"
    dist.mkdir(parents=True)
    copy_source(source)
    for name, folder in PROJECTS.items():
        made = work / "made" / name
        run(["-m", "build", "--no-isolation", "--sdist", "--outdir", made], source / folder, epoch)
        stem = f"{name.replace('-', '_')}-{version}"
        archive = made / f"{stem}.tar.gz"
        if not archive.exists():
            raise ReleaseError(f"the version of {name} is not {version}, as in CHANGELOG.md")
        repack(archive, dist / archive.name, epoch)
        with tarfile.open(dist / archive.name) as tar:
            tar.extractall(made, filter="data")
        if name == "kbcore":
            for target in targets:
                shutil.copy(wheels.build_wheel(made / stem, target, made, epoch), dist)
        else:
            run(["-m", "build", "--no-isolation", "--wheel", "--outdir", dist], made / stem, epoch)
    return dist


def copy_source(target: Path) -> None:
    """Copy the files that git knows; without a repository, which is a source archive, all files."""
    if not (ROOT / ".git").exists():
        shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(".venv", ".tox", "build"))
        return
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in listing.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def run(arguments: Sequence[str | Path], folder: Path, epoch: int = 0) -> str:
    """Run Python in a folder, without an index and with a fixed time; return what it prints."""
    settings: Mapping[str, str] = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(epoch),
        "PIP_NO_INDEX": "1",
        "PYTHONHASHSEED": "0",
    }
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def repack(archive: Path, target: Path, epoch: int) -> None:
    """Write a source archive again, in order, with one time and without users."""
    content = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=content, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.pax_headers = epoch, {}
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            is_program = member.isdir() or bool(member.mode & 0o100)
            member.mode = 0o755 if is_program else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    target.write_bytes(gzip.compress(content.getvalue(), mtime=epoch))


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compare(first: Path, second: Path, once: Sequence[str] = ()) -> None:
    """Raise ReleaseError naming the files of two builds that differ, but for the wheels with the
    tags `once`, which only the first has.
    """
    builds = [{path.name: digest(path) for path in folder.iterdir()} for folder in (first, second)]
    left_out = tuple(f"-{tag}.whl" for tag in once)
    names = sorted(
        each for each in builds[0].keys() | builds[1].keys() if not each.endswith(left_out)
    )
    if different := [name for name in names if builds[0].get(name) != builds[1].get(name)]:
        raise ReleaseError(f"two builds of the same files differ: {', '.join(different)}")


def check(dist: Path) -> None:
    """Raise ReleaseError for a file that an index refuses, or a wheel with a wrong content."""
    files = sorted(dist.iterdir())
    all_wheels = [path for path in files if path.suffix == ".whl"]
    run(["-m", "twine", "check", "--strict", *files], dist)
    run(["-m", "check_wheel_contents", "--config", ROOT / "pyproject.toml", *all_wheels], dist)
    for name, target in wheels.TARGETS.items():
        (wheel,) = dist.glob(f"kbcore-*-{target.tag}.whl")
        wheels.check_wheel(wheel, name)


def components(dist: Path, environment: Path) -> None:
    """Install the wheels into a new environment, and list its components as CycloneDX."""
    version, _ = released()
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    names = [f"{name}=={version}" for name in PROJECTS]
    # First our files by name, so that no address of a file is recorded; then what they depend on.
    for source in (["--no-index", "--no-deps", "--find-links", dist], []):
        command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        done = subprocess.run(
            [*command, "--disable-pip-version-check", *source, *names],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ReleaseError(f"the wheels cannot be installed:\n{done.stderr}")
    listing = dist / f"kbcore-{version}.cdx.json"
    arguments = ["environment", "--output-reproducible", "--spec-version", "1.6"]
    arguments += ["--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(listing)]
    run(["-m", "cyclonedx_py", *arguments, python], dist)


def checksums(dist: Path) -> str:
    """Write SHA256SUMS, and return its content."""
    lines = [f"{digest(path)}  {path.name}\n" for path in sorted(dist.iterdir())]
    (dist / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
