"""The `kbcore` command and `kbcore serve`."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kbcore import __version__
from kbcore.config import SETTINGS, Config
from kbcore.errors import ConfigError, KBError, LogCorrupted, StorageBusy
from kbserver import cli
from kbserver.cli.server import serve as serve_command


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    found: list[Config] = []

    def serve(config: Config) -> int:
        found.append(config)
        return 0

    monkeypatch.setattr(serve_command, "_serve", serve)
    return found


def run(*args: str, **environ: str) -> Any:
    unset: dict[str, str | None] = {setting.name: None for setting in SETTINGS}
    return CliRunner(env={**unset, **environ}).invoke(cli.cli, args)


def test_every_command_has_help_with_a_summary_that_fits_a_line() -> None:
    overview = run("--help").output
    for name in cli.COMMANDS:
        assert f"  {name} " in overview
        assert run(name, "--help").exit_code == 0
    assert "..." not in overview.partition("Commands:")[2]
    assert "--storage-dir FOLDER" in run("serve", "--help").output
    assert run("nothing").exit_code == 2


def test_flags_win_over_settings_over_defaults(started: list[Config]) -> None:
    flags = [
        "--port",
        "1234",
        "--storage-dir",
        "/d",
        "--fsync-policy",
        "NEVER",
        "--storage-backend",
        "memory",
    ]
    more = ["--host", "0.0.0.0", "--log-level", "debug", "--log-format", "json"]
    assert run("serve", *flags, *more, PORT="99", FSYNC_INTERVAL_MS="7").exit_code == 0
    assert started == [
        Config(
            host="0.0.0.0",
            port=1234,
            storage_dir="/d",
            fsync_policy="never",
            storage_backend="memory",
            log_level="DEBUG",
            log_format="json",
            fsync_interval_ms=7,
        )
    ]


def test_no_start_without_the_required_keys(started: list[Config]) -> None:
    result = run("serve", "--host", "0.0.0.0", REQUIRE_KEYS="true")
    assert result.exit_code == 78
    assert "REQUIRE_KEYS=false" in result.output
    assert started == []
    assert run("serve", REQUIRE_KEYS="true").exit_code == 0
    assert run("serve", "--host", "0.0.0.0", REQUIRE_KEYS="true", API_KEY="x" * 16).exit_code == 0
    assert len(started) == 2


@pytest.mark.parametrize("environ", [{"PORT": "many"}, {"LOG_LEVEL": "LOUD"}])
def test_a_bad_setting(started: list[Config], environ: dict[str, str]) -> None:
    result = run("serve", **environ)
    assert result.exit_code == 78
    assert result.output.startswith(f"kbcore: {next(iter(environ))}=")
    assert result.output.count("\n") == 1
    assert started == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StorageBusy("the folder is held by process 5"), 75),
        (LogCorrupted("damaged", directory="d", segment="s", offset=1), 65),
        (ConfigError("no"), 78),
        (KBError("else"), 1),
        (PermissionError(13, "Permission denied"), 71),
    ],
)
def test_exit_statuses_of_a_failed_start(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def fail(config: Config) -> int:
        raise error

    monkeypatch.setattr(serve_command, "_serve", fail)
    result = run("serve")
    assert result.exit_code == status
    assert result.output.startswith("kbcore: ")
    assert result.output.count("\n") == 1


def test_the_serve_command_imports_little_before_gevent_patches() -> None:
    loaded = "print(*sorted({'ssl', 'flask', 'gevent', 'kbcore.node.runtime', 'httpx'} & set(sys.modules)))"
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path[:0] = {sys.path!r}; import kbserver.cli.server.serve; {loaded}",
    ]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_real_process_serves_and_stops(number: int, tmp_path: Path) -> None:
    tests = str(Path(__file__).parent.parent)
    dist_info = tmp_path / "plugin-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text("[kbcore]\nforgetful = support.http:FORGETFUL\n")
    flags = ["serve", "--port", "0", "--storage-backend", "forgetful", "--log-format", "json"]
    path = [*sys.path, tests, str(tmp_path)]
    program = f"import sys; sys.path[:0] = {path!r}; from kbserver.cli import main; main({flags!r})"
    command = [sys.executable, "-u", "-W", "error", "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        first = json.loads(line)
        assert (first["level"], first["logger"]) == ("INFO", "kbserver.start")
        found = re.fullmatch(r"kbcore listens on http://127\.0\.0\.1:(\d+)", first["message"])
        assert found, line + process.stderr.read()
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
        body = b'{"predicate": "p", "args": ["a"]}'
        connection.request(
            "POST", "/tell", body, {"X-Tenant-ID": "t", "Content-Type": "application/json"}
        )
        assert connection.getresponse().read() == b"Fact Asserted: p(a)"
        process.send_signal(number)
        assert process.wait(20) == 0
        lines = [json.loads(line) for line in process.stderr]
        assert all("message" in json.loads(line) for line in process.stdout)
        connection.close()
    (begin,) = (line for line in lines if line["message"] == "started")
    assert (begin["version"], begin["facts"]) == (__version__, 0)
    assert begin["recoverySeconds"] >= 0
    requests = [line for line in lines if line["logger"] == "kbserver.access"]
    assert [(line["path"], line["status"]) for line in requests] == [("/tell", 200)]
    assert [line["address"] for line in requests] == ["127.0.0.1"]
    assert {line["level"] for line in lines} == {"INFO"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_port_in_use_leaves_no_folder(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        flags = ["--port", str(port), "--storage-dir", str(folder), "--log-format", form]
        command = [sys.executable, "-m", "kbserver.cli", "serve", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 71
    assert done.stdout == ""
    message = done.stderr.strip()
    if form == "json":
        line = json.loads(message)
        assert (line["level"], line["logger"]) == ("ERROR", "kbserver.start")
        message = f"kbcore: {line['message']}"
    problem = f"port {port} on 127.0.0.1 is already in use; choose another with --port"
    assert message == f"kbcore: cannot start: {problem}"
    assert not folder.exists()


def test_the_package_takes_the_options_of_serve() -> None:
    command = [sys.executable, "-m", "kbserver", "--port", "web"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78
    assert "PORT='web': must be an integer" in done.stderr


def test_a_start_that_fails_writes_json_where_that_is_set(tmp_path: Path) -> None:
    done = run("serve", "--port", "web", KBCORE_LOG_FORMAT="json")
    assert done.exit_code == 78
    assert json.loads(done.stderr)["message"].startswith("PORT='web': must be an integer")
