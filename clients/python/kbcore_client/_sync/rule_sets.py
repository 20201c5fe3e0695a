"""Rule sets of a knowledge base: deploy, list, compare and roll back."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kbcore_client._sync.handle import Handle
from kbcore_client.errors import InvalidInput
from kbcore_client.requests import Request, path_part
from kbtypes.rule_sets import (
    Deployment,
)
from kbtypes.values import present

RULE_FILE = ".kb"
"""The ending of the names of rule files."""

_MODULE = re.compile(
    r"(?:\s|\ufeff|(?:%|#|//)[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*@module\s+"
    r"""(?:"([^"\n]*)"|'([^'\n]*)'|([^\s."']+))\s*\."""
)
"""`@module access.` behind white space and comments, each of which ends in one place only."""

PathLike = str | os.PathLike[str]


class Deployments(Handle):
    """Rule sets: rules, declarations and facts that are deployed together, with versions.

    Names are per scope. Transactions do not support deployments.
    """

    def deploy(  # noqa: PLR0913  one parameter for each option of a deployment
        self,
        files_or_text: PathLike | Sequence[PathLike],
        name: str | None = None,
        expected_version: int | None = None,
        dry_run: bool = False,
        *,
        impact: bool = False,
        impact_goals: Sequence[str] = (),
        message: str | None = None,
        revision: str | None = None,
        scope: str | None = None,
    ) -> Deployment:
        """Replace the contents of a rule set by those of files, as one change, and return what
        changed.

        `files_or_text` is a folder, one or more files whose names end in .kb, or a text in the rule
        language. `name` may be missing if a file begins with `@module`, or for a folder, which
        gives its name. What the files no longer have is removed, unless another rule set contains
        it or it was also stored one by one. Without a difference no version is made.
        `expected_version` is the version that is in force, 0 for none; with `dry_run` nothing is
        stored; then `impact` says what would become true and false, as counts for each predicate,
        and `impact_goals` are goals whose changed answers are listed too. `message` and `revision`
        are kept with the version. Raises RuleSyntaxError,
        InvalidInput, OSError, and Conflict, with the version in force as `details["version"]`.
        """
        contents, own_name = _contents(files_or_text)
        name = own_name if name is None else name
        if name is None:
            raise InvalidInput.at(
                "name", 'name the rule set, or begin its file with "@module name."'
            )
        options = {
            "expectedVersion": expected_version,
            "dryRun": dry_run or None,
            "impact": impact or None,
            "impactGoals": list(impact_goals) or None,
            "message": message,
            "revision": revision,
            "scope": scope,
        }
        body = {**contents, **present(options)}
        request = Request(_path(name), body, method="PUT", writes=not dry_run, names=_NAMES)
        reply = self._send(request)
        return Deployment.of(reply.json())


_NAMES = {
    "expectedVersion": "expected_version",
    "dryRun": "dry_run",
    "files": "files_or_text",
    "impactGoals": "impact_goals",
}


def _path(name: str) -> str:
    return f"/rulesets/{path_part('name', name)}"


def _scope(scope: str | None) -> dict[str, str]:
    return {} if scope is None else {"scope": scope}


def _contents(source: PathLike | Sequence[PathLike]) -> tuple[dict[str, Any], str | None]:
    """Return the text or the files of a body, and the name that `@module` or a folder gives."""
    if isinstance(source, str) and not (source.endswith(RULE_FILE) or os.path.isdir(source)):
        return {"text": source}, _module([source])
    paths = [source] if isinstance(source, str | os.PathLike) else list(source)
    folder = Path(paths[0]) if len(paths) == 1 and os.path.isdir(paths[0]) else None
    files = [Path(path) for path in paths]
    if folder is not None:
        files = sorted(folder.rglob(f"*{RULE_FILE}"))
    if not files:
        raise InvalidInput.at("files_or_text", f"has no file whose name ends in {RULE_FILE}")
    bodies = [{"path": str(path), "text": path.read_text(encoding="utf-8")} for path in files]
    name = None if folder is None else folder.resolve().name
    return {"files": bodies}, _module(body["text"] for body in bodies) or name


def _module(texts: Iterable[str]) -> str | None:
    """Return the name that `@module` at the head of a text gives; the server checks it again."""
    for text in texts:
        if match := _MODULE.match(text):
            return next(name for name in match.groups() if name is not None)
    return None
