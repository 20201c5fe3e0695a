"""Base class of the conformance tests that authors of plugins subclass."""

from __future__ import annotations

from abc import ABC
from difflib import get_close_matches
from typing import Any, ClassVar

FORMER = {"make_store": ("open_store",), "make_strategy": ("strategy",)}
"""Names that factory methods had in earlier versions."""


class Conformance(ABC):  # noqa: B024 - the abstract method is that of each protocol
    """Tests of one protocol.

    A subclass implements the method that `factory` names, which makes the object under test.

    A subclass without that method is refused when it is defined: pytest would skip the abstract
    class and report success. `class Shared(LogStoreConformance, abstract=True)` defines a class
    that others derive from.
    """

    factory: ClassVar[str] = ""

    def __init_subclass__(cls, *, abstract: bool = False, **more: Any) -> None:
        """Refuse a subclass without the factory method, unless it is `abstract`.

        Raises TypeError.
        """
        super().__init_subclass__(**more)
        method = getattr(cls, cls.factory, None)
        if abstract or (callable(method) and not getattr(method, "__isabstractmethod__", False)):
            return
        message = f"{cls.__name__} must define the method {cls.factory}, which makes the object under test"
        misnamed = _misnamed(cls)
        if misnamed:
            message += f"; rename {misnamed} to {cls.factory}"
        raise TypeError(
            f"{message} (a class for others to derive from is declared with abstract=True)"
        )


def _misnamed(cls: type[Conformance]) -> str | None:
    """Return the method that was probably meant as the factory, None where nothing looks like
    it.
    """
    own = [
        name
        for name, value in vars(cls).items()
        if callable(value) and not name.startswith(("_", "test_"))
    ]
    former = [name for name in own if name in FORMER.get(cls.factory, ())]
    return next(
        iter(
            former
            or get_close_matches(cls.factory, own, 1)
            or [n for n in own if n.startswith("make")]
        ),
        None,
    )
