"""The page at `/`: chats and searches, with the trees that grow, and scores.

    browser ──► /v1/models/NAME: what can be set, as a form
            ──► /v1/chat/completions, streamed ──► text, or steps ──► the report's own tree viewer
            ──► /pooling: the scores of an answer that has none

In the browser (`static/`, modules): `main.js` holds the conversation, `settings.js` the form,
`asking.js` gets an answer through `api.js`, `turn.js` and `live_tree.js` show it, `markdown.js` and
`math.js` draw a model's text, `history.js` and `history_list.js` keep conversations.
`static/vendor/` holds third parties' builds, which `scripts/run vendor` fetches and verifies.

A model's text never becomes HTML: tokens of Markdown make elements of known names, and the policy
(trusted types) forbids any script to set HTML. Nothing of the page comes from another host.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tts.reports.page.assets import PANE, scripts, styles

from ..call import Call
from ..openai.errors import ApiError, quoted

PAGE = "/"
FOLDER = "/page/"

STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
}
"""Files that are served, by the ends of their names."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src data:; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No inline script or style, no other host, and no text that a script could turn into HTML."""
SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)


@dataclass(frozen=True)
class _File:
    content: bytes
    kind: bytes
    tag: str
    """Equal for equal contents: a browser that has the file asks whether it is still the one."""

    @classmethod
    def of(cls, path: str, content: bytes) -> _File:
        tag = hashlib.sha256(content).hexdigest()[:32]
        return cls(content, _TYPES[Path(path).suffix], f'"{tag}"')


async def page(call: Call[None]) -> None:
    """Respond with `/`, or a file below `/page/`."""
    exchange = call.exchange
    file = _files().get(exchange.path)
    if file is None:
        raise ApiError(404, f"There is nothing at {quoted(exchange.path)}.")
    exchange.extra_headers += [*SECURITY, (b"etag", file.tag.encode())]
    if exchange.path == PAGE:
        exchange.extra_headers.append((b"content-security-policy", POLICY.encode()))
    if exchange.header(b"if-none-match") == file.tag:
        await exchange.respond(b"", 304)
        return
    await exchange.respond(file.content, content_type=file.kind)


@cache
def _files() -> dict[str, _File]:
    files = {
        FOLDER + file.relative_to(STATIC).as_posix(): file.read_bytes()
        for file in STATIC.rglob("*")
        if file.suffix in _TYPES
    }
    html = files.pop(f"{FOLDER}page.html").replace(b"<!-- pane -->", PANE.read_bytes())
    files[f"{FOLDER}viewer.js"] = "".join(scripts(charts=False, trees=True, tex=True)).encode()
    files[f"{FOLDER}viewer.css"] = styles(tex=True).encode()
    served = {path: _File.of(path, content) for path, content in files.items()}
    return {PAGE: _File.of("page.html", html), **served}
