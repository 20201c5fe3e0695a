"""One version everywhere, and a changelog in the form of Keep a Changelog."""

from __future__ import annotations

import json
import re
from pathlib import Path

import kbcore

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_every_package_has_the_version():
    versions = {
        name: re.findall(r'^(?:__version__|version) = "(.+)"$', (ROOT / name).read_text("utf-8"), re.M)
        for name in (
            "pyproject.toml", "clients/python/pyproject.toml",
            "clients/python/kbcore_client/__init__.py",
        )
    }  # fmt: skip
    for name in ("clients/typescript", "clients/vscode"):
        for file in ("package.json", "package-lock.json"):
            versions[f"{name}/{file}"] = [json.loads((ROOT / name / file).read_text())["version"]]
    image = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    versions["deploy/Dockerfile"] = re.findall(r'image\.version="(.+?)"', image)
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    versions["the client that kbcore needs"] = re.findall(r'"kbcore-client==(.+)"', project)
    assert {name: each for name, each in versions.items() if each != [kbcore.__version__]} == {}


def test_the_changelog_has_its_form():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *versions = re.split(r"^## ", text, flags=re.M)
    titles = [version.partition("\n")[0] for version in versions]
    assert titles[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", title) for title in titles[1:])
    assert titles[1].split()[0] == kbcore.__version__
    assert titles[1:] == sorted(titles[1:], reverse=True)
    for version in versions[1:]:
        before, *sections = re.split(r"^### ", version, flags=re.M)
        assert before.partition("\n")[2].strip() == ""
        names = [section.partition("\n")[0] for section in sections]
        assert names == [name for name in SECTIONS if name in names]
        assert all(re.match(r"\w+\n\n- ", section) for section in sections)
