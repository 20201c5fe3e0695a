"""Options of queries: the methods of a knowledge base that share `AnswerOptions` apply them
alike.
"""

import pytest

import kbcore
from kbcore.errors import InvalidInput
from kbcore.proofs.shapes import ProofOptions
from kbcore.reason.options import AnswerOptions
from kbplanner.syntax.parser import parse_goal

LITERAL = parse_goal("number(?n)").body[0]
VARIABLES = list(LITERAL.variables())


@pytest.fixture
def kb():
    with kbcore.open_kb() as handle:
        for scope in (None, "s"):
            handle.tell_many("number", [[f"{scope}{n}"] for n in range(4)], scope=scope)
        yield handle.kb


@pytest.mark.parametrize("scope", [None, "s", "*"])
@pytest.mark.parametrize("limit", [None, 0, 1, 3, 6, 99])
@pytest.mark.parametrize("offset", [0, 1, 4, 5, 99])
def test_every_form_of_answers_has_the_same_page(kb, scope, limit, offset):
    options = AnswerOptions(scope, limit, offset)
    expected = [tuple(row["args"]) for row in kb.infer(LITERAL, options)]
    assert kb.tuples(LITERAL.atom, options) == expected
    assert kb.bindings((LITERAL,), VARIABLES, options) == expected
    assert [tuple(proof["result"]["args"]) for proof in kb.prove(LITERAL, options)] == expected


@pytest.mark.parametrize("read", ["tuples", "bindings"])
def test_tuples_as_of_a_point_in_time(kb, read):
    options = AnswerOptions(as_of=0)
    assert kb.infer(LITERAL, options) == []
    if read == "tuples":
        assert kb.tuples(LITERAL.atom, options) == []
    else:
        assert kb.bindings((LITERAL,), VARIABLES, options) == []


def test_undefined_answers_have_no_proof(kb):
    options = AnswerOptions(include_undefined=True)
    for call in (
        lambda: kb.prove(LITERAL, options),
        lambda: kb.prove_json(LITERAL, list, options, ProofOptions("dag")),
        lambda: kb.explain((LITERAL,), options),
    ):
        with pytest.raises(InvalidInput, match="undefined answers have no proof"):
            call()
