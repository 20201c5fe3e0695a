"""The extension for Visual Studio Code: it is built and packaged, and its bundle loads."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "clients" / "vscode"

LOAD = """
const Module = require("module");
const anything = new Proxy(function () {}, { get: (_, name) => name === "prototype" ? {} : anything });
const load = Module._load;
Module._load = (name, ...more) => name === "vscode" ? anything : load(name, ...more);
const extension = require(process.argv[1]);
console.log(Object.keys(extension).sort().join(" "));
"""


@pytest.fixture(scope="module")
def package():
    """The names and contents of the packaged files."""
    if not (FOLDER / "node_modules").is_dir():
        pytest.fail("run `npm ci` in clients/vscode first")
    done = subprocess.run(
        ["npm", "run", "--silent", "package"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(FOLDER / "kbcore.vsix") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_package_has_what_the_editor_needs_and_nothing_else(package):
    names = {name.removeprefix("extension/") for name in package if name.startswith("extension/")}
    assert names == {
        "LICENSE.txt",
        "dist/extension.js",
        "language-configuration.json",
        "package.json",
        "readme.md",
        "syntaxes/kb.tmLanguage.json",
    }


def test_every_file_that_the_manifest_names_is_packaged(package):
    manifest = json.loads(package["extension/package.json"])
    contributed = manifest["contributes"]
    named = [
        manifest["main"],
        contributed["languages"][0]["configuration"],
        contributed["grammars"][0]["path"],
    ]
    for path in named:
        assert f"extension/{path.removeprefix('./')}" in package
    assert contributed["configuration"]["properties"]["kbcore.command"]["default"] == [
        "kbcore",
        "lsp",
    ]


def test_the_bundle_loads(package, tmp_path):
    bundle = tmp_path / "extension.js"
    bundle.write_bytes(package["extension/dist/extension.js"])
    done = subprocess.run(
        ["node", "-e", LOAD, str(bundle)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "activate deactivate\n", "")
