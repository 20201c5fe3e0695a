"""The tools there are: what each is called, takes, answers, changes and needs.

The descriptions are all a model knows of a tool, and every client carries the whole list in its prompts: they are short.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from kbcore.state.keys import READER, WRITER
from kbserver.mcp import answers, work
from kbserver.mcp.work import Work
from kbserver.schemas import context, facts, ingest, language, memory, reason, rules, scopes
from kbserver.schemas.base import Shape, envelope_of, nothing
from kbserver.schemas.jsonschema import COMPONENTS, PLACE, TEXT, Schema, of_body

TRANSACTION = "transactionId"
"""The argument that makes a tool part of a transaction."""

LARGE = 1 << 40
"""A bound that is no bound for anybody."""

_ATOM = ("predicate", "args", "text")


@dataclass(frozen=True)
class Tool:
    """A tool: `body` reads its arguments, of which `takes` are shown.

    `needs` is the role of a caller. Reads change nothing; of the others, `destroys` says that they may take away, `repeats`
    that a second call with the same arguments changes nothing more. `grouped` ones may be part of a transaction,
    `usual` ones are in every profile, `model` ones are there where a language model is configured. Whether one that is
    `judged_inside` writes its arguments say: on a follower the core refuses what does.
    """

    name: str
    body: Shape[Any]
    takes: tuple[str, ...]
    answer: Schema
    work: Work
    description: str
    needs: str = READER
    destroys: bool = False
    repeats: bool = True
    grouped: bool = True
    usual: bool = False
    model: bool = False
    judged_inside: bool = False

    @property
    def writes(self) -> bool:
        """Whether it changes what is stored."""
        return self.needs != READER

    @cached_property
    def shown(self) -> dict[str, Any]:
        """The tool as `tools/list` has it."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self._input(),
            "outputSchema": self.answer,
            "annotations": self._hints(),
        }

    def _input(self) -> Schema:
        whole = of_body(envelope_of(self.body).schema)
        properties = {name: brief(whole["properties"][name]) for name in self.takes}
        if self.writes and self.grouped:
            properties[TRANSACTION] = TEXT
        needed = [name for name in self.takes if name in whole.get("required", ())]
        found: Schema = {"type": "object", "properties": properties}
        return {**found, "required": needed} if needed else found

    def _hints(self) -> dict[str, bool]:
        if not self.writes:
            return {"readOnlyHint": True, "openWorldHint": self.model}
        hints = {"destructiveHint": self.destroys, "openWorldHint": self.model}
        return {**hints, "idempotentHint": True} if self.repeats else hints


