"""Facts joined with a table of an SQLite file, an external predicate of the plugin
`predicates-sql`.

Next to it, the same rows stored as facts, and the same join by hand: SQLite has both tables in one
file, and all rows are fetched.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from measure import Effort, Sample, median_of
from programs import count_named, open_without_tables
from table import Row

import kbcore

RULES = "cost(?who, ?item, ?cents) :- basket(?who, ?item), price(?item, ?cents)."
SQL = "SELECT b.who, b.item, p.cents FROM basket b JOIN price p ON p.item = b.item"

Pairs = Sequence[tuple[str, str]]
Peer = Callable[[Path, str, Effort], Sample]


def shop(path: Path, prices: Pairs, baskets: Pairs) -> None:
    """A file with the prices, and with the baskets for the join by hand."""
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE price (item TEXT PRIMARY KEY, cents INTEGER NOT NULL) WITHOUT ROWID")
    db.execute("CREATE TABLE basket (who TEXT NOT NULL, item TEXT NOT NULL)")
    db.execute("CREATE INDEX basket_who ON basket (who)")
    db.executemany("INSERT INTO price VALUES (?, ?)", prices)
    db.executemany("INSERT INTO basket VALUES (?, ?)", baskets)
    db.commit()
    db.execute("ANALYZE")
    db.close()


def external(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """All costs, and those of one person."""
    rng = random.Random(5)
    items, people = effort.pick(100_000, 100), effort.pick(2_000, 20)
    prices = [(f"i{number}", str(rng.randrange(1, 10_000))) for number in range(items)]
    baskets = sorted(
        {(f"w{rng.randrange(people)}", f"i{rng.randrange(items)}") for _ in range(people * 5)}
    )
    size = f"{len(baskets):,} facts, {items:,} rows"
    with tempfile.TemporaryDirectory() as folder:
        path, settings = Path(folder) / "shop.db", Path(folder) / "predicates.json"
        shop(path, prices, baskets)
        table = {"database": "shop", "table": "price", "columns": ["item", "cents"]}
        described = {
            "databases": {"shop": f"sqlite:{path}"},
            "predicates": {"price": table | {"modes": [["in", "out"]]}},
        }
        settings.write_text(json.dumps(described), encoding="utf-8")
        config = kbcore.Config(
            goal_table_mb=0, query_timeout_ms=60_000, sql_predicates=str(settings)
        )
        stored_facts = {"basket": baskets, "price": prices}
        with (
            kbcore.open_kb(config=config) as kb,
            open_without_tables(stored_facts, RULES) as stored,
        ):
            kb.tell_many("basket", baskets)
            kb.teach(RULES)
            who = baskets[0][0]
            for name, goal, where in (
                ("all", "cost(?who, ?item, ?cents)", ""),
                ("one person", f"cost({who}, ?item, ?cents)", f" WHERE b.who = '{who}'"),
            ):
                ours = median_of(lambda goal=goal: count_named(kb, goal), effort)  # type: ignore[misc]
                row = Row(f"external predicate, {name}", size, ours.answers, ours)
                for peer, run in peers.items():
                    row.peers[peer] = run(path, SQL + where, effort)
                row.compare()
                as_facts = median_of(lambda goal=goal: count_named(stored, goal), effort)  # type: ignore[misc]
                row.ratio = f"{row.ratio}; as stored facts {as_facts}".removeprefix("; ")
                if as_facts.answers != ours.answers:
                    row.wrong = f"{row.workload}: {ours.answers}, but {as_facts.answers} as facts"
                yield row
