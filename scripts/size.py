"""How large the project is: of this checkout, or of revisions side by side, from git archive.

    scripts/run size
    scripts/run size f47a7b2 HEAD

Source lines are those of the four source roots, with comments and docstrings. Words are those of
the pages below docs/, generated ones included.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = ("build", "engines", "triton_repo", "orchestrator")
FOLDERS = (*SOURCE_ROOTS, "scripts", "tests", "docs")


def main() -> None:
    """Print a column of numbers for each revision that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", metavar="REV", help="revisions; this checkout")
    revisions = parser.parse_args().revisions
    columns = list(map(sizes_at, revisions)) or [sizes(ROOT)]
    table = Table("", *(revisions or ["checkout"]))
    for name in columns[0]:
        table.add_row(name, *(f"{column[name]:,}" for column in columns))
    Console().print(table)


def sizes_at(revision: str) -> dict[str, int]:
    """The numbers of a revision of this repository."""
    archive = ["git", "-C", str(ROOT), "archive", revision, *FOLDERS]
    packed = subprocess.run(archive, check=True, stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory(prefix="tts-size-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(folder, filter="data")
        return sizes(Path(folder))


def sizes(root: Path) -> dict[str, int]:
    """The numbers of the checkout at `root`, by what they count."""
    by_root = {name: texts(root / name / "tts") for name in SOURCE_ROOTS}
    sources = [text for found in by_root.values() for text in found]
    return {
        "source lines": lines(sources),
        **{f"  {name}": lines(found) for name, found in by_root.items()},
        "modules": len(sources),
        "lines of scripts": lines(texts(root / "scripts")),
        "lines of tests": lines(texts(root / "tests")),
        "words of documentation": sum(len(text.split()) for text in texts(root / "docs", "md")),
    }


def texts(folder: Path, suffix: str = "py") -> list[str]:
    """The texts of the files in a folder, however deep."""
    return [file.read_text(encoding="utf-8") for file in sorted(folder.rglob(f"*.{suffix}"))]


def lines(found: list[str]) -> int:
    """The lines of some texts, all together."""
    return sum(text.count("\n") for text in found)


if __name__ == "__main__":
    main()
