"""Storage URLs, and their secrets, which are never shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kbcore
from kbcore.config import Config
from kbcore.config.storage_urls import backend_of, path_of, redacted, secrets_of
from kbcore.errors import ConfigError, InvalidInput
from kbcore.plug.manager import Plugins


@pytest.mark.parametrize(
    ("url", "backend", "path"),
    [
        ("wal:/a/b", "wal", "/a/b"),
        ("sqlite:b.sqlite", "sqlite", "b.sqlite"),
        ("sqlite:///a/b", "sqlite", "/a/b"),
        ("SQLite:a:b?c#d", "sqlite", "a:b?c#d"),
        ("my_store:x", "my_store", "x"),
    ],
)
def test_backend_and_path(url, backend, path) -> None:
    assert (backend_of(url), path_of(url)) == (backend, path)


def test_postgresql_is_postgres() -> None:
    assert backend_of("postgresql://h/d") == backend_of("postgres://h/d") == "postgres"


@pytest.mark.parametrize("url", ["", "no colon", ":x", "1a:x", "a b:x"])
def test_an_invalid_url_is_refused(url) -> None:
    with pytest.raises(ValueError, match="must be a URL"):
        backend_of(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h:1/d?a=b", "postgresql://u:***@h:1/d?a=b"),
        (
            "postgresql://u@h/d?password=x&sslmode=require",
            "postgresql://u@h/d?password=***&sslmode=require",
        ),
        ("postgresql://u:p:q@r@h/d", "postgresql:***"),
        ("postgresql://u:p@[::1/d", "postgresql:***"),
        ("wal:/a/b=c", "wal:/a/b=c"),
        ("sqlite:x", "sqlite:x"),
    ],
)
def test_secrets_are_hidden(url, shown) -> None:
    assert redacted(url) == shown


@given(
    st.text(
        st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/?#[]@"), min_size=12
    )
)
def test_no_password_is_ever_shown(password) -> None:
    url = f"postgresql://user:{password}@host/db"
    assert password not in redacted(url)
    assert password in secrets_of(url)
    assert password not in repr(Config(storage_url=url))


def test_a_url_implies_its_backend_and_a_flag_wins_over_the_environment() -> None:
    config = Config.from_env({"STORAGE_URL": "sqlite:x"})
    assert (config.storage_backend, config.storage_url) == ("sqlite", "sqlite:x")
    assert config.updated({"STORAGE_URL": "wal:y"}).storage_backend == "wal"
    assert (
        Config.from_env({"STORAGE_BACKEND": "memory"})
        .updated({"STORAGE_URL": "wal:y"})
        .storage_backend
        == "wal"
    )


def test_a_url_for_another_backend_ends_the_start_without_its_password() -> None:
    config = Config.from_env(
        {"STORAGE_URL": "postgresql://u:hush@h/d", "STORAGE_BACKEND": "sqlite"}
    )
    with pytest.raises(
        ConfigError, match=r"is for 'postgres', but STORAGE_BACKEND is 'sqlite'"
    ) as caught:
        Plugins(config).open_storage()
    assert "hush" not in str(caught.value)


def test_open_kb_takes_a_url_or_a_name_and_a_path(tmp_path) -> None:
    file = tmp_path / "kb.sqlite"
    with kbcore.open_kb("sqlite", path=file) as kb:
        kb.tell("p", ["a"])
    with kbcore.open_kb(f"sqlite:{file}") as kb:
        assert list(kb.ask("p(?x)")) == [("a",)]
    with kbcore.open_kb("sqlite", config=Config(storage_url=f"sqlite:{file}")) as kb:
        assert list(kb.ask("p(?x)")) == [("a",)]
    with kbcore.open_kb("wal", path=tmp_path / "wal") as kb:
        kb.tell("p", ["b"])
    with kbcore.open_kb(path=tmp_path / "wal") as kb:
        assert list(kb.ask("p(?x)")) == [("b",)]
    with kbcore.open_kb(config=Config(storage_url="sqlite:nowhere")) as kb:
        assert list(kb.ask("p(?x)")) == []
    with pytest.raises(InvalidInput, match="path"):
        kbcore.open_kb(f"sqlite:{file}", path=file)
