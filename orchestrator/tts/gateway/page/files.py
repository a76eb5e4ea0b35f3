"""The page's files as responses. Nothing of it comes from another host."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tts.reports.page.assets import scripts, styles
from tts.reports.page.page import PANE

from ..exchange import Exchange
from ..openai.errors import ApiError, quoted
from ..service import Service

PAGE = "/"
FOLDER = "/page/"
"""Scripts and styles are below it."""

_STATIC = Path(__file__).parent / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)


async def page(service: Service, exchange: Exchange) -> None:
    """`/`, and what is below `/page/`."""
    found = _files().get(exchange.path)
    if found is None:
        raise ApiError(404, f"There is nothing at {quoted(exchange.path)}.")
    content, kind = found
    exchange.extra_headers += SECURITY
    if exchange.path == PAGE:
        exchange.extra_headers.append((b"content-security-policy", _POLICY.encode()))
    await exchange.respond(content, content_type=kind + b"; charset=utf-8")


@cache
def _files() -> dict[str, tuple[bytes, bytes]]:
    """Contents and types by path."""
    viewer = "".join(scripts(charts=False, trees=True))
    html = (_STATIC / "page.html").read_text("utf-8").replace("<!-- pane -->", PANE.read_text())
    texts = {
        PAGE: (html, b"text/html"),
        f"{FOLDER}page.js": ((_STATIC / "page.js").read_text("utf-8"), b"text/javascript"),
        f"{FOLDER}page.css": ((_STATIC / "page.css").read_text("utf-8"), b"text/css"),
        f"{FOLDER}viewer.js": (viewer, b"text/javascript"),
        f"{FOLDER}viewer.css": (styles(), b"text/css"),
    }
    return {path: (text.encode(), kind) for path, (text, kind) in texts.items()}
