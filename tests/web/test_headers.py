import socket

import pytest

from tokenspace.web.headers import allowed


@pytest.mark.parametrize(
    "header",
    ["127.0.0.1", "127.0.0.1:8000", "localhost:1", "LOCALHOST", "localhost.:80", "[::1]", "[::1]:8000"],
)
def test_this_machines_own_names_are_answered(header):
    assert allowed(header, "127.0.0.1")


@pytest.mark.parametrize(
    "header",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example/127.0.0.1",
        "192.168.1.5",
        "[::2]",
        "[::1]evil.example",
        "[::1",
        "::1:x",
        "127.0.0.1:port",
        "localhost:80:80",
        "",
        " ",
        "0.0.0.0",
    ],
)
def test_other_names_are_not(header):
    assert not allowed(header, "127.0.0.1")


def test_the_host_that_was_bound_is_answered():
    assert allowed("box.lan:8000", "box.lan")
    assert allowed("192.168.1.5:8000", "192.168.1.5")
    assert not allowed("other.lan:8000", "box.lan")


def test_bound_to_all_addresses_any_address_is_answered_but_no_other_name():
    assert allowed("192.168.1.5:8000", "0.0.0.0")
    assert allowed("[fe80::1]:8000", "::")
    assert allowed(socket.gethostname(), "0.0.0.0")
    assert not allowed("evil.example", "0.0.0.0")
