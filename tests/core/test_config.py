"""Settings: fields with parser and help, and messages for invalid values."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kbcore.config import SETTINGS, Config, Setting
from kbcore.errors import ConfigError

BY_NAME = {setting.name: setting for setting in SETTINGS}


def test_every_field_is_a_setting_with_one_line_of_help() -> None:
    assert [setting.field for setting in SETTINGS] == [field.name for field in fields(Config)]
    for setting in SETTINGS:
        assert setting.help
        assert "\n" not in setting.help + setting.parser.permitted


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_default_can_be_set_by_its_text(setting: Setting) -> None:
    text = setting.parser.format(setting.default)
    assert not text or setting.parse(text) == setting.default


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("PORT", "many", "PORT='many': must be an integer from 0 to 65535"),
        ("PORT", "65536", "PORT='65536': must be an integer from 0 to 65535"),
        ("QUERY_MAX_ROWS", "0", "QUERY_MAX_ROWS='0': must be an integer of at least 1"),
        ("FSYNC_POLICY", "d", "FSYNC_POLICY='d': must be one of always, interval, never"),
        ("AUTH_ENABLED", "maybe", "AUTH_ENABLED='maybe': must be true or false"),
        (
            "QUERY_SALIENCE_WEIGHT",
            "nan",
            "QUERY_SALIENCE_WEIGHT='nan': must be a number from 0 to 1",
        ),
        ("RATE_LIMIT", "600", "RATE_LIMIT='600': must be requests/seconds, such as 600/60"),
        ("API_KEY", "two words", "API_KEY=(not shown): must be printable ASCII without spaces"),
    ],
)
def test_a_message_names_the_setting_and_the_permitted_values(
    name: str, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Config().updated({name: text})
    assert caught.value.message == message


def test_a_password_in_an_invalid_address_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        Config().updated({"LEADER_URL": "http://user:hush@host"})
    assert "hush" not in caught.value.message


def test_secrets_and_storage_urls_are_formatted_without_their_secrets() -> None:
    assert BY_NAME["API_KEY"].parser.format("hush") == "(not shown)"
    assert BY_NAME["API_KEY"].parser.format("") == ""
    assert "hush" not in BY_NAME["STORAGE_URL"].parser.format("postgresql://u:hush@h/d")
