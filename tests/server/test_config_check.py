"""`kbcore config check`: all settings are checked, risky ones reported, and no secret is shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbcore.config import SETTINGS, Config
from kbcore.config.lint import warnings_for
from kbcore.errors import ConfigError
from kbcore.node.opening import open_runtime
from kbserver.cli import cli

ROOT = Path(__file__).resolve().parents[2]


def check(*args: str, **settings: str) -> Result:
    return CliRunner().invoke(cli, ["config", "check", *args], env=settings)


def test_settings_are_printed_in_the_form_they_are_set() -> None:
    done = check(
        PORT="1234", RATE_LIMIT="600/60", CORS_ORIGINS="https://a, https://b", ENGINE_VERIFY="yes"
    )
    assert done.exit_code == 0
    for line in (
        "PORT=1234",
        "RATE_LIMIT=600/60",
        "CORS_ORIGINS=https://a,https://b",
        "ENGINE_VERIFY=true",
    ):
        assert line in done.stdout.splitlines()
    again = dict(
        line.split("=", 1) for line in done.stdout.splitlines() if not line.startswith("#")
    )
    assert Config.from_env(again).rate_limit == (600, 60)


def test_the_prefix_is_read_first_and_the_check_says_which_name_was_used() -> None:
    done = check(KBCORE_PORT="1234", PORT="5678", HOST="127.0.0.2", KBCORE_MIN_FREE="1")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["# environment", "HOST=127.0.0.2", "KBCORE_PORT=1234"]
    assert done.stderr.splitlines()[:2] == [
        "WARNING: KBCORE_MIN_FREE is not a setting; did you mean KBCORE_MIN_FREE_MB?",
        "WARNING: PORT is ignored because KBCORE_PORT is set",
    ]
    assert Config.from_env({"KBCORE_PORT": "1234", "PORT": "5678"}).port == 1234
    assert Config.from_env({"PORT": "5678"}, prefixed=True).port == Config().port


def test_a_message_names_the_variable_that_was_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^KBCORE_PORT='web': must be an integer from 0 to"):
        Config.from_env({"KBCORE_PORT": "web"})
    secret = tmp_path / "secret"
    secret.write_text("correct-horse-battery")
    both = {"KBCORE_API_KEY_FILE": str(secret), "API_KEY": "another"}
    assert Config.from_env(both).api_key == "correct-horse-battery"
    with pytest.raises(ConfigError, match="KBCORE_API_KEY and KBCORE_API_KEY_FILE are both set"):
        Config.from_env({**both, "KBCORE_API_KEY": "x"})


def test_variables_of_the_commands_are_not_reported() -> None:
    assert check(KBCORE_URL="http://127.0.0.1:1", KBCORE_TENANT="a").stderr.startswith(
        "the settings"
    )
    assert "KBCORE_COLOR is not a setting" in check(KBCORE_COLOR="1").stderr


def test_all_shows_every_setting() -> None:
    done = check("--all", "--port", "1", API_KEY="correct-horse-battery")
    lines = done.stdout.splitlines()
    names = [line.split("=")[0] for line in lines if not line.startswith("#")]
    assert sorted(names) == sorted(setting.name for setting in SETTINGS)
    assert lines[:4] == ["# --port", "PORT=1", "# environment", "API_KEY=(not shown)"]
    assert lines[4] == "# default"


def test_each_setting_is_shown_below_its_source(tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "kbcore.env"
    secret.write_text("correct-horse-battery")
    file.write_text(
        f"PORT=9300\nHOST=127.0.0.2\nAPI_KEY_FILE={secret}\nSTORAGE_URL=sqlite:kb.sqlite\n"
    )
    done = check("--env-file", str(file), "--host", "127.0.0.3")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "# --host",
        "HOST=127.0.0.3",
        f"# {file}",
        "PORT=9300",
        "STORAGE_URL=sqlite:kb.sqlite",
        "# STORAGE_URL",
        "STORAGE_BACKEND=sqlite",
        f"# API_KEY_FILE ({file})",
        "API_KEY=(not shown)",
    ]


def test_every_problem_is_reported_at_once() -> None:
    bad = {
        "PORT": "many",
        "LOG_LEVEL": "LOUD",
        "LLM_PROVIDER": "gtp",
        "METRICS_SINKS": "prometheus,nope,none2",
    }
    bad |= {
        "SALIENCE_SCORER": "x",
        "STORAGE_BACKEND": "floppy",
        "EMBEDDER": "y",
        "TOKENIZER": "z",
        "API_KEY": "hush hush",
    }
    done = check("--fsync-policy", "sometimes", **bad)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    assert done.exit_code == 78
    names = [*bad, "FSYNC_POLICY", "METRICS_SINKS"]
    assert len(errors) == len(names)
    assert all(any(f"{name}=" in line for line in errors) for name in names)
    assert "hush" not in done.output


@pytest.mark.parametrize(
    "settings",
    [
        {"LLM_PROVIDER": "unknown"},
        {"LLM_PROVIDER": "openai"},
        {"STORAGE_BACKEND": "nothing"},
        {"STORAGE_BACKEND": "sqlite", "STORAGE_URL": "wal:data"},
        {"METRICS_SINKS": "nothing"},
        {"SALIENCE_SCORER": "nothing"},
        {"EMBEDDER": "nothing"},
        {"TOKENIZER": "nothing"},
        {"REPLICATION_MODE": "FOLLOWER"},
        {"REPLICATION_MODE": "LEADER", "STORAGE_BACKEND": "memory"},
        {"STATSD_ADDRESS": "nowhere", "METRICS_SINKS": "statsd"},
        {"PLUGINS_DISABLED": "storage-wal"},
    ],
    ids=str,
)
def test_check_and_start_report_the_same_errors(
    settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the folder of the tests may have the data of a server
    with pytest.raises(ConfigError) as caught:
        open_runtime(
            Config.from_env({"STORAGE_DIR": str(tmp_path), "MIN_FREE_MB": "0"} | settings)
        ).close()
    done = check(**settings)
    assert done.exit_code == 78
    assert caught.value.message in done.stderr


def test_no_secret_is_shown() -> None:
    secret = "correct-horse-battery"
    more = {setting.name: secret for setting in SETTINGS if setting.secret}
    done = check("--all", STORAGE_URL=f"postgresql://kb:{secret}@db/kb", **more)
    assert done.exit_code == 0
    assert secret not in done.output
    assert "API_KEY=(not shown)" in done.stdout
    assert "STORAGE_URL=postgresql://" in done.stdout


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"PORT": "many"}, "PORT"),
        ({"LOG_LEVEL": "LOUD"}, "DEBUG, INFO, WARN, ERROR"),
        ({"API_KEY": "two words"}, "API_KEY"),
        ({"API_KEY_FILE": "/nowhere/at/all"}, "API_KEY_FILE"),
    ],
)
def test_invalid_settings(settings: dict[str, str], said: str) -> None:
    done = check(**settings)
    assert done.exit_code == 78
    assert said in done.stderr
    assert "two words" not in done.output


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"QUERY_TIMEOUT": "1"}, "QUERY_TIMEOUT is not a setting; did you mean QUERY_TIMEOUT_MS?"),
        ({"KB_LOG_LEVEL": "INFO"}, "KB_LOG_LEVEL is not a setting; did you mean LOG_LEVEL?"),
        ({"MAX_CONECTIONS": "1"}, "MAX_CONECTIONS is not a setting; did you mean MAX_CONNECTIONS?"),
        ({"HOST": "0.0.0.0"}, "anyone can read and write"),
        ({"API_KEY": "short"}, "easy to guess"),
        ({"LLM_MODEL": "x"}, "no effect with LLM_PROVIDER=none"),
        ({"CORS_ORIGINS": "*"}, "pages of any site"),
        ({"ALLOWED_HOSTS": "kb.example,*"}, "DNS rebinding"),
        *(
            ({"ALLOWED_HOSTS": f"kb.example,{odd}"}, f"ALLOWED_HOSTS: '{odd}' matches no Host")
            for odd in (
                "https://kb.example",
                "kb.example:9300",
                "*.example",
                "a/b",
                "[::1",
                "127.1",
            )
        ),
        ({"FSYNC_POLICY": "never"}, "power failure"),
        ({"REPLICATION_MODE": "LEADER"}, "can read its log"),
    ],
)
def test_risky_settings_are_reported(settings: dict[str, str], said: str) -> None:
    done = check(**settings)
    assert done.exit_code == 0
    assert said in done.stderr
    assert check("--strict", **settings).exit_code == 1


def test_keys_can_be_required() -> None:
    for host in ("0.0.0.0", "::", "10.0.0.5", "localhost.example", "127.0.0.1.example"):
        done = check(HOST=host, REQUIRE_KEYS="true")
        assert done.exit_code == 78
        assert f"ERROR: HOST={host} is not a loopback address and there are no keys" in done.stderr
    for settings in ({"API_KEY": "x" * 16}, {"AUTH_ENABLED": "true"}, {"REQUIRE_KEYS": "false"}):
        assert check(**{"HOST": "0.0.0.0", "REQUIRE_KEYS": "true", **settings}).exit_code == 0
    for host in ("127.0.0.2", "::1", "localhost"):
        assert check(HOST=host, REQUIRE_KEYS="true").exit_code == 0


def test_the_defaults_cause_no_warning() -> None:
    assert list(warnings_for(Config(allowed_hosts=("kb.example", "10.0.0.1", "::1")), {})) == []
    assert list(warnings_for(Config(), {"PATH": "x", "HOME": "x", "LANG": "x", "TERM": "x"})) == []


def test_files_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "kbcore.env"
    file.write_text("# why\n\nPORT=1234\nLOG_FORMAT='json'\nUNHEARD_OF=1\n")
    done = check("--env-file", str(file))
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [f"# {file}", "PORT=1234", "LOG_FORMAT=json"]
    assert "UNHEARD_OF is not a setting" in done.stderr
    file.write_text("PORT=1234\nAPI_KEY hunter2\n")
    done = check("--env-file", str(file))
    assert done.exit_code == 78
    assert "line 2" in done.stderr
    assert "hunter2" not in done.output
    assert check("--env-file", str(tmp_path / "none")).exit_code == 78


@pytest.mark.parametrize("name", ["PUBLIC_URL", "LEADER_URL", "LLM_BASE_URL"])
def test_addresses_are_parsed_alike(name: str) -> None:
    for text in ("http://localhost", "https://kb.example:8443/base", "http://[::1]:9300"):
        assert getattr(Config.from_env({name: text + "/"}), name.lower()) == text
    for text in (
        "kb.example",
        "ftp://h",
        "http:///v1",
        "http://h:99999",
        "http://h:0",
        "http://[::1",
        "http://h?a=1",
    ):
        with pytest.raises(ConfigError, match=f"^{name}="):
            Config.from_env({name: text})
    for text in ("http://u@h", "http://u:p@h", "http://@h", "http://h/#a"):
        with pytest.raises(ConfigError, match="without user, query or fragment"):
            Config.from_env({name: text})


def test_what_this_machine_cannot_use_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for folder, problem in ((file, "is not a folder"), (file / "data", f"{file} is not a folder")):
        done = check(STORAGE_DIR=str(folder))
        assert done.exit_code == 78
        assert f"ERROR: STORAGE_DIR={folder}: {problem}" in done.stderr.splitlines()
        assert done.stderr.splitlines()[-1] == "the server would not start: 1 error, 0 warnings"
    assert check(STORAGE_DIR=str(tmp_path / "new" / "data")).exit_code == 0
    assert not (tmp_path / "new").exists()
    done = check(HOST="no-such-host.invalid", API_KEY="k" * 20)
    assert done.exit_code == 78
    assert "ERROR: HOST=no-such-host.invalid: is not an address or a known host name" in done.stderr


def test_a_decision_log_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, missing = tmp_path / "file", tmp_path / "none"
    file.write_text("")

    def errors(target: str, **settings: str) -> list[str]:
        secret = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ=="
        done = check(**{"DECISION_LOG": target, "WEBHOOK_SECRET": secret} | settings)
        assert secret not in done.stdout + done.stderr
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        assert done.exit_code == (78 if lines else 0)
        return [line.removeprefix("ERROR: ") for line in lines]

    for path, problem in (
        (missing / "log", f"there is no folder {missing}"),
        (file / "log", f"{file} is not a folder"),
        (tmp_path, "is a folder"),
    ):
        target = f"file:{path}"
        assert errors(target) == [f"DECISION_LOG={target}: {problem}"]
        with pytest.raises(ConfigError, match=r"^DECISION_LOG="):
            open_runtime(Config(storage_backend="memory", decision_log=target))
    assert errors(f"file:{file}") == errors(f"file:{tmp_path / 'new'}") == []
    assert not (tmp_path / "new").exists()
    with monkeypatch.context() as patched:  # root may write anywhere
        patched.setattr("os.access", lambda path, mode: str(path) not in (str(file), str(tmp_path)))
        for path, problem in (
            (file, "no permission to write to the file"),
            (tmp_path / "new", f"no permission to create a file in {tmp_path}"),
        ):
            assert f"DECISION_LOG=file:{path}: {problem}" in errors(f"file:{path}")
    address = "https://hooks.example.com/services/T0/secretsecretsecret"
    (refused,) = errors(f"webhook:{address}")
    assert refused == "DECISION_LOG=webhook:URL needs WEBHOOK_URLS, which allows the URL"
    (refused,) = errors(f"webhook:{address}", WEBHOOK_URLS="https://other.example.com/")
    assert refused.startswith("DECISION_LOG=webhook:URL: ")
    assert "secretsecret" not in refused
    (refused,) = errors(f"webhook:{address}", WEBHOOK_URLS="https://other/", WEBHOOK_SECRET="x")
    assert refused.startswith("WEBHOOK_SECRET must have"), "once, though two things need it"
    (refused,) = errors("statsd:no-such-host.invalid:8125")
    assert refused.startswith("DECISION_LOG=statsd:no-such-host.invalid:8125: ")


def test_hosts_that_are_not_known_are_warnings() -> None:
    done = check(LEADER_URL="http://no-such-host.invalid:9300", REPLICATION_MODE="FOLLOWER")
    assert done.exit_code == 0
    assert "LEADER_URL: the host no-such-host.invalid is not known on this machine" in done.stderr
    assert done.stderr.splitlines()[-1] == "the settings are valid, 1 warning"


def test_a_key_that_has_no_effect_is_a_warning() -> None:
    done = check(API_KEY="k" * 20, AUTH_ENABLED="true")
    assert "WARNING: API_KEY has no effect beside AUTH_ENABLED=true" in done.stderr


def test_settings_of_tokens_that_do_not_fit_are_reported() -> None:
    issuer = {"OAUTH_ISSUER": "https://127.0.0.1/realm", "HOST": "0.0.0.0", "REQUIRE_KEYS": "true"}
    done = check(**issuer)
    assert done.exit_code == 78
    assert "ERROR: OAUTH_ISSUER needs PUBLIC_URL" in done.stderr
    done = check(**issuer, PUBLIC_URL="http://kb.example")
    assert done.exit_code == 0
    assert "WARNING: PUBLIC_URL is http: access tokens are sent unencrypted" in done.stderr
    assert "authentication is off" not in done.stderr
    assert check(OAUTH_ISSUER="http://id.example").exit_code == 78
    done = check(OAUTH_AUDIENCE="x")
    assert "OAUTH_AUDIENCE and OAUTH_TENANT_CLAIM have no effect" in done.stderr


def test_a_missing_library_for_tokens_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    settings = {"OAUTH_ISSUER": "https://127.0.0.1", "PUBLIC_URL": "https://127.0.0.1"}
    done = check(**settings)
    assert done.exit_code == 78
    assert "ERROR: OAUTH_ISSUER needs the package jwt: pip install 'kbcore[oauth]'" in done.stderr
