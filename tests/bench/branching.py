"""What-if: whole scopes forked, compared and merged through the knowledge base, at two sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from measure import Effort, Sample, median_of
from table import Row

from kbcore.config import Config
from kbcore.node.opening import open_runtime
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.facts import FactRows

LINEAR = 2.0
"""What a fact of the larger scope may cost beside one of the smaller: the smaller one fits the
caches.
"""


def branching(effort: Effort, peers: Mapping[str, object]) -> Iterator[Row]:
    """Fork; diff of equal scopes; merge without conflicts, and with only conflicts."""
    sizes = [effort.pick(100_000, 1000), effort.pick(1_000_000, 5000)]
    small, large = (dict(_measured(size, effort)) for size in sizes)
    for label, seconds in large.items():
        row = Row(label, f"{sizes[1]:,}", sizes[1], seconds)
        times = (seconds.seconds or 0) / sizes[1] / ((small[label].seconds or 1) / sizes[0])
        row.ratio, row.floor = f"{times:.2g} × a fact of {sizes[0]:,}", f"≤ {LINEAR:g} ×"
        row.met = None if effort.small else times <= LINEAR
        yield row


def _measured(size: int, effort: Effort) -> Iterator[tuple[str, Sample]]:
    with open_runtime(Config(storage_backend="memory", query_timeout_ms=600_000)) as node:
        kb = node.knowledge_base()
        for positive, scope in ((True, None), (False, "denied")):
            for start in range(0, size, 100_000):
                names = range(start, min(start + 100_000, size))
                args = [text for n in names for text in (f"n{n}", f"n{n * 7 % size}")]
                kb.assert_rows([FactRows("edge", 2, args, positive, scope)])
        yield (
            "fork of a scope",
            median_of(lambda: kb.fork_scope(None, "copy", overwrite=True).copied, effort),
        )
        yield (
            "diff of equal scopes",
            median_of(lambda: kb.diff_scopes(None, "copy").unchanged, effort),
        )
        yield "merge into an empty scope", median_of(_into(kb, "empty", None), effort)
        yield "fork, and a merge of conflicts only", median_of(_into(kb, None, "denied"), effort)


def _into(kb: TenantKB, base: str | None, source: str | None) -> Callable[[], int]:
    if base is not None:
        kb.assert_rows([FactRows("other", 1, ["x"], scope=base)])

    def merge() -> int:
        kb.fork_scope(base, "target", overwrite=True)
        return kb.merge_scope(source, "target").merged

    return merge
