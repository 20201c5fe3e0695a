"""The documentation site: it builds without warnings, has every page, and loads nothing from
elsewhere.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]


def pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from pages(target)


def test_every_page_is_in_the_navigation_once():
    listed = list(pages(SETTINGS["nav"]))
    stored = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(stored)


def test_titles_in_the_navigation_are_those_of_the_pages():
    def titles(entries: list[Any]) -> Iterator[tuple[str, str]]:
        for entry in entries:
            for title, target in entry.items():
                if isinstance(target, str):
                    yield title, target
                else:
                    yield from titles(target)

    for title, page in titles(SETTINGS["nav"]):
        text = (ROOT / "docs" / page).read_text("utf-8")
        assert title == "Start" or f"# {title}\n" in text, page


class Resources(HTMLParser):
    """Collects the addresses that a browser loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "src" in values:
            self.addresses.append(values["src"])
        if tag == "link" and values.get("rel") not in ("next", "prev", "canonical"):
            self.addresses.append(values.get("href", ""))


def test_pages_load_nothing_from_elsewhere(site: Path):
    checked = 0
    for path in site.rglob("*.html"):
        parser = Resources()
        parser.feed(path.read_text("utf-8"))
        away = [each for each in parser.addresses if re.match(r"(https?:)?//", each)]
        assert away == [], path
        checked += len(parser.addresses)
    assert checked > 3 * len(list(pages(SETTINGS["nav"])))
    for path in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", path.read_text("utf-8")), path
        assert "@import" not in path.read_text("utf-8"), path


def test_the_search_index_has_the_pages(site: Path):
    items = json.loads((site / "search.json").read_text("utf-8"))["items"]
    places = {item["location"].partition("#")[0] for item in items}
    assert {"reference/rule-language/", "how-to/use-the-shell/"} <= places
    assert "" not in places, "the first page has only links to the pages that a search finds"


def search(site: Path, questions: Iterable[str]) -> dict[str, list[str]]:
    """Return the addresses of the hits of each question, by the search program of the site."""
    node = shutil.which("node")
    assert node, "node is not installed; on Debian or Ubuntu run: apt-get install nodejs"
    program = Path(__file__).with_name("search.mjs")
    asked = list(questions)
    done = subprocess.run(
        [node, program, site, *asked], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(asked, map(json.loads, done.stdout.splitlines()), strict=True))


MEMORY = "tutorial/agent-memory/"
SECTIONS = {
    "agent memory": MEMORY,
    "store chat messages": f"{MEMORY}#store-chat-messages",
    "many users": f"{MEMORY}#many-users",
    "update a changed value": f"{MEMORY}#update-a-fact-whose-value-changed",
    "give a model a memory": f"{MEMORY}#give-a-model-a-memory",
    "what to use when": f"{MEMORY}#what-to-use-when",
    "semantic search": "how-to/use-a-sentence-model/",
}
"""Words that people search for, and the section that must be the first or second hit."""

TASKS = tomllib.loads(Path(__file__).with_name("tasks.toml").read_text("utf-8"))["task"]


def test_a_search_finds_the_section(site: Path):
    hits_of = search(site, SECTIONS)
    assert {words: hits for words, hits in hits_of.items() if SECTIONS[words] not in hits[:2]} == {}


def test_a_search_finds_the_page_of_an_everyday_task_in_three_wordings(site: Path):
    assert len(TASKS) >= 10
    hits_of = search(site, [words for task in TASKS for words in task["words"]])
    missed = {}
    for task in TASKS:
        assert len(task["words"]) >= 3
        accepted = {task["page"], *task.get("accept", [])}
        assert all((site / page / "index.html").is_file() for page in accepted)
        for words in task["words"]:
            if accepted.isdisjoint(hit.partition("#")[0] for hit in hits_of[words][:2]):
                missed[words] = hits_of[words]
    assert missed == {}


def test_words_of_questions_do_not_change_the_hits(site: Path):
    """A hit has all words of a search in one section, except for question words."""
    asked, plain = "How do I restore from a backup?", "restore backup"
    hits_of = search(site, [asked, plain, "recursion through not"])
    assert hits_of[asked] == hits_of[plain] != []
    assert hits_of["recursion through not"] != []


class Anchors(HTMLParser):
    """Collects the ids of a page and the targets of its links."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.add(values.get("id", ""))
        if tag == "a":
            self.links.append(values.get("href", ""))


def anchors(page: Path) -> Anchors:
    parser = Anchors()
    parser.feed(page.read_text("utf-8"))
    return parser


def test_addresses_of_earlier_pages_lead_to_what_replaced_them(site: Path):
    moved = SETTINGS["plugins"]["redirects"]["redirect_maps"]
    for old, new in moved.items():
        page, _, heading = old.partition("#")
        target, _, anchor = new.partition("#")
        assert not (ROOT / "docs" / page).exists()
        assert page in moved, f"{page} itself leads nowhere"
        source = page.removesuffix(".md").removesuffix("/index")
        place = posixpath.relpath(target.removesuffix(".md"), source)
        assert anchor in anchors(site / target.removesuffix(".md") / "index.html").ids, new
        folder = site / source
        relative = f"{place}/#{anchor}"
        if heading:
            sent = f'"#{heading}":"{relative}"'
            assert sent in (folder / "index.html").read_text("utf-8"), old
        else:
            assert anchors(folder / "index.html").links == [relative], old


def test_rules_are_highlighted(site: Path):
    page = (site / "reference" / "rule-language" / "index.html").read_text("utf-8")
    assert re.search(
        r'class="language-kb highlight".*?<span class="[a-z]+">ancestor</span>', page, re.S
    )


def test_the_list_for_language_models_has_the_pages(site: Path):
    text = (site / "llms.txt").read_text("utf-8")
    links = re.findall(r"^- \[.+\]\((.+)/\): .+$", text, re.M)
    addresses = {page.removesuffix(".md").removesuffix("/index") for page in pages(SETTINGS["nav"])}
    assert set(links) == addresses - {"index"}
    assert all((site / link / "index.html").is_file() for link in links)
