"""Rule sets: bodies and answers."""

from __future__ import annotations

from typing import Any, ClassVar

from kbcore.errors import InvalidInput
from kbcore.language.rule_set_files import RuleSetFile, digest_of
from kbcore.operations.rule_sets import MAX_IMPACT_GOALS, dry_run_of
from kbplanner.pacing import current_yield
from kbserver.schemas.base import Body, JsonObject, Part, answer_of, present
from kbserver.schemas.fields import (
    Count,
    Flag,
    Json,
    ListOfForms,
    Many,
    Text,
    Value,
    Whole,
    WriteScope,
)
from kbtypes import rule_sets

MAX_FILES = 1000
"""Maximum number of files of a rule set."""

TEXT_PATH = "text"
"""The path of a text that is sent in place of files."""


class RuleSetFilePart(Part):
    """A file of a rule set; its path is used in messages."""

    path = Text(required=True)
    text = Text(required=True)


class RuleSetFiles(ListOfForms):
    """The files of a rule set."""

    def __init__(self) -> None:
        super().__init__(RuleSetFilePart, schema={"minItems": 1, "maxItems": MAX_FILES})


class ImpactGoals(Value):
    """Goals as texts, which are parsed one by one where they are used."""

    schema: ClassVar[Json] = {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": MAX_IMPACT_GOALS,
        "description": "With dryRun: goals, as text; `impact` has their changed answers.",
    }

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the texts."""
        if type(value) is not list or not all(type(goal) is str for goal in value):
            raise ValueError("must be an array of texts")
        return tuple(value)


class DeployBody(Body):
    """The contents that a rule set is to have: one text, or files.

    `expectedVersion` is the version that is in force, 0 for none. With `dryRun` nothing is stored.
    `firstVersion` is for a rule set of a dump: the number of the version if the rule set does not
    exist. A rule set with other contents is then an error 409.
    """

    text = Text("Rules, declarations and facts in the rule language.")
    files = RuleSetFiles()
    scope = WriteScope()
    expected_version = Whole(0)
    first_version = Whole(1)
    message = Text()
    revision = Text("The revision of the files in a version control system.")
    dry_run = Flag()
    impact = Flag(
        "With dryRun: the answer says what the deployment would make true, false and undefined."
    )
    impact_goals = ImpactGoals()

    requires: ClassVar[Json] = {
        "oneOf": [present("text", without=("files",)), present("files", without=("text",))]
    }

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.deploy`."""
        if ("text" in fields) == ("files" in fields):
            raise InvalidInput.at("files", "or text is needed, not both")
        fields = dict(fields)
        fields["dry_run"] = dry_run_of(
            fields.get("dry_run", False),
            fields.pop("impact", False),
            fields.pop("impact_goals", ()),
            "impactGoals",
            current_yield(),
        )
        rest = {key: value for key, value in fields.items() if key not in ("text", "files")}
        if "text" in fields:
            return {"files": [RuleSetFile(TEXT_PATH, fields["text"])], **rest}
        return {"files": _files(fields["files"]), **rest}


class RollbackBody(Body):
    """The version whose contents a rule set is to have again, by default the one before."""

    version = Whole(1)
    scope = WriteScope()
    expected_version = Whole(0)
    message = Text()


Deployed = answer_of(rule_sets.Deployment, "Deployment")
RolledBack = answer_of(rule_sets.Deployment, "RolledBack", impact=None)
RuleSetCompared = answer_of(rule_sets.RuleSetDiff, "RuleSetDiff")
RuleSetContentsShown = answer_of(rule_sets.RuleSetContents, "RuleSetContents")
RuleSetShown = answer_of(rule_sets.RuleSetInfo, "RuleSet")
RuleSetVersionShown = answer_of(rule_sets.RuleSetVersion, "RuleSetVersion")


class RuleSetsShown(JsonObject):
    """The rule sets of a tenant, by scope and name."""

    rule_sets = Many(RuleSetShown)
    count = Count()


class RuleSetVersionsShown(JsonObject):
    """The kept versions of a rule set, the newest first."""

    versions = Many(RuleSetVersionShown)


def notes_of(arguments: Json) -> dict[str, str | None]:
    """Return what the audit line of a deployment says about its arguments."""
    notes = {key: arguments.get(key) for key in ("message", "revision")}
    return {"digest": digest_of(arguments["files"]), **notes}


def _files(values: Any) -> list[RuleSetFile]:
    """Return the files of a body; raises InvalidInput that names the member."""
    if type(values) is not list or not 0 < len(values) <= MAX_FILES:
        raise InvalidInput.at("files", f"must be an array of 1 to {MAX_FILES} files")
    files = []
    for index, value in enumerate(values):
        if type(value) is not dict:
            raise InvalidInput.at(f"files[{index}]", "must be an object with path and text")
        for key in ("path", "text"):
            if type(value.get(key)) is not str:
                raise InvalidInput.at(f"files[{index}].{key}", "must be a text")
        files.append(RuleSetFile(value["path"], value["text"]))
    return files
