"""Scripts and styles of the page, and the policy under which it opens.

The policy allows the page's own scripts and styles by their hashes, scripts from beside the page
where trees lie there, and nothing else: no network, no evaluation of text as code.

Third parties' scripts are files of packages from npm; a folder of them has a manifest beside them.
`scripts/run vendor` writes both.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

STATIC = Path(__file__).parent / "static"
VENDOR = STATIC / "vendor"
MANIFEST = VENDOR / "manifest.json"
PANE = Path(__file__).parent / "templates" / "pane.html.j2"
"""The template of a problem's pane, as HTML: other pages have it, too."""
SCRIPTS = (
    *("store.js", "math.js", "markdown.js", "charts.js"),
    *("problems.js", "tree.js", "pane.js", "viewer.js", "age.js"),
)
"""The page's own, in the order in which they run."""
STYLES = ("page.css",)
_OF_TREES = ("math.js", "markdown.js")
"""Scripts that need vendored libraries (pages with trees)."""
THEME = "theme.json"


class VendoredFile(msgspec.Struct):
    """A file of a package, and its copy here."""

    source: str
    """Where it is in the package's archive."""
    file: str
    """Where it is in the folder of the manifest."""
    sha256: str | None
    """The hash of the copy, in hexadecimal; None until it is fetched."""


class Package(msgspec.Struct, kw_only=True):
    """A third party's package from npm: the file taken from it, and the hashes to verify it."""

    name: str
    version: str
    license: str
    integrity: str | None
    """The hash of the package's archive, as npm has it: `sha512-` and base64."""
    license_file: str
    adapted: str | None = None
    """Our changes to it; None if there are none."""
    files: tuple[VendoredFile, ...]


def read_manifest(manifest: Path) -> tuple[Package, ...]:
    """The packages that a manifest names, in its order."""
    return msgspec.json.decode(manifest.read_bytes(), type=tuple[Package, ...])


@cache
def packages() -> tuple[Package, ...]:
    """The third parties' scripts, in the order in which they run."""
    return read_manifest(MANIFEST)


@cache
def scripts(*, charts: bool, trees: bool, tex: bool) -> tuple[str, ...]:
    """The texts of the page's scripts; those of third parties only where they are needed.

    `trees`: there are some; `tex`: in their texts may be TeX.
    """
    packages_needed = {"d3-hierarchy", "markdown-it"} if trees else set()
    if tex:
        packages_needed.add("katex")
    if charts:
        packages_needed |= {"vega", "vega-lite", "vega-interpreter", "vega-embed"}
    texts = [_vendored(package) for package in packages() if package.name in packages_needed]
    own = (name for name in SCRIPTS if trees or name not in _OF_TREES)
    texts += [(STATIC / name).read_text("utf-8") for name in own]
    return tuple(texts)


@cache
def styles(*, tex: bool) -> str:
    """The page's style sheet, with all fonts that formulas need where there may be some."""
    own = "".join((STATIC / name).read_text("utf-8") for name in STYLES)
    return _FONT.sub(_embedded, (VENDOR / "katex.min.css").read_text("utf-8")) + own if tex else own


_FONT = re.compile(r"url\((fonts/[^)]+\.woff2)\) format\(\"woff2\"\)[^}]*")
"""A font in a style sheet, and after it its older formats."""


def _embedded(font: re.Match[str]) -> str:
    data = base64.b64encode((VENDOR / font[1]).read_bytes()).decode()
    return f'url(data:font/woff2;base64,{data}) format("woff2")'


def chart_theme(ink: str) -> dict[str, Any]:
    """The Vega-Lite configuration of all charts, with axes and texts in the colour `ink`."""
    text = (STATIC / THEME).read_text("utf-8")
    theme: dict[str, Any] = json.loads(text.replace("currentColor", ink))
    return theme


def policy(scripts: Sequence[str], style: str) -> str:
    """The content-security policy of a page with these inline scripts and this style sheet."""
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _vendored(package: Package) -> str:
    license_text = (VENDOR / package.license_file).read_text("utf-8").replace("*/", "* /")
    head = f"/*! {package.name} {package.version}, {package.license}\n{license_text}*/\n"
    files = (VENDOR / each.file for each in package.files if each.file.endswith(".js"))
    text = "".join(file.read_text("utf-8") for file in files)
    # in a text or a pattern; in a page it would begin a comment
    return head + text.replace("<!--", r"\x3c!--")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
