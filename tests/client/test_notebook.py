"""The magics of notebooks, their completion, what results look like, and the notebook of the
documentation.
"""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from kbcore_client import connect
from kbtypes.markup import Report

if not all(map(find_spec, ("IPython", "ipykernel", "nbclient", "pandas"))):
    if os.environ.get("KB_TEST_EXTRAS") == "required":
        raise ModuleNotFoundError("these tests need IPython, ipykernel, nbclient and pandas")
    pytest.skip("IPython is not installed", allow_module_level=True)

import nbformat
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient

TOUR = Path(__file__).parents[2] / "docs" / "examples" / "tour.ipynb"
CELL = """%%kb
parent(ann, bob). parent(bob, cid).
grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).
?- grandparent(?a, ?b).
?- parent(ann, "<b>").
"""


@pytest.fixture(scope="module")
def loaded():
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "kbcore")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(loaded):
    """A shell with an empty knowledge base in `kb`."""
    loaded.reset()
    with connect("memory:") as kb:
        loaded.user_ns["kb"] = kb
        yield loaded


def run(shell, text):
    return shell.run_cell(text).result


def test_a_cell_stores_and_answers(shell):
    html = run(shell, CELL)._repr_html_()
    assert html.startswith("<p>2 facts and 1 rule stored</p>")
    assert "<caption>grandparent(?a, ?b): 1 answer</caption>" in html
    assert "<th>a</th><th>b</th>" in html
    assert "<td>ann</td><td>cid</td>" in html
    assert "<p>parent(ann, &quot;&lt;b&gt;&quot;): no</p>" in html
    assert run(shell, "%kb grandparent(ann, ?who)") == [("ann", "cid")]
    assert run(shell, "%kb ?- grandparent(ann, ?who).") == [("ann", "cid")]
    assert "1 fact retracted" not in html


def test_a_query_without_answers_shows_its_variables(shell):
    html = run(shell, "%%kb\np(a).\n?- p(?x), ?x != a.\n")._repr_html_()
    assert "<th>x</th>" in html
    assert "0 answers" in html


def test_the_report_is_the_text_of_a_result_in_a_terminal(shell):
    formatted, _ = shell.display_formatter.format(run(shell, CELL))
    assert "grandparent(ann, cid)" in formatted["text/plain"]
    assert "Executed(" not in formatted["text/plain"]


def test_a_cell_can_name_another_variable(shell):
    with connect("memory:", tenant="other") as other:
        shell.user_ns["other"] = other
        run(shell, "%%kb other\nq(1).\n")
        assert other.query("q(?x)") == [("1",)]
        assert not shell.user_ns["kb"].query("q(?x)")


def test_without_a_variable_there_is_one_in_memory(shell):
    del shell.user_ns["kb"]
    run(shell, "%%kb\nq(1).\n")
    assert shell.user_ns["kb"].query("q(?x)") == [("1",)]
    shell.user_ns["kb"].close()


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%kb\np(a).\nq(b :- p(a).\n", "line 2, column 2"),
        ("%kb p(?x", "goal: line 1, column 2"),
        ("%kb", "a goal is missing"),
        ("%%kb nothing\np(a).\n", 'nothing = connect("memory:")'),
        ("%%kb number\np(a).\n", "number is of type int; it must be a KnowledgeBase"),
    ],
)
def test_a_mistake_has_a_message_and_no_traceback(shell, capsys, cell, message):
    shell.user_ns["number"] = 1
    outcome = shell.run_cell(cell)
    assert not outcome.success
    printed = "".join(capsys.readouterr())
    assert message in printed
    assert "Traceback" not in printed
    assert not shell.user_ns["kb"].query("p(?x)")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("%%kb\nold(?person) :- gra", ["grandparent"]),
        ("%kb par", ["parent"]),
        ("%%kb kb\nfresh(a).\nx(?y) :- fre", ["fresh"]),
        ("%%kb\np(?old). q(?new, ?a) :- r(?", ["?a", "?new"]),
        ("%%kb\nq(?new) :- r(?n", ["?new"]),
    ],
)
def test_completion(shell, text, found):
    run(shell, CELL)
    with provisionalcompleter():
        names = [each.text for each in shell.Completer.completions(text, len(text))]
    assert names == found


def test_other_cells_are_completed_as_before(shell):
    with provisionalcompleter():
        names = {each.text for each in shell.Completer.completions("impo", 4)}
    assert "import" in names


def test_results_as_html(kb):
    """Every result is static HTML in which texts from the knowledge base are escaped."""
    kb.execute('parent(ann, "<i>"). old(?x) :- parent(?x, _).')
    window = kb.context(query="ann", session="s1")
    assert "parent(ann, &quot;&lt;i&gt;&quot;)" in window._repr_html_()
    kb.tell("parent(bob, ann)")
    kb.retract('parent(ann, "<i>")')
    diff = kb.context_diff("s1", query="ann")._repr_html_()
    assert "1 added, 1 removed" in diff
    assert "+ parent(bob, ann)" in diff
    assert "− parent(ann, &quot;&lt;i&gt;&quot;)  (" in diff
    preview = kb.preview(forget="parent(bob, ann)")._repr_html_()
    assert "2 false" in preview
    assert "− old(bob)" in preview
    kb.fork("s")
    kb.tell("parent(bob, ann)", confidence=0.5, scope="s")
    kb.tell("parent(cid, ann)", scope="s")
    scopes = kb.diff(None, "s")._repr_html_()
    assert "1 added, 0 removed, 1 modified" in scopes
    assert scopes.count("parent(bob, ann)") == 2
    plan = kb.plan("old(?x)")
    assert isinstance(plan, Report)
    assert plan._repr_html_().startswith("<pre>goal old(?x)")
    explained = kb.explain("old(?x)")._repr_html_()
    assert "<pre>old(bob)" in explained


def texts_of(notebook):
    """Return the printed texts and the HTML of each cell."""
    return [
        [
            output.get("text") or output["data"].get("text/html") or output["data"]["text/plain"]
            for output in cell.get("outputs", ())
        ]
        for cell in notebook.cells
    ]


def test_the_notebook_of_the_documentation_runs():
    """Its stored outputs are those of today: store them again with `jupyter nbconvert --execute
    --inplace`.
    """
    notebook = nbformat.read(TOUR, 4)
    stored = texts_of(notebook)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert texts_of(notebook) == stored