def brief(schema: Schema) -> Schema:
    """A schema in fewer words: no descriptions, no references, no null, nothing of what objects hold."""
    if "$ref" in schema:
        return brief(COMPONENTS[schema["$ref"].removeprefix(PLACE)]())
    some = [brief(each) for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if some:
        if len(some) == 1:
            return some[0]
        types = [each["type"] if type(each["type"]) is list else [each["type"]] for each in some]
        return {
            "type": list(dict.fromkeys(chain.from_iterable(types)))
        }  # the elements of `type` must be unique names
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        kind = "string" if "string" in kind else kind[0]
    found: Schema = {"type": kind}
    if kind == "array":
        found["items"] = brief(schema.get("items", {}))
    if "enum" in schema:
        found["enum"] = schema["enum"]
    return {
        **found,
        **{
            key: schema[key]
            for key in ("minimum", "maximum")
            if abs(schema.get(key, LARGE)) < LARGE
        },
    }


_ALL = (
    Tool(
        "tell",
        facts.one_fact,
        (*_ATOM, "negated", "scope", "ttl", "validFrom", "validUntil", "confidence", "metadata"),
        answers.TOLD,
        work.tell,
        "Store one fact: predicate parent, args [ann, bob]; or text parent(ann, bob). Times: epoch ms or ISO 8601; ttl: ms.",
        needs=WRITER,
        usual=True,
    ),
    Tool(
        "bulk_assert",
        facts.many_facts,
        ("facts",),
        answers.TOLD,
        work.bulk_assert,
        "Store many facts at once, all or none. Each is an object as tell takes it.",
        needs=WRITER,
        usual=True,
    ),
    Tool(
        "teach",
        rules.lesson,
        ("text", "head", "body", "scope"),
        answers.TAUGHT,
        work.teach,
        "Teach rules: as text, like ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z). Or one as head and body.",
        needs=WRITER,
        usual=True,
    ),
    Tool(
        "ask",
        reason.question,
        (*_ATOM, "negated", "scope", "withProof", "limit", "offset"),
        answers.ROWS,
        work.ask,
        "Answer a goal from facts and rules: predicate and args, or text such as parent(?x, bob). ?x is a variable.",
        usual=True,
    ),
    Tool(
        "query",
        reason.pattern,
        (*_ATOM, "scope", "limit"),
        answers.ROWS,
        work.query,
        "Match stored facts only, without rules. Args that start with ? match anything. Or text: parent(?x, bob).",
        usual=True,
    ),
    Tool(
        "forget",
        facts.fact_to_retract,
        (*_ATOM, "scope"),
        answers.RETRACTED,
        work.forget,
        "Take back one fact. Conclusions that rested on it fall too, and are counted.",
        needs=WRITER,
        destroys=True,
        usual=True,
    ),
    Tool(
        "aggregate",
        reason.aggregation,
        ("predicate", "op", "argIndex", "args", "scope"),
        answers.NUMBER,
        work.aggregate,
        "COUNT, SUM, MIN, MAX or AVG (op) of the argument argIndex, counted from 0, of stored facts.",
        usual=True,
    ),
    Tool(
        "explain",
        reason.explanation,
        (*_ATOM, "scope", "limit", "plan"),
        answers.SAID,
        work.explain,
        "Tell why the answers of a goal hold, or with plan how it is evaluated. The goal: predicate and args, or text.",
        usual=True,
    ),
    Tool(
        "predicates",
        work.schema_asked,
        ("prefix", "scope", "limit"),
        answers.SCHEMA,
        work.predicates,
        "List predicates with arity and counts of facts and rules. Start here.",
        usual=True,
    ),
    Tool(
        "context",
        context.context,
        (
            *(
                "query",
                "asker",
                "goals",
                "fill",
                "maxFacts",
                "maxTokens",
                "minSalience",
                "minRelevance",
                "predicates",
            ),
            *(
                "scope",
                "sessionId",
                "format",
                "includeRules",
                "maxFactsPerPredicate",
                "relevanceBuckets",
            ),
        ),
        answers.WINDOW,
        work.context,
        "Facts for a prompt: matches of query, what goals' answers depend on; fill=salience adds more. "
        "context_diff tells what changed.",
        grouped=False,
        usual=True,
    ),
    Tool(
        "context_diff",
        context.diff,
        ("sessionId", "goals", "maxFacts", "scope", "format"),
        answers.CHANGES,
        work.context_diff,
        "Changes since a session's last window.",
        grouped=False,
        usual=True,
    ),
    Tool(
        "ingest",
        ingest.ingest,
        ("text", "goals", "maxFacts", "scope", "sessionId"),
        answers.INGESTED,
        work.ingested,
        "Store the facts and rules of a text, written like likes(ann, tea), and give a context window.",
        needs=WRITER,
        grouped=False,
        usual=True,
    ),
    Tool(
        "retract_pattern",
        facts.pattern_to_retract,
        (*_ATOM, "negated", "scope"),
        answers.REMOVED,
        work.retract_pattern,
        "Take back every fact that matches: variables match anything, a repeated one equal values.",
        needs=WRITER,
        destroys=True,
    ),
    Tool(
        "recall",
        memory.recall,
        (*_ATOM, "timestamp", "scope", "limit"),
        answers.ROWS,
        work.recall,
        "Facts that were valid at a moment: epoch milliseconds or ISO 8601.",
    ),
    Tool(
        "compress",
        memory.consolidation,
        ("minGroupSize", "predicates", "scope", "dryRun"),
        answers.CONSOLIDATED,
        work.compress,
        "Sum up facts that repeat themselves as one fact a group. With dryRun only say which.",
        needs=WRITER,
        grouped=False,
    ),
    Tool(
        "cleanup",
        memory.decay,
        ("threshold", "scope", "dryRun"),
        answers.DECAYED,
        work.cleanup,
        "Evict facts that have expired, or whose salience is below the threshold. With dryRun only say which.",
        needs=WRITER,
        destroys=True,
        repeats=False,
        grouped=False,
    ),
    Tool(
        "fork_scope",
        scopes.fork_of,
        ("sourceScope", "targetScope", "overwrite"),
        answers.FORKED,
        work.fork_scope,
        "Copy a scope, or the base where no source is named, to a new one, to try something out.",
        needs=WRITER,
        destroys=True,
        repeats=False,
        grouped=False,
    ),
    Tool(
        "merge_scope",
        scopes.merge_of,
        ("sourceScope", "targetScope", "strategy"),
        answers.MERGED,
        work.merge_scope,
        "Add to a scope what another has. strategy: SOURCE_WINS, TARGET_WINS, KEEP_BOTH or REJECT.",
        needs=WRITER,
        destroys=True,
        grouped=False,
    ),
    Tool(
        "diff_scope",
        scopes.two_scopes,
        ("sourceScope", "targetScope"),
        answers.COMPARED,
        work.diff_scope,
        "Compare two scopes: facts added, removed and modified.",
        grouped=False,
    ),
    Tool(
        "list_scopes",
        nothing,
        (),
        answers.SCOPES,
        work.list_scopes,
        "List the scopes there are.",
        grouped=False,
    ),
    Tool(
        "delete_scope",
        work.scope_named,
        ("scope",),
        answers.DELETED,
        work.delete_scope,
        "Delete a scope and all its facts.",
        needs=WRITER,
        destroys=True,
        repeats=False,
        grouped=False,
    ),
    Tool(
        "context_summary",
        ingest.summary,
        ("scope",),
        answers.SUMMARY,
        work.context_summary,
        "A knowledge base at a glance.",
        grouped=False,
    ),
    Tool(
        "extract",
        language.extraction,
        ("text", "assert", "rules", "scope", "context"),
        answers.EXTRACTED,
        work.extract,
        "Read prose into facts, and with rules into rules too, by a language model. With assert they are stored.",
        needs=WRITER,
        repeats=False,
        grouped=False,
        model=True,
        judged_inside=True,
    ),
    Tool(
        "synthesize",
        language.question,
        ("question", "scope"),
        answers.SYNTHESIS,
        work.synthesize,
        "Answer a question in words from what is known, by a language model, with what the answer rests on.",
        grouped=False,
        model=True,
    ),
)

TOOLS = {tool.name: tool for tool in sorted(_ALL, key=lambda tool: tool.name)}
"""Every tool by its name, in order."""


def tools_of(profile: str, model: bool = False) -> dict[str, Tool]:
    """The tools of a profile, `default` or `all`; those that need a language model only where there is one."""
    return {
        name: tool
        for name, tool in TOOLS.items()
        if (tool.usual or profile == "all") and (model or not tool.model)
    }
