"""Fuzz a target with atheris: `python run.py parser -max_total_time=20`. What it finds is added to
the corpus with its fix.

New inputs go to a folder of their own, so that the corpus in the tree stays small; see
`tests/README.md`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

CORPUS = Path(__file__).resolve().parent / "corpus"


def main() -> None:
    with atheris.instrument_imports(
        include=["kbplanner", "kbcore.language", "kbcore.language.files", "kbcore.state.facts"]
    ):
        from targets import TARGETS
    name, *flags = sys.argv[1:]
    with tempfile.TemporaryDirectory() as found:
        limits = ("-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1")
        atheris.Setup([sys.argv[0], *limits, *flags, found, str(CORPUS / name)], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
