"""An agent with memory over ten turns: it stores what it hears, answers with proofs, and forgets.

    python docs/examples/agent/run.py

Without a language model a stand-in that knows a few English patterns reads and words the sentences.
For a real one, set LLM_PROVIDER and LLM_MODEL; the agent stays as it is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from kbcore import Completion, Config, Fact, KnowledgeBase, open_kb

HERE = Path(__file__).resolve().parent

TURNS = (
    "Shop depends on Payments.",
    "Payments depends on Ledger.",
    "Ledger runs on Db1.",
    "Cara owns Ledger.",
    "Which services are affected?",
    "Db1 is down.",
    "Which services are affected?",
    "Who must know about Shop?",
    "Forget that Db1 is down.",
    "Who must know about Shop?",
)


def turn(kb: KnowledgeBase, said: str) -> str:
    """Do what one sentence asks for, and return the reply."""
    if said.endswith("?"):
        reply = kb.synthesize(said)
        return "\n".join(
            [reply.answer, *proof_lines(kb, reply.queries if reply.derivation else [])]
        )
    if said.startswith("Forget that "):
        facts = kb.extract(said.removeprefix("Forget that ")).facts
        lost = sum(kb.retract(fact.predicate, fact.args).cascaded for fact in facts)
        return f"Forgotten: {in_words(facts)} {lost} conclusions no longer hold."
    return f"Stored: {in_words(kb.extract(said, store=True).facts)}"


def in_words(facts: list[Fact]) -> str:
    """Return facts in the rule language."""
    return " ".join(f"{fact.predicate}({', '.join(fact.args)})." for fact in facts) or "nothing."


def proof_lines(kb: KnowledgeBase, queries: list[str]) -> list[str]:
    """Return the proof of the last answer of each query."""
    return [
        line
        for query in queries
        for line in str(kb.explain(query)).strip().split("\n\n")[-1].splitlines()
    ]


class StandIn:
    """A model that reads, plans and words by patterns: the same answer every time."""

    name, model = "stand-in", "patterns-1"

    def complete(self, request):
        prompt = request.messages[-1].text
        marked = dict(re.findall(r"<(\w+)>\n(.*?)\n</\1>", prompt, re.S))
        if "facts" in marked:
            answer = self.word(marked["facts"])
        elif "question" in marked:
            answer = self.plan(marked["question"], marked.get("predicates", ""))
        else:
            answer = self.read(marked["text"])
        return Completion(json.dumps(answer))

    def read(self, text):
        pattern = r"(\w+) (depends on|runs on|owns) (\w+)|(\w+) is (down)"
        facts = [
            {
                "predicate": (relation or state).replace(" ", "_"),
                "args": [subject, object_] if relation else [thing],
                "negated": False,
                "confidence": 0.9,
            }
            for subject, relation, object_, thing, state in re.findall(pattern, text)
        ]
        return {"facts": facts}

    def plan(self, question, predicates):
        names = re.findall(r"\b(?!Who|Which)[A-Z]\w*", question)
        queries = []
        for name, arity in re.findall(r"(\w+)/(\d)", predicates):
            if name.replace("_", " ") in question:
                args = [*("?x", "?y")[: int(arity) - len(names)], *names]
                queries.append({"atoms": [{"predicate": name, "args": args, "negated": False}]})
        return {"queries": queries}

    def word(self, facts):
        lines = re.findall(r"(\d+)\. (\w+)\((.*?)\)", facts)
        words = {"affected": "{0} is affected.", "must_know": "{0} must know about {1}."}
        sentences = [
            {"text": words[name].format(*args.split(", ")), "facts": [int(number)]}
            for number, name, args in lines
            if name in words
        ]
        return {"sentences": sentences, "confidence": 0.95}

    def close(self):
        pass


def main() -> None:
    """Run the conversation."""
    config = Config.from_env()
    has_model = config.llm_provider != "none"
    with open_kb(config=config, llm=None if has_model else StandIn()) as kb:
        kb.load(HERE / "rules.kb")
        for number, said in enumerate(TURNS, 1):
            reply = turn(kb, said).replace("\n", "\n    ")
            print(f"{number:>2}  {said}\n    {reply}")
        window = kb.context(goals=["needs(Shop, ?x)"], max_facts=5)
        print(f"\nIn the next prompt about Shop:\n{window.text}")


if __name__ == "__main__":
    main()
