"""Rule sets of a knowledge base: deploy, list and roll back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kbcore import python_values
from kbcore.errors import InvalidInput
from kbcore.language.rule_set_files import RULE_FILE, RuleSetFile, name_of, rule_files
from kbcore.operations.rule_sets import dry_run_of
from kbcore.python_api.handle import PythonHandle
from kbcore.state.tenant import ALL_SCOPES
from kbplanner.pacing import go_on
from kbtypes.rule_sets import (
    Deployment,
    RuleSetContents,
    RuleSetDiff,
    RuleSetInfo,
    RuleSetVersion,
)

TEXT_PATH = "text"
"""The path of a text that was given in place of files."""

Path_ = str | os.PathLike[str]


class PythonRuleSets(PythonHandle):
    """Rule sets: rules, declarations and facts that are deployed together, with versions.

    Names are per scope. Transactions do not support deployments.
    """

    def deploy(  # noqa: PLR0913  one parameter for each option of a deployment
        self,
        files_or_text: Path_ | Sequence[Path_],
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
        `expected_version` is the version in force, 0 for none. With `dry_run` nothing is stored;
        then `impact` counts what would become true and false, and `impact_goals` are goals whose
        changed answers are listed. `message` and `revision` are kept with the version.

        Raises RuleSyntaxError, InvalidInput, OSError, and Conflict, with the version that is in
        force as `details["version"]`.
        """
        files, folder_name = _files(files_or_text)
        return self.kb.deploy(
            files,
            name=name_of(files, name, folder_name),
            scope=scope,
            expected_version=python_values.integer("expected_version", expected_version),
            dry_run=dry_run_of(dry_run, impact, _texts(impact_goals), "impact_goals", go_on),
            message=message,
            revision=revision,
        )

    def rollback(
        self,
        name: str,
        version: int | None = None,
        *,
        expected_version: int | None = None,
        message: str | None = None,
        scope: str | None = None,
    ) -> Deployment:
        """Deploy the contents that a rule set had in an earlier version, by default the one before.

        It becomes a new version. Raises NotFound, and Conflict as `deploy` does.
        """
        return self.kb.rollback(
            name,
            python_values.integer("version", version),
            scope=scope,
            expected_version=python_values.integer("expected_version", expected_version),
            message=message,
        )

    def rule_sets(self, scope: str | None = ALL_SCOPES) -> list[RuleSetInfo]:
        """Return the rule sets of a scope, or of all, by scope and name."""
        return self.kb.rule_sets(scope)

    def rule_set(self, name: str, *, scope: str | None = None) -> RuleSetContents:
        """Return the contents of a rule set as statements. Raises NotFound."""
        return self.kb.rule_set(name, scope=scope)

    def rule_set_versions(self, name: str, *, scope: str | None = None) -> list[RuleSetVersion]:
        """Return the kept versions of a rule set, the newest first. Raises NotFound."""
        return self.kb.rule_set_versions(name, scope=scope)

    def rule_set_diff(
        self, name: str, before: int, after: int, *, scope: str | None = None
    ) -> RuleSetDiff:
        """Return the difference between two versions of a rule set; 0 is the empty one.

        Raises NotFound for a version that is not kept.
        """
        return self.kb.rule_set_diff(name, before, after, scope=scope)


def _texts(goals: Sequence[str]) -> Sequence[str]:
    if isinstance(goals, str):
        raise InvalidInput.at("impact_goals", "must be a list of goals, not one text")
    return [python_values.text(f"impact_goals[{at}]", goal) for at, goal in enumerate(goals)]


def _files(source: Path_ | Sequence[Path_]) -> tuple[list[RuleSetFile], str | None]:
    """Return the files of an argument, and the name that a folder gives."""
    if isinstance(source, str) and not (source.endswith(RULE_FILE) or os.path.isdir(source)):
        return [RuleSetFile(TEXT_PATH, source)], None
    if isinstance(source, str | os.PathLike):
        return rule_files([Path(source)])
    if not source:
        raise InvalidInput.at("files", "is empty")
    return rule_files([Path(each) for each in source])
