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
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

STATIC = Path(__file__).parent / "static"
VENDOR = STATIC / "vendor"
MANIFEST = VENDOR / "manifest.json"
SCRIPTS = ("store.js", "charts.js", "problems.js", "tree.js", "pane.js", "viewer.js")
"""The page's own, in the order in which they run."""
STYLES = ("page.css",)
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
def scripts(*, charts: bool, trees: bool) -> tuple[str, ...]:
    """The texts of the page's scripts; those of third parties only where they are needed."""
    wanted = {"d3-hierarchy"} if trees else set()
    if charts:
        wanted |= {"vega", "vega-lite", "vega-interpreter", "vega-embed"}
    texts = [_vendored(package) for package in packages() if package.name in wanted]
    texts += [(STATIC / name).read_text("utf-8") for name in SCRIPTS]
    return tuple(texts)


@cache
def styles() -> str:
    """The page's style sheet."""
    return "".join((STATIC / name).read_text("utf-8") for name in STYLES)


def chart_theme(ink: str) -> dict[str, Any]:
    """The Vega-Lite configuration of all charts, with axes and texts in the colour `ink`."""
    text = (STATIC / THEME).read_text("utf-8")
    theme: dict[str, Any] = json.loads(text.replace("currentColor", ink))
    return theme


def policy(scripts: Sequence[str], style: str) -> str:
    """The content-security policy of a page with these inline scripts and this style sheet."""
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _vendored(package: Package) -> str:
    license_text = (VENDOR / package.license_file).read_text("utf-8").replace("*/", "* /")
    head = f"/*! {package.name} {package.version}, {package.license}\n{license_text}*/\n"
    return head + "".join((VENDOR / each.file).read_text("utf-8") for each in package.files)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
