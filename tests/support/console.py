"""A page of the browser console, and what went wrong on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import httpx

from support.servers import Server

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page, Request

SOURCES = Path(__file__).parents[2] / "server" / "console"
AXE = SOURCES / "node_modules" / "axe-core" / "axe.min.js"
_IS_SETTLED = """() => {
  const main = document.querySelector("main[data-fetching='0']");
  const isSettled = main !== null && main.querySelector("h1, form") !== null
    && ![...main.querySelectorAll("[role=status]")].some((each) => each.textContent.includes(" …"));
  globalThis.settledFrames = isSettled ? (globalThis.settledFrames ?? 0) + 1 : 0;
  return globalThis.settledFrames >= 3;
}"""
"""True once a screen is shown, and three frames in a row no query runs and nothing says that it
loads.
"""

SAMPLE = """
parent(ann, bob). parent(bob, cleo). parent(cleo, dan). likes(bob, tea) [confidence=0.8].
ancestor(?x, ?y) :- parent(?x, ?y).
ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z).
"""


class Console:
    """A page of the console and what went wrong on it."""

    def __init__(self, page: Page, server: Server, tenant: str) -> None:
        self.page = page
        self.server = server
        self.tenant = tenant
        self.base = f"http://{server.address[0]}:{server.address[1]}"
        self.expected_statuses: set[int] = set()
        self._problems: list[str] = []
        page.on("console", self._on_message)
        page.on("pageerror", lambda error: self._problems.append(f"exception: {error}"))
        page.on("request", self._on_request)

    def open(self, screen: str = "", **parameters: str) -> Page:
        """Open a screen of this test's tenant and wait until it has loaded."""
        query = urlencode({"tenant": self.tenant, **parameters})
        self.page.goto(f"{self.base}/console/{screen}?{query}")
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until nothing loads any more."""
        self.page.evaluate("() => { globalThis.settledFrames = 0; }")
        self.page.wait_for_function(_IS_SETTLED)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """Send a request of this test's tenant to the server; return its answer."""
        response = httpx.post(
            f"{self.base}{path}",
            json=body,
            headers={"X-Tenant-ID": self.tenant, **headers},
            timeout=30,
        )
        response.raise_for_status()
        is_json = response.headers["Content-Type"].startswith("application/json")
        return response.json() if is_json else response.text

    def get(self, path: str) -> Any:
        """Return the answer of the server about this test's tenant."""
        response = httpx.get(f"{self.base}{path}", headers={"X-Tenant-ID": self.tenant}, timeout=30)
        response.raise_for_status()
        return response.json()

    def load(self, text: str) -> None:
        """Store a text of facts and rules."""
        self.post("/teach", {"text": text})

    def type_text(self, label: str, text: str) -> None:
        """Replace the text of the editor with this label."""
        editor = self.page.get_by_role("textbox", name=label)
        editor.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(text)

    def run_goal(self, goal: str) -> None:
        """Type a goal in the playground, run it, and wait for its answers."""
        self.type_text("Goal", goal)
        with self.page.expect_response(lambda response: urlsplit(response.url).path == "/ask"):
            self.page.keyboard.press("Control+Enter")

    def violations(self) -> list[str]:
        """Return the violations of accessibility rules that axe finds on the page as it is."""
        self.page.evaluate(AXE.read_text())
        outcome = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{violation['id']}: {node['html']}: {node['failureSummary']}"
            for violation in outcome["violations"]
            for node in violation["nodes"]
        ]

    def problems(self) -> list[str]:
        """Return what the page wrote to its console as errors, raised, or requested elsewhere."""
        return self._problems

    def _on_message(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        if any(f"status of {status}" in message.text for status in self.expected_statuses):
            return
        self._problems.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.base, "blob:")):
            self._problems.append(f"request to {request.url}")


def rows_of(page: Page, label: str) -> list[list[str]]:
    """Return the cells of the rendered rows of a table."""
    table = page.get_by_role("table", name=label)
    return [
        row.get_by_role("cell").all_inner_texts()
        for row in table.locator(".table-body").get_by_role("row").all()
    ]


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
