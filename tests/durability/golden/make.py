"""Makes a golden folder of the format written now: `python tests/durability/golden/make.py FOLDER`.

A folder that is here is never made anew: it stands for what a released version wrote. A new format
gets a new folder.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from kbcore import open_kb
from kbcore.config import Config


def main(folder: str) -> None:
    config = replace(Config(), min_free_mb=0, wal_segment_mb=1)
    with open_kb(path=folder, config=config) as kb:
        kb.tell("parent", ["ann", "bob"], confidence=0.5, metadata={"source": "a book", "page": 7})
        kb.tell_many("parent", [("bob", "cid"), ("cid", "日本"), ('a "quoted" \\ text', "")])
        kb.tell("parent", ["eve", "bob"], negated=True)
        kb.tell("seen", ["bob"], ttl=10**12)
        kb.teach(
            "ancestor(?x, ?y) :- parent(?x, ?y).\nancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z)."
        )
        kb.retract("parent", ["cid", "日本"])
        kb.fork("what-if")
        kb.tell("parent", ["zoe", "ann"], scope="what-if")
    with open_kb(
        path=folder, config=config, tenant="other"
    ) as kb:  # after a snapshot, so that there is log behind it
        kb.tell("note", ["1"])
        kb.tell("note", ["2"])
        kb.fork("copy")
        kb._runtime.system.committer.bytes = 0  # no snapshot at this stop
    for log in Path(folder).glob("wal-*"):  # without the room that was reserved behind the records
        data = log.read_bytes().rstrip(b"\0")
        log.write_bytes(data + bytes(8))
    (Path(folder) / "LOCK").unlink()


if __name__ == "__main__":
    main(sys.argv[1])
