"""The signatures of the clients: what programs call keeps its names, defaults and results."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

from kbcore_client._async import knowledge_base as async_knowledge_base
from kbcore_client._async import operations as async_operations
from kbcore_client._async import user_memory as async_user_memory
from kbcore_client._sync import knowledge_base, operations, user_memory

PUBLISHED = Path(__file__).with_name("signatures.txt")
CLASSES = (
    knowledge_base.KnowledgeBase,
    operations.Administration,
    user_memory.UserMemory,
)
ASYNC_CLASSES = (
    async_knowledge_base.AsyncKnowledgeBase,
    async_operations.AsyncAdministration,
    async_user_memory.AsyncUserMemory,
)


def signatures_of(cls: type) -> list[str]:
    """The public methods of a class with their arguments, defaults and results."""
    lines = []
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if name.startswith("_"):
            continue
        signature = inspect.signature(method)
        plain = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
        lines.append(f"{cls.__name__}.{name}{signature.replace(parameters=plain)}")
    return lines


def test_the_signatures_are_those_that_are_published() -> None:
    lines = [line for cls in CLASSES for line in signatures_of(cls)]
    text = "\n".join(lines) + "\n"
    if os.environ.get("KB_GOLDEN") == "write":
        PUBLISHED.write_text(text, encoding="utf-8")
    assert text == PUBLISHED.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("cls", "async_cls"),
    list(zip(CLASSES, ASYNC_CLASSES, strict=True)),
    ids=lambda cls: cls.__name__,
)
def test_both_clients_have_the_same_signatures(cls: type, async_cls: type) -> None:
    asynchronous = [line.replace("Async", "") for line in signatures_of(async_cls)]
    assert [line.replace("aclose", "close") for line in asynchronous if "aclose" not in line] == [
        line for line in signatures_of(cls) if ".close" not in line
    ]


@pytest.mark.parametrize("cls", [*CLASSES, *ASYNC_CLASSES], ids=lambda cls: cls.__name__)
def test_every_method_says_what_it_does(cls: type) -> None:
    methods = inspect.getmembers(cls, inspect.isfunction)
    assert all(method.__doc__ for name, method in methods if not name.startswith("_"))
