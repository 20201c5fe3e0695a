"""The files of a release, which `deploy/release.py` has built: `tox run -e release`."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[2]
HOST = "manylinux_2_28_x86_64"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


@pytest.fixture(scope="module")
def dist() -> Path:
    if "KB_RELEASE" not in os.environ:
        pytest.skip("no release was built: run tox run -e release")
    return Path(os.environ["KB_RELEASE"])


@pytest.fixture(scope="module")
def kbcore(dist: Path) -> Path:
    """The command in the environment where the wheels were installed."""
    return Path(os.environ["KB_RELEASE_ENVIRONMENT"], "bin", "kbcore")


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch):
    spec = importlib.util.spec_from_file_location("release", ROOT / "deploy" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.syspath_prepend(ROOT / "deploy")  # it imports modules of its folder
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel_of(dist: Path, name: str) -> zipfile.ZipFile:
    (path,) = dist.glob(f"{name}-{VERSION}-*{'none-any' if 'client' in name else HOST}.whl")
    return zipfile.ZipFile(path)


def test_the_files_and_their_checksums(dist: Path) -> None:
    sums = dict(
        reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines()
    )
    assert sorted(sums) == sorted(path.name for path in dist.iterdir() if path.name != "SHA256SUMS")
    assert len(sums) == 10
    for name, digest in sums.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("name", ["kbcore", "kbcore_client"])
def test_metadata_and_licence(dist: Path, name: str) -> None:
    with wheel_of(dist, name) as wheel:
        metadata = Parser().parsestr(wheel.read(f"{name}-{VERSION}.dist-info/METADATA").decode())
        names = wheel.namelist()
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert f"{name}-{VERSION}.dist-info/licenses/LICENSE" in names
    assert f"{name}/py.typed" in names
    for of_client in ("kbtypes/py.typed", "kbcore_client/tools.json"):
        assert (of_client in names) is (name == "kbcore_client")
    assert [
        entry for entry in names if re.search(r"(^|/)(tests?|docs|csrc)/|\.c$|DESIGN\.md$", entry)
    ] == []


def test_the_engine_is_for_every_python(dist: Path) -> None:
    with wheel_of(dist, "kbcore") as wheel:
        names = wheel.namelist()
        tags = wheel.read(f"kbcore-{VERSION}.dist-info/WHEEL").decode()
        engine = wheel.read("kbplanner/_engine.abi3.so")
    assert re.search(rf"^Tag: cp310-abi3-{HOST}$", tags, re.M)
    libraries = sorted(name for name in names if name.endswith(".so"))
    assert libraries == [f"kbplanner/_{name}.abi3.so" for name in ("answers", "engine", "proofs")]
    assert b"kbcore-release-" not in engine  # the folder of the build
    assert "kbserver/console/index.html" in names
    assert "kbplanner/syntax/grammar.lark" in names


def test_wheels_differ_in_their_libraries_alone(dist: Path, release) -> None:
    """The other platforms get the Python files that the tests of this one have run."""
    contents = {}
    for target in release.wheels.TARGETS.values():
        (path,) = dist.glob(f"kbcore-{VERSION}-cp310-abi3-{target.tag}.whl")
        with zipfile.ZipFile(path) as wheel:
            contents[target.tag] = {
                name: wheel.read(name)
                for name in wheel.namelist()
                if not name.endswith((".so", "dist-info/WHEEL", "dist-info/RECORD"))
            }
    assert len(contents) == 6
    for tag, content in contents.items():
        assert content == contents[HOST], tag


def test_a_wheel_with_the_name_of_another_platform_is_refused(
    dist: Path, release, tmp_path: Path
) -> None:
    wheels = release.wheels
    names = list(wheels.TARGETS)
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        (path,) = dist.glob(f"*-{wheels.TARGETS[name].tag}.whl")
        renamed = tmp_path / path.name.replace(wheels.TARGETS[name].tag, wheels.TARGETS[other].tag)
        shutil.copy(path, renamed)
        with pytest.raises(wheels.WheelError, match=r"_answers\.abi3\.so: it "):
            wheels.check_wheel(renamed, other)


def test_libraries_that_need_more_than_their_name_says(dist: Path, release) -> None:
    problems_of = release.wheels.binaries.problems_of

    def library(tag: str) -> bytes:
        (path,) = dist.glob(f"*-{tag}.whl")
        with zipfile.ZipFile(path) as wheel:
            return wheel.read("kbplanner/_engine.abi3.so")

    assert problems_of(library("manylinux_2_28_aarch64"), "manylinux_2_16_aarch64") == [
        "it needs GLIBC_2.17"
    ]
    assert problems_of(library("macosx_11_0_arm64"), "macosx_10_15_arm64") == [
        "it needs macOS 11.0"
    ]
    assert problems_of(library("musllinux_1_2_x86_64"), HOST) == ["it loads libc.so"]


def test_the_source_archive_has_what_tests_and_pages_need(dist: Path) -> None:
    with tarfile.open(dist / f"kbcore-{VERSION}.tar.gz") as tar:
        members = {member.name.partition("/")[2]: member for member in tar.getmembers()}
    needed = ("deploy/Dockerfile", "docs/index.md", "zensical.toml", "plugins/example/README.md")
    needed += ("kbcore/state/DESIGN.md", "planner/DESIGN.md", "server/kbserver/http/DESIGN.md")
    needed += ("tests/docs/test_pages.py", "csrc/README.md", "clients/python/pyproject.toml")
    assert [name for name in needed if name not in members] == []
    assert [name for name in members if "node_modules" in name or name.endswith(".so")] == []
    assert {(member.uid, member.uname) for member in members.values()} == {(0, "root")}
    assert len({member.mtime for member in members.values()}) == 1


def test_the_list_of_components_has_every_dependency(dist: Path) -> None:
    listing = json.loads((dist / f"kbcore-{VERSION}.cdx.json").read_text("utf-8"))
    assert (listing["bomFormat"], listing["specVersion"]) == ("CycloneDX", "1.6")
    root = listing["metadata"]["component"]
    assert (root["name"], root["version"]) == ("kbcore", VERSION)
    names = {each["name"].lower().replace("_", "-") for each in listing["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {re.match(r"[\w-]+", each)[0].lower() for each in project["dependencies"]}
    assert declared - names == set()
    assert all(each["purl"].startswith("pkg:pypi/") for each in listing["components"])
    assert "file:" not in json.dumps(listing)


def test_the_installed_wheel_opens_the_folder_of_the_first_release(
    kbcore: Path, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "tests/durability/upgrades/0.1.0/storage", tmp_path / "data")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [kbcore, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert VERSION in run("--version")
    target = ("--storage-dir", "data", "--tenant", "family")
    answers = run("ask", *target, "ancestor(ann, ?x)").splitlines()
    assert len(answers) == 3
    assert "ancestor(ann, cid)" in answers
    assert "parent(bob, cid)" in run("explain", *target, "ancestor(ann, cid)")


def test_a_difference_between_two_builds_is_found(release, tmp_path: Path) -> None:
    for name, text in (("first", "a"), ("second", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same").write_text("x")
        (tmp_path / name / "other").write_text(text)
    (tmp_path / "first" / "more").write_text("x")
    with pytest.raises(release.ReleaseError, match=r"differ: more, other$"):
        release.compare(tmp_path / "first", tmp_path / "second")
    release.compare(tmp_path / "first", tmp_path / "first")


def test_the_time_of_the_files_is_the_day_of_the_release(release) -> None:
    version, epoch = release.released()
    assert version == VERSION
    assert epoch % 86_400 == 0
    assert epoch > 1_700_000_000
