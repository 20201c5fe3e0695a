"""Tokenizers of plugins: token counts of windows, and invalid tokenizers."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from support.runtimes import BASE

import kbcore
from kbcore.config import Config
from kbcore.context.request import WindowRequest
from kbcore.errors import ConfigError, PluginFailed
from kbcore.node.opening import open_runtime
from kbcore.plug.conformance.tokenizer import TokenizerConformance
from kbcore.state.facts import Fact
from kbplanner.syntax.parser import parse_rule
from kbtypes.windows import Bucket


class Letters:
    """Every character is a token, and every line costs as many again as there are lines."""

    name = "letters"

    def count(self, text):
        return len(text) + text.count("\n") ** 2


class TestLetters(TokenizerConformance):
    def make_tokenizer(self):
        return Letters()


class Broken:
    name = "broken"

    def __init__(self, result=None):
        self.result = result

    def count(self, text):
        if self.result is None:
            raise KeyError(text)
        return self.result


@contextmanager
def opened(tokenizer, name=None):
    class Plugin:
        @kbcore.hookimpl
        def kb_tokenizers(self):
            return {tokenizer.name: lambda config: tokenizer}

    with open_runtime(
        replace(BASE, storage_backend="memory", tokenizer=name or tokenizer.name),
        plugins=[Plugin()],
    ) as node:
        kb = node.knowledge_base()
        kb.assert_facts([Fact("p", (f"{number:03}",)) for number in range(100)])
        kb.assert_rules([parse_rule("q(?x) :- p(?x).")])
        yield kb


@pytest.mark.parametrize("text_format", ["structured", "natural", "facts"])
@pytest.mark.parametrize("with_rules", [True, False])
def test_a_window_is_counted_with_the_tokenizer(text_format, with_rules):
    buckets = (Bucket("all", ("p",), 1.0),)
    with opened(Letters()) as kb:
        found = kb.context(
            WindowRequest(
                max_tokens=200,
                format=text_format,
                include_rules=with_rules,
                buckets=buckets,
                explain=True,
            )
        )
    assert 0 < found.tokens <= 200
    assert found.tokens == Letters().count(found.text)
    assert found.buckets["all"].facts_included == len(found.entries) > 0
    assert found.cut["reasons"]["maxTokens"] > 0


@pytest.mark.parametrize(
    ("result", "said"), [(None, "KeyError"), (-1, "-1"), ("7", "'7'"), (True, "True")]
)
def test_a_broken_tokenizer_is_named(result, said):
    with (
        opened(Broken(result)) as kb,
        pytest.raises(PluginFailed, match=f"tokenizer broken.*{said}"),
    ):
        kb.context(WindowRequest(max_tokens=50))


def test_a_tokenizer_that_does_not_exist():
    with pytest.raises(ConfigError, match=r"TOKENIZER='mine'.*letters"), opened(Letters(), "mine"):
        pytest.fail("opened")
    assert Config().tokenizer == "none"
