"""`kbcore config check`: every setting read, what is odd said, no secret shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbcore.config import SETTINGS, Config
from kbcore.doubts import doubts
from kbcore.errors import ConfigError
from kbserver.cli import cli

ROOT = Path(__file__).resolve().parents[2]


def check(*args: str, **settings: str) -> Result:
    return CliRunner().invoke(cli, ["config", "check", *args], env=settings)


def test_settings_that_are_set_are_shown_as_they_could_be_set_again() -> None:
    done = check(PORT="1234", RATE_LIMIT="600/60", CORS_ORIGINS="https://a, https://b", ENGINE_VERIFY="yes")
    assert done.exit_code == 0
    for line in ("PORT=1234", "RATE_LIMIT=600/60", "CORS_ORIGINS=https://a,https://b", "ENGINE_VERIFY=true"):
        assert line in done.stdout.splitlines()
    again = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert Config.from_env(again).rate_limit == (600, 60)


def test_all_shows_every_setting() -> None:
    lines = check("--all").stdout.splitlines()
    assert [line.split("=")[0] for line in lines] == [setting.name for setting in SETTINGS]


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
def test_settings_that_cannot_be_used(settings: dict[str, str], said: str) -> None:
    done = check(**settings)
    assert done.exit_code == 78
    assert said in done.stderr
    assert "two words" not in done.output


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"QUERY_TIMEOUT": "1"}, "QUERY_TIMEOUT is not a setting; QUERY_TIMEOUT_MS is one"),
        ({"KB_LOG_LEVEL": "INFO"}, "KB_LOG_LEVEL is not a setting; LOG_LEVEL is one"),
        ({"MAX_CONECTIONS": "1"}, "MAX_CONECTIONS is not a setting; MAX_CONNECTIONS is one"),
        ({"HOST": "0.0.0.0"}, "anybody may do anything"),
        ({"API_KEY": "short"}, "can be guessed"),
        ({"LLM_MODEL": "x"}, "no model will be asked"),
        ({"CORS_ORIGINS": "*"}, "pages of any site"),
        ({"FSYNC_POLICY": "never"}, "power cut"),
        ({"REPLICATION_MODE": "LEADER"}, "may fetch its log"),
    ],
)
def test_what_is_odd_is_said(settings: dict[str, str], said: str) -> None:
    done = check(**settings)
    assert done.exit_code == 0
    assert said in done.stderr
    assert check("--strict", **settings).exit_code == 1


def test_nothing_is_odd_about_the_defaults() -> None:
    assert list(doubts(Config(), {"PATH": "x", "HOME": "x", "LANG": "x", "TERM": "x"})) == []


def test_files_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "kbcore.env"
    file.write_text("# why\n\nPORT=1234\nLOG_FORMAT='json'\nUNHEARD_OF=1\n")
    done = check("--env-file", str(file))
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["PORT=1234", "LOG_FORMAT=json"]
    assert "UNHEARD_OF is not a setting" in done.stderr
    file.write_text("PORT=1234\nAPI_KEY hunter2\n")
    done = check("--env-file", str(file))
    assert done.exit_code == 78
    assert "line 2" in done.stderr
    assert "hunter2" not in done.output
    assert check("--env-file", str(tmp_path / "none")).exit_code == 78


@pytest.mark.parametrize("name", ["PUBLIC_URL", "LEADER_URL", "LLM_BASE_URL"])
def test_addresses_are_read_alike(name: str) -> None:
    for text in ("http://localhost", "https://kb.example:8443/base", "http://[::1]:9300"):
        assert getattr(Config.from_env({name: text + "/"}), name.lower()) == text
    for text in ("kb.example", "ftp://h", "http:///v1", "http://h:99999", "http://h:0", "http://[::1", "http://h?a=1"):
        with pytest.raises(ConfigError, match=f"^{name}="):
            Config.from_env({name: text})
    for text in ("http://u@h", "http://u:p@h", "http://@h", "http://h/#a"):
        with pytest.raises(ConfigError, match="must have no user, query or fragment"):
            Config.from_env({name: text})
