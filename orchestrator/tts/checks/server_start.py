"""The check of where a server would listen."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from tts.base.findings import Finding
from tts.build.inputs import Inputs
from tts.serving.command.ports import is_loopback

_WHERE = "server.host"
_LOOPBACK = "Use 127.0.0.1, which only this machine can reach."


def host(inputs: Inputs) -> Iterator[Finding]:
    """The server's host is an address of this machine, and open to others only knowingly."""
    spec = inputs.deployment.server
    if not inputs.deployment.engines():
        return  # nothing is started
    if problem := _unusable(spec.host):
        yield Finding(
            f"is {spec.host!r}, {problem}",
            _WHERE,
            "a server that is started here cannot listen there",
            _LOOPBACK,
            "warning",  # the server may be meant for another machine
        )
    elif not is_loopback(spec.host):
        yield Finding(
            f"is {spec.host!r}, which opens the server to every machine that reaches this one",
            _WHERE,
            "nobody is asked for a password: whoever connects can use the models and end the "
            "server (docs/explanation/security.md)",
            f"{_LOOPBACK} Others reach it through a tunnel (ssh -L), or in a network that you "
            "trust.",
            "warning",
        )


def _unusable(name: str) -> str | None:
    """Why no server on this machine can listen at a host; None if one can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:  # as Triton, IPv4 only
        try:
            bound.bind((name, 0))
        except socket.gaierror:
            return "a name that has no IPv4 address here"
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return "which is not an address of this machine"
            return f"at which nothing can listen: {error.strerror}"
    return None
