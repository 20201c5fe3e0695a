"""The files that an editor has open, and those in the same folder: which ones belong together."""

from __future__ import annotations

from pathlib import Path

from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import Workspace

from kbplanner.ir.modes import NO_MODES, Modes
from kbserver.cli.lsp.project import Project

SUFFIX = ".kb"
MAX_FILES = 500
MAX_BYTES = 1 << 22
"""Size of a file up to which it is read."""


def project_of(workspace: Workspace, uri: str, external: Modes = NO_MODES) -> Project:
    """Return a file and the other `.kb` files of its folder, which belong together.

    Open files count as the editor has them, stored or not; the others as they are stored.
    `external` are the predicates that plugins provide.
    """
    texts = {uri: workspace.get_text_document(uri).source}
    path = _path(uri)
    if path is None:
        return Project(texts, external)
    folder, known = path.parent, {path}
    for other in workspace.text_documents:
        if (file := _path(other)) is not None and file.parent == folder:
            known.add(file)
            texts[other] = workspace.get_text_document(other).source
    for file in sorted(folder.glob(f"*{SUFFIX}"))[:MAX_FILES]:
        key = from_fs_path(str(file))
        text = None if file in known else _read(file)
        if key is not None and text is not None:
            texts[key] = text
    return Project(texts, external)


def folder_of(uri: str) -> Path | None:
    """Return the folder of a file; None for a text that is no file."""
    path = _path(uri)
    return None if path is None else path.parent


def _path(uri: str) -> Path | None:
    """Return the path of a file; None for a text that is no file, such as a new one."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return None if path is None else Path(path)


def _read(path: Path) -> str | None:
    """Return the text of a file; None if it cannot be read or is too large."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
