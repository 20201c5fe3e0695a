"""Comments that suppress warnings: `% kb: ignore K105` on a line or above it, `% kb: ignore-file
K105` for a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, product

from kbplanner.check.codes import code_of
from kbplanner.check.findings import Findings
from kbplanner.pacing import YieldNow, let_go, may_have, paced
from kbplanner.syntax.statements import TextSpan
from kbtypes.results import Finding

WARNING = "warning"

_SIGN = re.compile(r"kb:\s{0,9}ignore")
_TOKEN = re.compile(
    r"""(?P<line>\n)|(?P<block>/\*)"""
    r"""|(?P<plain>[^\n/%#"']{1,4096})"""
    r"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'|["'][^\n]*"""
    r"""|(?P<comment>(?:%|\#|//)[ \t]*kb:[ \t]*ignore(?P<file>-file)?\b(?P<codes>[^\n]*))"""
    r"""|(?P<other>(?:%|\#|//)[^\n]*)|/"""
)
"""Each character is read once: an open quote takes its line, as in the scanner."""

_TOKENS_PER_YIELD = 100
_FINDINGS_PER_YIELD = 500

MAX_CODES = 50
"""Maximum number of warnings that a comment names."""

_CODE = re.compile(r"[\w-]{1,100}")


Where = tuple[int | None, str]
"""A line, None for all lines, and a code."""


@dataclass(slots=True)
class _Suppression:
    """A comment that suppresses codes on some lines, None for all, and which it has met."""

    span: TextSpan
    lines: tuple[int | None, ...]
    codes: list[str]
    met: set[str] = field(default_factory=set)


def without_suppressed(text: str, findings: Findings, yield_now: YieldNow) -> list[Finding]:
    """Return the findings of a text by position, without the warnings that its comments suppress.

    A comment that names no warning, or one that is not found, is a finding of its own. Errors are
    never suppressed. `yield_now` is called about once a millisecond.
    """
    if not may_have(text, _SIGN, len("kb:         ignore"), yield_now):
        return findings.in_order(yield_now)
    places: dict[Where, _Suppression] = {}
    suppressions = []
    for each in _suppressions(text, findings, yield_now):
        suppressions.append(each)
        for where in product(each.lines, each.codes):
            places.setdefault(where, each)
    for finding in paced(findings.in_order(yield_now), yield_now, _FINDINGS_PER_YIELD):
        takes = places.get((finding.line, finding.code)) or places.get((None, finding.code))
        if takes is not None and finding.severity == WARNING:
            takes.met.add(finding.code)
            findings.remove(finding)
    for each in paced(suppressions, yield_now, _TOKENS_PER_YIELD):
        for code in each.codes:
            if code not in each.met:
                message = f"no {code} is found here, so nothing to ignore"
                findings.add("unused-suppression", each.span, message, "remove the comment")
    let_go(places, yield_now)
    let_go(suppressions, yield_now)
    return findings.in_order(yield_now)


def _suppressions(text: str, findings: Findings, yield_now: YieldNow) -> Iterator[_Suppression]:
    """Yield the comments of a text that suppress warnings; report words that are no warnings."""
    line, line_start, has_code = 1, 0, False
    for match in paced(_tokens(text), yield_now, _TOKENS_PER_YIELD):
        if match["line"]:
            line, line_start, has_code = line + 1, match.end(), False
        elif match["plain"]:
            has_code = has_code or not match["plain"].isspace()
        elif match["block"]:
            block_end = _block_end(text, match.end())
            if newlines := text.count("\n", match.end(), block_end):
                line, has_code = line + newlines, False
                line_start = text.rindex("\n", match.end(), block_end) + 1
        elif match["comment"]:
            start = match.start() - line_start + 1
            span = TextSpan(line, start, line, start + len(match["comment"].rstrip()))
            lines: tuple[int | None, ...] = (line,) if has_code else (line, line + 1)
            codes = list(_codes(match["codes"], span, findings))
            yield _Suppression(span, (None,) if match["file"] else lines, codes)
        elif not match["other"]:
            has_code = True


def _codes(text: str, span: TextSpan, findings: Findings) -> Iterator[str]:
    """Yield the codes that a comment names."""
    hint = "name codes such as K105"
    words = [match[0] for match in islice(_CODE.finditer(text), MAX_CODES + 1)]
    if len(words) > MAX_CODES:
        message = f"the comment names more than {MAX_CODES} warnings; the others are not ignored"
        findings.add("unused-suppression", span, message, "write several comments")
        words.pop()
    if not words:
        message = "the comment names no warning to ignore"
        findings.add("unused-suppression", span, message, hint)
    for word in dict.fromkeys(words):
        known = code_of(word)
        if known is None or known.severity != WARNING:
            findings.add("unused-suppression", span, f"there is no warning {word}", hint)
        else:
            yield known.code


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """Yield the parts of a text in order; of a block comment its beginning."""
    position = 1 if text.startswith("\ufeff") else 0
    while match := _TOKEN.match(text, position):
        yield match
        position = _block_end(text, match.end()) if match["block"] else match.end()


def _block_end(text: str, start: int) -> int:
    end = text.find("*/", start)
    return len(text) if end < 0 else end + 2
