"""The parser of hosts: what it accepts, and that it refuses everything odd."""

from __future__ import annotations

import pytest

from kbcore.config.hosts import MAX_AUTHORITY, read_authority, read_host

LOOPBACK = (
    "localhost",
    "localhost:9300",
    "LocalHost:1",
    "localhost.",
    "localhost.:9300",
    "127.0.0.1",
    "127.0.0.1:65535",
    "127.255.255.254:80",
    "[::1]",
    "[::1]:9300",
    "[0:0:0:0:0:0:0:1]:80",
    "[::ffff:127.0.0.1]",
    "[::FFFF:7f00:1]:9300",
)

OTHERS = {
    "kb.example": ("kb.example", None),
    "KB.Example.:443": ("kb.example", 443),
    "my_host": ("my_host", None),
    "xn--bcher-kva.example:80": ("xn--bcher-kva.example", 80),
    "localhost.evil.example": ("localhost.evil.example", None),
    "127.0.0.1.evil.example:9300": ("127.0.0.1.evil.example", 9300),
    "127.0.0.1.localhost": ("127.0.0.1.localhost", None),
    "evil.localhost": ("evil.localhost", None),
    "10.0.0.1:80": ("10.0.0.1", 80),
    "0.0.0.0": ("0.0.0.0", None),  # nosec B104 - compared, not bound
    "[FE80::1]:9300": ("fe80::1", 9300),
    "[::]": ("::", None),
    "[::ffff:10.0.0.1]": ("10.0.0.1", None),
}

MALFORMED = (
    "",
    " ",
    ".",
    "..",
    "localhost..",
    ".localhost",
    "a..b",
    "localhost .",
    " localhost",
    "localhost:",
    "localhost:0",
    "localhost:-1",
    "localhost:65536",
    "localhost:99999999999",
    "localhost:80:80",
    "localhost:+80",
    "localhost: 80",
    "localhost:8O",
    "localhost:\u0663",
    "user@localhost",
    "localhost@evil.example",
    "localhost:80@evil.example",
    "a:b@localhost",
    *("http://localhost", "//localhost", "localhost/", "localhost/x", "localhost?x", "localhost#x"),
    "localhost\\evil.example",
    "localhost\tx",
    "localhost\n",
    "localhost\x00",
    "localhost\r\n",
    "localhost,evil.example",
    "localhost, localhost",
    "localhost;x",
    "localhost%00",
    "%6cocalhost",
    "::1",
    "[::1",
    "::1]",
    "[::1]x",
    "[::1]:",
    "[[::1]]",
    "[]",
    "[:]",
    "[127.0.0.1]",
    "[fe80::1%eth0]",
    "[::1%25lo]",
    "[::1%lo]:80",
    "fe80::1%eth0",
    "[localhost]",
    "[v1.x]",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "127.0.0.01",
    "127.0.0.1.",
    "127.0.0.256",
    "1.2.3.4.5",
    "evil.0x7f",
    "evil.127",
    "\uff4cocalhost",
    "\u212aelvin",
    "l\u00f6calhost",
    "localhost\u3002",
    "\uff1127.0.0.1",
    "a" * 64,
    "a." * 130 + "a",
    "*",
    "*.example",
    "a b",
    "'localhost'",
    '"',
    "<x>",
    "a|b",
    "~",
)


@pytest.mark.parametrize("text", LOOPBACK)
def test_loopback(text: str) -> None:
    host = read_authority(text)
    assert host is not None
    assert host.is_loopback
    assert not host.is_wildcard
    assert len(text) <= MAX_AUTHORITY


@pytest.mark.parametrize("text", OTHERS)
def test_other_hosts(text: str) -> None:
    host = read_authority(text)
    assert host is not None
    assert (host.name, host.port) == OTHERS[text]
    assert not host.is_loopback
    assert host.is_wildcard == (text in ("0.0.0.0", "[::]"))  # nosec B104 - compared


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed(text: str) -> None:
    assert read_authority(text) is None


def test_settings_may_leave_out_brackets_and_have_no_port() -> None:
    for text, name in (("::1", "::1"), ("[::1]", "::1"), ("::ffff:10.0.0.1", "10.0.0.1")):
        host = read_host(text)
        assert host is not None
        assert host.name == name
    for text in ("kb.example:80", "10.0.0.1:80", "[::1]:80", "fe80::1%eth0", "https://kb.example"):
        assert read_host(text) is None


def test_no_accepted_host_is_longer_than_the_limit() -> None:
    longest = ".".join(["a" * 63] * 3 + ["a" * 61]) + ".:65535"
    assert read_authority(longest) is not None
    assert len(longest) <= MAX_AUTHORITY
    assert read_authority("a" + longest) is None
