"""The knowledge base inside another Flask application, and under other WSGI servers."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flask import Flask
from support.http import Served, error_of
from werkzeug.test import EnvironBuilder

from kbcore.errors import ConfigError, NotReady, StorageBusy
from kbserver import create_app, wsgi
from kbserver.flask import EXTENSION, KBCore, config_of
from kbserver.process.hosting_server import CANNOT_START, hosting_server
from kbserver.process.shared_runtime import SharedRuntime

EXAMPLES = Path(__file__).parents[2] / "server" / "examples"
MEMORY = {"KBCORE_STORAGE_BACKEND": "memory"}


@contextmanager
def hosted(kb: KBCore, **config: Any) -> Iterator[Flask]:
    """An application with the extension, closed at the end."""
    app = Flask("host")
    app.config.update(MEMORY | config)
    kb.init_app(app)
    yield app
    with app.app_context():
        kb.close()


def test_the_example_host(tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / "host_app.py"))
    app = example["create_app"]({"KBCORE_STORAGE_DIR": str(tmp_path)})
    host = app.test_client()
    assert host.get("/visit/ann").get_json() == {"visitors": ["ann"]}
    goal = {"predicate": "visited", "args": ["?who"]}
    answers = host.post("/kb/ask", json=goal, headers={"X-Tenant-ID": "visitors"}).get_json()
    assert [row["args"] for row in answers] == [["ann"]]
    error_of(host.get("/kb/nope"), 404, "NOT_FOUND")
    assert "X-Request-ID" not in host.get("/nope").headers
    example["kb"].close()


def test_the_extension_opens_on_first_use_and_once(tmp_path: Path) -> None:
    kb = KBCore()
    with hosted(kb, KBCORE_STORAGE_BACKEND="wal", KBCORE_STORAGE_DIR=tmp_path / "data") as app:
        assert app.extensions[EXTENSION] is kb
        assert not (tmp_path / "data").exists()
        kb.open("a").tell("p", ["x"])
        assert (tmp_path / "data").exists()
        assert list(kb.open("a").ask("p(?x)")) == [("x",)]
        assert list(kb.open().ask("p(?x)")) == []
        other = KBCore()
        disk = {"KBCORE_STORAGE_BACKEND": "wal", "KBCORE_STORAGE_DIR": tmp_path / "data"}
        with hosted(other, **disk), pytest.raises(StorageBusy):
            other.open("a")


def test_without_a_prefix_the_http_interface_is_not_served() -> None:
    with hosted(KBCore()) as app:
        assert app.test_client().get("/kb/health").status_code == 404
    with hosted(KBCore(), KBCORE_URL_PREFIX="kb/") as app:
        assert app.test_client().get("/kb/health").status_code == 200


def test_one_extension_serves_several_applications() -> None:
    kb = KBCore()
    with hosted(kb, KBCORE_TENANT="one") as one, hosted(kb, KBCORE_DATABASE="nope") as two:
        with pytest.raises(RuntimeError, match="several applications"):
            kb.open()
        with one.app_context():
            kb.open().tell("p(x)")
            assert kb.open("one").count("p") == 1
        with two.app_context(), pytest.raises(Exception, match="nope"):
            kb.open()
    with pytest.raises(RuntimeError, match="init_app"):
        KBCore().open()


def test_settings_of_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBCORE_MAX_JSON_DEPTH", "7")
    monkeypatch.setenv("QUERY_TIMEOUT_MS", "9")
    config = config_of(
        {
            "KBCORE_PORT": 9400,
            "KBCORE_AUTH_ENABLED": True,
            "KBCORE_RATE_LIMIT": (600, 60),
            "KBCORE_CORS_ORIGINS": ["https://a", "https://b"],
            "KBCORE_STORAGE_DIR": Path("x"),
            "KBCORE_LLM_MODEL": None,
            "PORT": 1,
        }
    )
    assert (config.port, config.auth_enabled, config.rate_limit) == (9400, True, (600, 60))
    assert (config.cors_origins, config.storage_dir) == (("https://a", "https://b"), "x")
    assert config.max_json_depth == 7
    assert config.query_timeout_ms != 9, "a bare name may belong to the host"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("KBCORE_PROT", 1, "did you mean KBCORE_PORT"),
        ("KBCORE_URL_PREFIXES", "/kb", "did you mean KBCORE_URL_PREFIX"),
        ("KBCORE_COLOR", 1, "KBCORE_COLOR in the configuration of the application is unknown"),
        ("KBCORE_PORT", "web", "PORT='web': must be an integer"),
        ("KBCORE_CORS_ORIGINS", 7, "KBCORE_CORS_ORIGINS must be names separated by commas"),
        ("KBCORE_URL_PREFIX", "/", "KBCORE_URL_PREFIX must be a path below the application"),
        ("KBCORE_URL_PREFIX", True, "KBCORE_URL_PREFIX must be a path below the application"),
    ],
)
def test_wrong_settings_of_the_application(key: str, value: Any, message: str) -> None:
    app = Flask("host")
    app.config[key] = value
    with pytest.raises(ConfigError, match=message):
        KBCore(app)
    assert EXTENSION not in app.extensions


def test_a_second_extension_is_refused() -> None:
    with hosted(KBCore()) as app, pytest.raises(ConfigError, match="already"):
        KBCore(app)


def test_a_storage_that_cannot_be_opened_is_an_error_of_the_interface(tmp_path: Path) -> None:
    kb, holder = KBCore(), KBCore()
    disk = {"KBCORE_STORAGE_BACKEND": "wal", "KBCORE_STORAGE_DIR": str(tmp_path)}
    with hosted(holder, **disk), hosted(kb, KBCORE_URL_PREFIX="/kb", **disk) as app:
        holder.open()
        response = app.test_client().get("/kb/health")
        assert response.status_code == 500
        assert response.get_json()["code"] == "INTERNAL_ERROR"
        assert str(tmp_path) not in response.text


def test_a_forked_process_does_not_use_the_runtime_of_its_parent() -> None:
    with hosted(KBCore()) as app:
        kb: KBCore = app.extensions[EXTENSION]
        kb.open().tell("p(a)")
        if (child := os.fork()) == 0:
            try:
                kb.open()
            except NotReady:
                os._exit(21)
            os._exit(22)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 21
        assert kb.open().count("p") == 1


def test_the_wsgi_entry_point_opens_with_the_first_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_once(shared: SharedRuntime) -> Any:
        opened.append("now")
        return served.runtime

    monkeypatch.setattr(SharedRuntime, "get", open_once)
    monkeypatch.setattr(wsgi, "_apps", [])
    answers: list[str] = []
    environ = EnvironBuilder("/health").get_environ()
    for _ in range(2):
        b"".join(
            wsgi.application(
                dict(environ), lambda status, headers, error=None: answers.append(status)
            )
        )
    assert answers == ["200 OK", "200 OK"]
    assert len(opened) == 1


@pytest.mark.parametrize("fast_path", [True, False])
def test_an_empty_path_may_be_missing(served: Served, fast_path: bool) -> None:
    """As WSGI allows; so a host may ask for the place itself where the knowledge base is
    mounted.
    """
    environ = EnvironBuilder("/kb").get_environ()
    environ["SCRIPT_NAME"] = environ.pop("PATH_INFO")
    answers: list[str] = []
    body = create_app(served.runtime, fast_path=fast_path)(
        environ, lambda status, headers, error=None: answers.append(status)
    )
    assert b'"docs":"/kb/docs"' in b"".join(body)
    assert answers == ["200 OK"]


def test_the_start_page_is_a_page_for_browsers(served: Served) -> None:
    client = served.app.test_client()
    page = client.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert page.mimetype == "text/html"
    assert '<a href="/docs">' in page.text
    links = client.get("/").get_json()["links"]
    assert client.post(links.pop("mcp"), json={}).status_code != 404
    for path in links.values():
        assert client.get(path).status_code == 200, path


@contextmanager
def started(*command: str, folder: Path, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A server process in `folder`, ended at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=EXAMPLES,
        env={**os.environ, "KBCORE_STORAGE_DIR": str(folder), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:  # gunicorn may lose a signal during a reload
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=30)


def _wait_for(process: subprocess.Popen[str], words: str) -> str:
    """Return the first line with `words`; the rest of the output stays unread."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return line
    raise AssertionError("".join(lines))


