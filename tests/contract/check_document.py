"""Schemathesis against a live server: no 5xx, and no answer the OpenAPI document does not describe.

    python tests/contract/check_document.py [SECONDS]

Run by the environment `full` of tox. The seed is fixed; time is bounded.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.servers import Server

CONFIG = """\
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 501]
"""
"""501 is the answer to prose where no language model is configured."""

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "missing_required_header",
    "unsupported_method",
)


def main() -> int:
    seconds = sys.argv[1] if len(sys.argv) > 1 else "60"
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(Path(folder), QUERY_TIMEOUT_MS="1000") as server,
    ):
        url = f"http://127.0.0.1:{server.address[1]}"
        config = Path(folder, "schemathesis.toml")
        config.write_text(CONFIG, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "--config-file",
            str(config),
            "run",
            f"{url}/openapi.json",
            "--url",
            url,
            "--checks",
            ",".join(CHECKS),
            "--seed",
            "7",
            "--generation-deterministic",
            "--max-time",
            seconds,
            "--max-examples",
            "30",
            "--phases",
            "examples,coverage,fuzzing",
            "--continue-on-failure",
            "--no-color",
            "--suppress-health-check",
            "all",
            "--request-timeout",
            "20",
            "--exclude-path",
            "/memory/events",
            "--exclude-path",
            "/goals/{id}/events",
        ]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
