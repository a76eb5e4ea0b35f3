"""Hooks of the documentation's site: pages outside of docs/, and links between all of them.

In the repository a link is relative to its file; on the site benchmarks/ and CONTRIBUTING.md lie
beside the pages of docs/. Links to other files of the repository become plain text, as the site
does not hold them.
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


def outside_pages() -> list[Path]:
    """The pages of the site that are not below docs/, relative to the repository."""
    found = [*sorted((ROOT / "benchmarks").glob("*.md")), ROOT / "CONTRIBUTING.md"]
    changes = ROOT / "CHANGELOG.md"
    return [page.relative_to(ROOT) for page in [*found, changes] if page.exists()]


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside of docs/ to the site."""
    structure = importlib.import_module("mkdocs.structure.files")
    for page in outside_pages():
        files.append(
            structure.File.generated(config, page.as_posix(), abs_src_path=str(ROOT / page))
        )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The text of a page with its links as the site needs them, but for code blocks."""
    here = PurePosixPath(page.file.src_uri)
    outside = {path.as_posix() for path in outside_pages()}
    in_repository = here if here.as_posix() in outside else PurePosixPath("docs") / here
    parts = _CODE.split(markdown)
    return "".join(
        part if place % 2 else _LINK.sub(lambda found: _link(found, in_repository, outside), part)
        for place, part in enumerate(parts)
    )


def _link(found: re.Match[str], page: PurePosixPath, outside: set[str]) -> str:
    """One link on a page of the repository, as the site needs it."""
    image, text, target, anchor = found[1], found[2], found[3], found[4] or ""
    if "://" in target or target.startswith("mailto:"):
        return found[0]
    wanted = os.path.normpath(page.parent / target)
    if not wanted.startswith("docs/") and wanted not in outside:
        return text
    return (
        f"{image}[{text}]({os.path.relpath(_on_site(wanted), _on_site(str(page.parent)))}{anchor})"
    )


def _on_site(path: str) -> str:
    """Where a file or folder of the repository lies on the site."""
    return os.path.relpath(path, "docs") if (path + "/").startswith("docs/") else path
