"""Which web pages may use the gateway: those of its own, and of origins that were named. Pure.

A browser sends a page's origin with every POST, and asks before it lets a page of another origin
read an answer; with a GET to its own host it sends none. Without keys the gateway is for this
machine, so a request that calls it by another name is refused, whatever that name resolves to: its
page may be anybody's (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

ANY = "*"
_EXPOSED = b"x-tts-gateway-ms, x-tts-ignored, retry-after, x-ratelimit-remaining-requests"
_METHODS = b"GET, POST, OPTIONS"
_MAX_AGE_S = b"600"

Headers = list[tuple[bytes, bytes]]


def is_allowed(origin: str, host: str, origins: Sequence[str], *, needs_key: bool) -> bool:
    """Whether a page of `origin` may use the gateway, which it has called `host`."""
    if ANY in origins or origin in origins:
        return True
    try:
        at = urlsplit(origin)
    except ValueError:
        return False
    return at.netloc == host and (needs_key or _is_this_machine(at.hostname or ""))


def is_own_host(host: str, origins: Sequence[str], *, needs_key: bool) -> bool:
    """Whether `host`, as a request calls the gateway, is a name that no page of others can have.

    An address is none that a DNS server makes up; a client without a name for it is no browser.
    """
    if needs_key or not host or ANY in origins:
        return True
    try:
        if host in [urlsplit(origin).netloc for origin in origins]:
            return True
        at = urlsplit(f"//{host}")
        name = at.hostname or ""
        if at.netloc != host or at.username is not None:  # no client writes a path or user here
            return False
    except ValueError:
        return False
    return name == "localhost" or _address(name) is not None


def _is_this_machine(name: str) -> bool:
    if name == "localhost":
        return True
    address = _address(name)
    return address is not None and address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def answer_headers(origin: str, origins: Sequence[str]) -> Headers:
    """Headers that let a page of a named origin read an answer; none for the gateway's own."""
    if ANY not in origins and origin not in origins:
        return []
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]


def preflight_headers(origin: str, headers: str, origins: Sequence[str]) -> Headers:
    """Headers for a browser that asks whether a page may send a request with `headers`."""
    return [
        *answer_headers(origin, origins),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", headers.encode("latin-1")),
        (b"access-control-max-age", _MAX_AGE_S),
    ]
