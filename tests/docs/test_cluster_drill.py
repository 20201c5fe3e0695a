"""The drill of the page about clusters: the loss of a node, with the commands of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support.clusters import replacements_of_ports, with_ports

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "grow-past-one-machine.md"


def test_the_drill(tmp_path: Path, postgres_url: str) -> None:
    script = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    ports = replacements_of_ports(script)
    done = subprocess.run(
        ["bash", "-euc", with_ports(script, ports)],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CLUSTER_URL": postgres_url,
            "CLUSTER_TTL_MS": "1000",
            "LOG_LEVEL": "ERROR",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cluster created, 8 shards" in done.stdout
    facts = [line for line in done.stdout.splitlines() if line.startswith("seen(")]
    assert sorted(facts) == ["seen(after)", "seen(before)"]
    assert re.search(with_ports(r"shard \d, 127-0-0-1-9322", ports), done.stdout)
    assert re.search(
        with_ports(r"127-0-0-1-9321 +active, 8 shards: 0, 1, 2, 3, 4, 5, 6, 7", ports), done.stdout
    )