def test_gunicorn_with_one_worker_serves(tmp_path: Path) -> None:
    command = ("gunicorn", "--bind", "127.0.0.1:0", "--threads", "4", "kbserver.wsgi:application")
    with started(*command, folder=tmp_path) as process:
        url = _wait_for(process, "Listening at").split("Listening at: ")[1].split()[0]
        assert httpx.get(f"{url}/health/ready", timeout=30).status_code == 200


@pytest.mark.parametrize(
    ("flags", "application", "message"),
    [
        (("--workers", "2"), "kbserver.wsgi:application", "start one worker process with several"),
        (("--workers", "2"), "gunicorn_host:app", "start one worker process with several"),
        (("--workers", "2", "-k", "gevent"), "kbserver.wsgi:application", "start one worker"),
        (("--preload",), "gunicorn_host:app", "gunicorn without --preload"),
        (("--preload",), "kbserver.wsgi:application", "gunicorn without --preload"),
    ],
)
def test_gunicorn_with_more_than_one_process_ends_at_the_start(
    tmp_path: Path, flags: tuple[str, ...], application: str, message: str
) -> None:
    (tmp_path / "gunicorn_host.py").write_text(
        "from flask import Flask\n"
        "from kbserver.flask import KBCore\n"
        "app = Flask(__name__)\n"
        f"app.config['KBCORE_STORAGE_DIR'] = {str(tmp_path / 'data')!r}\n"
        "kb = KBCore(app)\n"
    )
    command = ("gunicorn", "--bind", "127.0.0.1:0", "--pythonpath", str(tmp_path), *flags)
    with started(*command, application, folder=tmp_path / "data") as process:
        output = process.communicate(timeout=60)[0]
    lines = [line for line in output.splitlines() if line.startswith("kbcore: ")]
    assert lines, output
    assert all(message in line for line in lines), output
    assert "Traceback" not in output
    assert process.returncode == CANNOT_START


