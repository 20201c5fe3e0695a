"""CSV files: header rows, ragged rows, byte order marks."""

from __future__ import annotations

import pytest

import kbcore
from kbcore.errors import InvalidInput
from kbcore.language.csv_rows import BATCH_ROWS, csv_batches


@pytest.fixture
def load(tmp_path):
    """Load a text as a CSV file in a new knowledge base; the facts, and the first row if it was
    skipped.
    """

    def loaded(text, **options):
        path = tmp_path / "people.csv"
        path.write_text(text, encoding="utf-8")
        with kbcore.open_kb() as kb:
            outcome = kb.load(path, **options)
            predicates = [
                (row["predicate"], row["arity"]) for row in kb.kb.predicates()["predicates"]
            ]
            variables = {name: [f"?v{at}" for at in range(arity)] for name, arity in predicates}
            facts = {name: list(kb.query(name, args)) for name, args in variables.items()}
            return (
                facts,
                outcome.header.cells if outcome.header and outcome.header.skipped else None,
            )

    return loaded


@pytest.mark.parametrize(
    "text",
    [
        "name,age\nann,41\nbob,7\n",
        "name,joined\nann,2024-01-31\nbob,2024-02-01T10:00Z\n",
        "name,age\nann,\nbob,7\n",
        "from,to\nann,bob\n",
        "id,name\nx1,ann\n",
        "arg0,arg1\nann,bob\n",
    ],
)
def test_auto_skips_a_row_that_can_only_be_a_header(load, text):
    facts, header = load(text, predicate="p")
    assert header == tuple(text.split("\n")[0].split(","))
    assert len(facts["p"]) == text.count("\n") - 1


@pytest.mark.parametrize(
    "text",
    [
        "parent,child\nann,bob\n",  # two names like those below
        "start,end\n1,2\nend,7\n",  # a name that occurs below is a constant
        "root,1\n1,2\n1,3\n",  # a number is no column name
        "name,name\nann,1\n",  # column names differ
        ",age\nann,1\n",
        "ann,bob\n",
        "from,to\nfrom,b\n",
    ],
)
def test_auto_loads_a_first_row_in_doubt_as_a_fact(load, text):
    facts, header = load(text, predicate="p")
    assert header is None
    assert len(facts["p"]) == text.count("\n")


def test_the_first_cell_names_the_predicate(load):
    facts, header = load("predicate,first,second\nlikes,ann,tea\nage,ann,41\n")
    assert header == ("predicate", "first", "second")
    assert facts == {"likes": [("ann", "tea")], "age": [("ann", "41")]}
    # Here rows below are facts of a predicate of that name.
    assert load("relation,ann,bob\nrelation,bob,cid\n")[1] is None
    assert load("name,ann,41\nage,ann,41\n")[1] is None


def test_header_true_and_false_are_respected(load):
    assert load("parent,child\nann,bob\n", predicate="p", header="yes") == (
        {"p": [("ann", "bob")]},
        ("parent", "child"),
    )
    assert load("name,age\nann,41\n", predicate="p", header="no")[0] == {
        "p": [("ann", "41"), ("name", "age")]
    }
    assert load("\n\na,b\n", predicate="p", header="yes") == ({}, ("a", "b"))
    assert load("", predicate="p", header="yes") == ({}, None)
    with pytest.raises(InvalidInput, match='header: must be one of auto, yes, no, not "maybe"'):
        load("", header="maybe")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n\nc,d,e\n", {"predicate": "p"}, "people.csv: line 3: 3 arguments, but line 1 has 2"),
        ("a,b\nc\n", {"predicate": "p"}, "people.csv: line 2: 1 argument, but line 1 has 2"),
        ("q,a\np,a,b\nq,b\np,c\n", {}, 'people.csv: line 4: 1 argument, but line 2 of "p" has 2'),
        ("a,b,c\nd,e\nf,g\n", {"predicate": "p", "header": "yes"}, ""),
        (
            "a,b\n" * BATCH_ROWS + "c\n",
            {"predicate": "p"},
            f"people.csv: line {BATCH_ROWS + 1}: 1 argument, but line 1 has 2",
        ),
        (
            "p,a,b\n" * BATCH_ROWS + "p,c\n",
            {},
            f'people.csv: line {BATCH_ROWS + 1}: 1 argument, but line 1 of "p" has 2',
        ),
        ('a,b\nc\nd,"\n', {"predicate": "p"}, "people.csv: line 2: 1 argument, but line 1 has 2"),
    ],
)
def test_a_ragged_row_is_an_error_with_file_and_line(load, text, options, message):
    if not message:  # the header may have any length
        assert load(text, **options)[0] == {"p": [("d", "e"), ("f", "g")]}
        return
    with pytest.raises(InvalidInput) as caught:
        load(text, **options)
    assert caught.value.message == message
    assert caught.value.details["file"] == "people.csv"


