"""Checks of where a server would listen."""

import pytest
from tests.checks.deployments import changed, serious


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_a_loopback_host_is_fine(host: str):
    assert serious(changed("demo", {"server.host": host})) == []


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("0.0.0.0", "opens the server to every machine that reaches this one"),
        ("192.0.2.7", "which is not an address of this machine"),  # of RFC 5737, nobody's
        ("no-such-host.invalid", "a name that has no IPv4 address here"),
    ],
)
def test_a_host_that_is_no_address_or_open_is_doubted(host: str, what: str):
    (finding,) = serious(changed("demo", {"server.host": host}))
    assert (finding.severity, finding.where) == ("warning", "server.host")
    assert finding.what.startswith(f"is '{host}', ")
    assert what in finding.what
    assert "127.0.0.1" in finding.fix
