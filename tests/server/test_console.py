"""The routes of the console."""

from __future__ import annotations

import gzip
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


def test_the_files_of_a_page_are_kept_and_compressed(served: Served):
    """The page names its files with a version, so that a browser never asks for them again."""
    names = re.findall(r'"\./(assets/[^"]+)"', served.client.get("/console/").text)
    assert names
    for name in names:
        plain, packed = (
            served.client.get(f"/console/{name}", {"Accept-Encoding": wish})
            for wish in ("identity", "gzip")
        )
        for response in (plain, packed):
            assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
            assert "Accept-Encoding" in response.headers["Vary"]
        assert "Content-Encoding" not in plain.headers
        assert packed.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(packed.data) == plain.data
        assert packed.headers["ETag"] != plain.headers["ETag"]


@pytest.mark.parametrize("path", ["/console/", "/console/assets/index.js"])
def test_browsers_check_the_page_at_each_load(served: Served, path: str):
    first = served.client.get(path)
    assert first.headers["Cache-Control"] == "no-cache"
    again = served.client.get(path, {"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


def test_files_of_another_version_are_not_sent(served: Served):
    """An older page loads itself again, and never mixes the files of two versions."""
    error_of(served.client.get("/console/assets/0123456789abcdef/index.js"), 404, "NOT_FOUND")


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
