"""Hooks of the documentation's site: pages outside of docs/, and links between all of them.

In the repository a link is relative to its file; on the site README.md is the first page, and
benchmarks/ and CONTRIBUTING.md lie beside the pages of docs/. Links to other files of the
repository become plain text, as the site does not hold them.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def outside_pages() -> dict[str, str]:
    """The pages of the site that are not below docs/: where they are there, by their file."""
    benchmarks = (str(page.relative_to(ROOT)) for page in (ROOT / "benchmarks").glob("*.md"))
    return {"README.md": "index.md"} | {
        name: name for name in (*sorted(benchmarks), "CONTRIBUTING.md", "CHANGELOG.md")
    }


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside of docs/ to the site."""
    structure = importlib.import_module("mkdocs.structure.files")
    for name, place in outside_pages().items():
        files.append(structure.File.generated(config, place, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The text of a page with its links as the site needs them, but for code blocks."""
    place = page.file.src_uri
    names = {place: name for name, place in outside_pages().items()}
    folder = PurePosixPath(names.get(place, f"docs/{place}")).parent
    parts = _CODE.split(markdown)
    return "".join(
        part if i % 2 else _LINK.sub(lambda match: _link(match, folder, place), part)
        for i, part in enumerate(parts)
    )


def _link(match: re.Match[str], folder: PurePosixPath, place: str) -> str:
    """One link of a page in a folder of the repository, as its place on the site needs it."""
    image, text, target, anchor = match[1], match[2], match[3], match[4] or ""
    if "://" in target or target.startswith("mailto:"):
        return match[0]
    page = os.path.normpath(folder / target)
    on_site = outside_pages().get(page)
    if on_site is None and not page.startswith("docs/"):
        return text
    here = PurePosixPath(place).parent
    there = os.path.relpath(on_site or page.removeprefix("docs/"), here)
    return f"{image}[{text}]({there}{anchor})"
