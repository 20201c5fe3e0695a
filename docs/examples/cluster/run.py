"""Three nodes, and the leader is killed: no acknowledged write is lost, and writes go on.

    python docs/examples/cluster/run.py

Starts three servers on free ports of this machine, with a folder as their coordinator, and stops
them at the end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

DEADLINE_S = 60.0
"""Seconds after which a step has failed."""

Nodes = dict[str, subprocess.Popen[bytes]]


def free_address() -> str:
    """Return the address of a port that no process uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def start(folder: Path, name: str, address: str, mode: str) -> subprocess.Popen[bytes]:
    """Start a server with a storage folder of its own."""
    settings = {
        "KBCORE_COORDINATOR_URL": f"file:{folder}/coordinator",
        "KBCORE_REPLICATION_TOKEN": "change-this-secret",
        "KBCORE_REPLICATION_MODE": mode,
        "KBCORE_ADVERTISE_URL": address,
        "KBCORE_LOG_LEVEL": "ERROR",
    }
    command = [sys.executable, "-m", "kbserver.cli", "serve"]
    command += ["--port", address.rpartition(":")[2], "--storage-dir", str(folder / name)]
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=log, stderr=subprocess.STDOUT
        )


def send(address: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send a request and return the answer; None if the node does not answer, or refuses."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-Tenant-ID": "demo", "Content-Type": "application/json"}
    request = urllib.request.Request(address + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            text = response.read().decode()
            is_json = "json" in response.headers["Content-Type"]
            return json.loads(text) if is_json else text
    except OSError:  # refused, cut, too slow, or an error status
        return None


def wait_for_leader(addresses: dict[str, str], followers: int) -> str:
    """Return the name of the node that leads with this number of followers in sync."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        for name, address in addresses.items():
            if f"{followers} in sync" in json.dumps(send(address, "/health/ready")):
                return name
        time.sleep(0.1)
    sys.exit(f"no node leads {followers} followers after {DEADLINE_S:.0f} s")


def main() -> None:
    """Write, kill the leader, write again, and let it come back."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        addresses = {node: free_address() for node in "abc"}
        nodes: Nodes = {}
        try:
            for node, address in addresses.items():
                mode = "LEADER" if node == "a" else "FOLLOWER"
                nodes[node] = start(folder, node, address, mode)
            leader = wait_for_leader(addresses, 2)
            print(f"Node {leader} leads, and two followers are in sync.")
            print(send(addresses[leader], "/tell", {"predicate": "seen", "args": ["before"]}))
            began = time.monotonic()
            nodes[leader].kill()
            nodes[leader].wait()
            print(f"Node {leader} is killed.")
            live = {node: address for node, address in addresses.items() if node != leader}
            new = wait_for_leader(live, 1)
            print(f"Another node leads after {time.monotonic() - began:.1f} s.")
            print(send(addresses[new], "/tell", {"predicate": "seen", "args": ["after"]}))
            nodes[leader] = start(folder, leader, addresses[leader], "LEADER")
            wait_for_leader(live, 2)
            print(f"Node {leader} is back, as a follower.")
            rows = send(addresses[leader], "/ask", {"text": "seen(?when)"})
            print("It has:", ", ".join(sorted(row["args"][0] for row in rows)))
        finally:
            for process in nodes.values():
                process.terminate()
            for process in nodes.values():
                process.wait(DEADLINE_S)


if __name__ == "__main__":
    main()