@pytest.mark.parametrize("worker", ["gthread", "gevent"])
def test_a_reload_of_gunicorn_waits_for_the_old_worker(tmp_path: Path, worker: str) -> None:
    (tmp_path / "slow_host.py").write_text(SLOW_HOST)
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "go_on")
    flags = ("--bind", "127.0.0.1:0", "-k", worker, "--threads", "4")
    command = ("gunicorn", *flags, "--pythonpath", str(tmp_path), "slow_host:app")
    with started(*command, folder=tmp_path / "data", FIFOS=str(tmp_path)) as process:
        url = _wait_for(process, "Listening at").split("Listening at: ")[1].split()[0]
        assert httpx.get(f"{url}/count", timeout=30).text == "1"
        with ThreadPoolExecutor() as pool:
            slow = pool.submit(httpx.get, f"{url}/slow", timeout=60)
            (tmp_path / "begun").read_text()
            os.kill(process.pid, signal.SIGHUP)
            _wait_for(process, "waiting up to 35 s for its end")
            (tmp_path / "go_on").write_text("now")
            assert slow.result().text == "done"
        assert httpx.get(f"{url}/count", timeout=60).text == "2"
        assert process.poll() is None


SLOW_HOST = """
import os
from flask import Flask
from kbserver.flask import KBCore

app = Flask(__name__)
app.config["KBCORE_STORAGE_DIR"] = os.environ["KBCORE_STORAGE_DIR"]
kb = KBCore(app)


@app.get("/count")
def count():
    visits = kb.open()
    visits.tell("visit", [visits.count("visit") + 1])
    return str(visits.count("visit"))


@app.get("/slow")
def slow():
    with open(os.environ["FIFOS"] + "/begun", "w") as begun:
        begun.write("begun")
    with open(os.environ["FIFOS"] + "/go_on") as go_on:
        go_on.read()
    return "done"
"""


def test_flask_run_with_the_reloader_serves(tmp_path: Path) -> None:
    command = ("flask", "--debug", "--app", "host_app", "run", "--port", "0")
    with started(*command, folder=tmp_path, KBCORE_STORAGE_BACKEND="memory") as process:
        url = _wait_for(process, "Running on").split("Running on ")[1].split()[0]
        visits = [httpx.get(f"{url}/visit/{who}", timeout=30) for who in ("ann", "bob")]
        assert [answer.json()["visitors"] for answer in visits] == [["ann"], ["ann", "bob"]]
        assert httpx.get(f"{url}/kb/health/ready", timeout=30).status_code == 200


def test_uwsgi_with_several_workers_ends_without_interrupting_imports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other workers end first: one that its master interrupts while it imports lives on."""
    calls: list[tuple[object, ...]] = []
    uwsgi = SimpleNamespace(
        numproc=4,
        opt={},
        masterpid=lambda: 5000,
        worker_id=lambda: 1,
        workers=lambda: [{"pid": pid} for pid in (os.getpid(), 5001, 5002, 0)],
    )

    def kill(pid: int, number: int) -> None:
        calls.append((pid, number))
        if pid == 5002:
            raise ProcessLookupError

    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi)
    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(os, "_exit", lambda status: calls.append(("exit", status)))
    monkeypatch.setattr(signal, "pthread_sigmask", lambda how, which: calls.append((how, *which)))
    server = hosting_server()
    assert server is not None
    assert (server.workers, server.loads_before_fork) == (4, False)
    server.end()
    assert calls == [
        (5001, signal.SIGKILL),
        (5002, signal.SIGKILL),
        (signal.SIG_BLOCK, signal.SIGINT),
        (5000, signal.SIGQUIT),
        ("exit", CANNOT_START),
    ]
