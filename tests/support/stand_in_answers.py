"""The answers of the stand-in model: simple English patterns, deterministic."""

from __future__ import annotations

import re
from typing import Any

_MARK = r"<{0}>\n(.*?)\n</{0}>"
_VERB = r"(?:likes?|loves?|owns?|knows?|visits?|drinks?|manages?|sells?|works? (?:at|for)|lives? in|moves? to)"
_NAME = r"[A-Z][\w-]*(?: [A-Z][\w-]*)*"
_SENTENCE = re.compile(
    rf"(?P<s>{_NAME}) (?P<maybe>probably |perhaps )?(?P<no>does not |doesn't )?(?P<v>{_VERB}) (?P<o>.+)"
)
_IS = re.compile(rf"(?P<s>{_NAME}) is (?P<no>not )?(?:an?|the) (?P<n>\w+)(?: of (?P<o>.+))?")
_RULE = re.compile(
    r"Everyone who (?P<v>\w+(?: at| in| for)?) (?P<o>\w+) (?P<w>\w+(?: at| in| for)?) (?P<p>\w+)"
)
_FACT = re.compile(r"(?:\d+\. )?(not |~)?(\w+)\((.*?)\)")


def marked(prompt: str, mark: str) -> str | None:
    """What a prompt holds between two marks."""
    found = re.search(_MARK.format(mark), prompt, re.S)
    return None if found is None else found[1]


def think(system: str, prompt: str) -> dict[str, Any]:
    """The answer to a prompt, whichever of the three it is."""
    if (facts := marked(prompt, "facts")) is not None:
        return answer(facts)
    if (question := marked(prompt, "question")) is not None:
        return plan(prompt, question)
    text = re.sub(r"</?said[^>]*>\n?", "", marked(prompt, "text") or "")
    return extract(text, '"rules" holds' in system)


def extract(text: str, rules: bool) -> dict[str, Any]:
    """The facts of sentences such as "Ann Lee works at Acme." and rules such as "Everyone who works
    at Acme likes tea.".
    """
    found: list[dict[str, Any]] = []
    general: list[dict[str, Any]] = []
    subject = ""
    for line in re.split(r"(?<=[.!?])\s+|\n", text):
        plain = line.strip().rstrip(".!?")
        rule = _RULE.fullmatch(plain)
        if rule is not None:
            if rules:
                general.append(_rule(rule))
            continue
        if subject and re.match(r"(He|She|It) ", plain):
            plain = f"{subject} {plain.split(' ', 1)[1]}"
        fact = _SENTENCE.fullmatch(plain) or _IS.fullmatch(plain)
        if fact is None:
            continue
        subject = fact["s"]
        sure = 0.6 if fact.groupdict().get("maybe") else 0.9
        for predicate, args in _atoms(fact):
            found.append(
                {
                    "predicate": predicate,
                    "args": args,
                    "negated": bool(fact["no"]),
                    "confidence": sure,
                }
            )
    return {"facts": found, **({"rules": general} if rules else {})}


def plan(prompt: str, question: str) -> dict[str, Any]:
    """Queries of the predicates whose words, and the names that, stand in the question."""
    asked = {word[:4].lower() for word in re.findall(r"\w{3,}", question)}
    known = [(name, _args(args)) for _, name, args in _FACT.findall(marked(prompt, "known") or "")]
    all_names = dict.fromkeys(arg for _, args in known for arg in args)
    names = [arg for arg in all_names if re.search(rf"\b{re.escape(arg)}\b", question, re.I)]
    queries = []
    for line in (marked(prompt, "predicates") or "").splitlines():
        name, arity = re.match(r"(\S+)/(\d+)", line).groups()  # type: ignore[union-attr]
        if not {part[:4] for part in name.lower().split("_") if len(part) > 2} & asked:
            continue
        count = int(arity)
        if len(names) >= count:
            args = names[:count]
        elif not names or all(names[0] not in found[1:] for one, found in known if one == name):
            args = [*names, *("?x", "?y", "?z", "?u")[: count - len(names)]]
        else:
            args = [*("?x", "?y", "?z", "?u")[: count - len(names)], *names]
        queries.append({"atoms": [{"predicate": name, "args": args, "negated": False}]})
    return {"queries": queries}


def answer(facts: str) -> dict[str, Any]:
    """A sentence for each fact."""
    sentences = []
    for number, line in enumerate(facts.splitlines(), 1):
        found = _FACT.match(line)
        if found is None:
            continue
        args = _args(found[3])
        verb = found[2].replace("_", " ")
        verb = verb if verb.split()[0].endswith("s") else f"is {verb}"
        said = (
            f"{args[0]} {'does not ' if found[1] else ''}{verb} {' '.join(args[1:])}".strip() + "."
        )
        sentences.append({"text": said, "facts": [number]})
    return {"sentences": sentences, "confidence": 0.95}


def _atoms(fact: re.Match[str]) -> list[tuple[str, list[str]]]:
    if "n" in fact.groupdict():
        return [
            (f"{fact['n']}_of", [fact["s"], fact["o"]])
            if fact["o"]
            else ("is_a", [fact["s"], fact["n"]])
        ]
    verb = fact["v"].split()
    first = verb[0] if verb[0].endswith("s") else verb[0] + "s"
    return [
        ("_".join([first, *verb[1:]]), [fact["s"], thing])
        for thing in re.split(r" and |, ", fact["o"])
    ]


def _rule(found: re.Match[str]) -> dict[str, Any]:
    def atom(verb: str, thing: str) -> dict[str, Any]:
        return {"predicate": verb.replace(" ", "_"), "args": ["?x", thing], "negated": False}

    return {
        "head": atom(found["w"], found["p"]),
        "body": [atom(found["v"], found["o"])],
        "confidence": 0.8,
    }


def _args(text: str) -> list[str]:
    return [
        quoted or bare.strip()
        for quoted, bare in re.findall(r'"([^"]*)"|([^,"]+)', text)
        if quoted or bare.strip()
    ]
