"""The routes of the console."""

from __future__ import annotations

import re

import pytest
from support.http import Served, error_of


@pytest.mark.parametrize("path", ["/console/", "/console/playground", "/console/window"])
def test_every_screen_is_the_same_page(served: Served, path: str):
    page = served.client.get(path)
    assert (page.status_code, page.content_type) == (200, "text/html; charset=utf-8")
    assert page.headers["Content-Security-Policy"].startswith("default-src 'self'")
    assert page.data == served.client.get("/console/").data
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|style=", page.text)


def test_the_page_names_files_that_exist(served: Served):
    names = re.findall(r'(?:src|href)="\./([^"]+)"', served.client.get("/console/").text)
    assert len(names) >= 3
    for name in names:
        assert served.client.get(f"/console/{name}").status_code == 200


def test_browsers_check_files_at_each_load(served: Served):
    first = served.client.get("/console/assets/index.js")
    assert first.headers["Cache-Control"] == "no-cache"
    again = served.client.get("/console/assets/index.js", {"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


@pytest.mark.parametrize(
    "path",
    ["/console/assets/other.js", "/console/..%2fapp.py", "/console/a/b", "/console/sources.sha256"],
)
def test_other_files_are_not_sent(served: Served, path: str):
    error_of(served.client.get(path), 404, "NOT_FOUND")


def test_the_folder_redirects_to_the_page(served: Served):
    response = served.client.get("/console")
    assert (response.status_code, response.headers["Location"]) == (308, "/console/")


def test_the_start_page_links_to_the_console(served: Served):
    page = served.client.get("/", {"Accept": "text/html"})
    assert '<a href="/console/">' in page.text