def test_a_byte_order_mark_is_not_part_of_a_constant(load):
    assert load('\ufeff"a,1",b\n', predicate="p")[0] == {"p": [("a,1", "b")]}


@pytest.mark.parametrize("delimiter", [";", "\t", ","])
def test_the_delimiter_is_recognized(load, delimiter):
    rows = [("name", "amount"), ("ann", "1.5"), ("bob", "20")]
    text = "".join(f"{delimiter.join(row)}\n" for row in rows)
    facts, header = load(text, predicate="p")
    assert header == ("name", "amount")
    assert facts == {"p": [("ann", "1.5"), ("bob", "20")]}


def test_a_sign_inside_cells_is_no_delimiter(load):
    assert load("ann,a;b\nbob,c;d\n", predicate="p")[0] == {"p": [("ann", "a;b"), ("bob", "c;d")]}
    assert load("name;amount\nann;1,5\n", predicate="p", header="yes")[0] == {"p": [("ann", "1,5")]}
    assert load('"a;b";1\n', predicate="p")[0] == {"p": [("a;b", "1")]}
    assert load("ann;1,5\n", predicate="p")[0] == {"p": [("ann", "1,5")]}
    assert load('"Low, Ann";1,5\n', predicate="p")[0] == {"p": [("Low, Ann", "1,5")]}
    assert load("1,5\t2,5\n", predicate="p")[0] == {"p": [("1,5", "2,5")]}
    assert load("1,5\n2,6\n", predicate="p")[0] == {"p": [("1", "5"), ("2", "6")]}
    assert load("ann,1;5\n", predicate="p", delimiter="semicolon")[0] == {"p": [("ann,1", "5")]}
    with pytest.raises(InvalidInput, match="delimiter: must be one of auto, comma"):
        load("a,b\n", predicate="p", delimiter="pipe")


def test_a_file_of_tabs(tmp_path):
    (tmp_path / "a.tsv").write_text("likes\tann\ttea, green\nage\tann\t41\n", encoding="utf-8")
    with kbcore.open_kb() as kb:
        kb.load(tmp_path / "a.tsv")
        assert list(kb.query("likes", ["?x", "?y"])) == [("ann", "tea, green")]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('p,a\np,"b\np,c\np,d\n', 2),
        ('p,a\np,"b ""x"" \nmore ""y"" \np,d\n', 2),
        ('p,"a\nb"\np,"c\n', 3),
        ('p,a\np,"' + "b\n" * 200_000, 2),
    ],
)
def test_quotes_that_are_never_closed(load, text, line):
    with pytest.raises(
        InvalidInput, match=f"line {line}: the quotes that open here are never closed"
    ):
        load(text)


def test_names_of_columns_with_signs(load):
    facts, header = load("Name,Price ($),km/h\nann,1.5,30\n", predicate="p")
    assert header == ("Name", "Price ($)", "km/h")
    assert facts == {"p": [("ann", "1.5", "30")]}


def test_a_cell_that_is_too_long_is_an_error_of_its_line() -> None:
    lines = ["p,a\n", "p," + "x" * 200_000 + "\n"]
    ((batch, error),) = csv_batches(lines, "no", None)
    assert batch.rows == [["p", "a"]]
    assert error is not None
    assert error.line == 2
