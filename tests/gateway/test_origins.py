"""Which pages may use the gateway."""

import pytest

from tts.gateway.app import is_allowed, is_own_host


@pytest.mark.parametrize(
    ("origin", "host", "named", "needs_key", "allowed"),
    [
        ("http://localhost:8080", "localhost:8080", (), False, True),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", (), False, True),
        ("http://[::1]:8080", "[::1]:8080", (), False, True),
        ("http://evil.example", "evil.example", (), False, False),  # resolves to this machine
        ("https://tts.example", "tts.example", (), True, True),
        ("https://other.example", "tts.example", (), True, False),
        ("https://other.example", "tts.example", ("https://other.example",), True, True),
        ("https://other.example", "localhost:8080", ("*",), False, True),
        ("null", "localhost:8080", (), False, False),
        ("http://[", "localhost:8080", (), False, False),
    ],
)
def test_a_page_is_the_gateways_own_or_named(origin, host, named, needs_key, allowed):
    assert is_allowed(origin, host, named, needs_key=needs_key) is allowed


@pytest.mark.parametrize(
    ("host", "named", "needs_key", "own"),
    [
        ("localhost:8080", (), False, True),
        ("LOCALHOST", (), False, True),
        ("127.0.0.1:8080", (), False, True),
        ("[::1]:8080", (), False, True),
        ("192.168.1.5:8080", (), False, True),  # no name that could mean another address
        ("", (), False, True),
        ("evil.example:8080", (), False, False),  # resolves to this machine
        ("localhost.evil.example", (), False, False),
        ("127.0.0.1.evil.example", (), False, False),
        ("127.0.0.1#evil", (), False, False),
        ("127.0.0.1/evil", (), False, False),
        ("127.0.0.1?evil", (), False, False),
        ("evil@127.0.0.1", (), False, False),
        ("[", (), False, False),
        ("evil.example:8080", (), True, True),
        ("tts.example", ("https://tts.example",), False, True),
        ("tts.example", ("https://other.example",), False, False),
        ("tts.example", ("*",), False, True),
    ],
)
def test_without_keys_a_host_is_a_name_of_this_machine(host, named, needs_key, own):
    assert is_own_host(host, named, needs_key=needs_key) is own
