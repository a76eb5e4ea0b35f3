"""How large the project is: of this checkout, or of revisions side by side, from git archive.

    scripts/run size
    scripts/run size f47a7b2 HEAD
    scripts/run size --words build/tts/build orchestrator/tts/search

Source lines are those of the four source roots, with comments and docstrings. Words are those of
the pages below docs/, generated ones included. Two counts are of style: variables, parameters,
attributes and functions that are called by a bare participle, and docstrings that begin without
their noun. `--words` lists both for some folders.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = ("build", "engines", "triton_repo", "orchestrator")
FOLDERS = (*SOURCE_ROOTS, "scripts", "tests", "docs")
_PARTICIPLES = """
asked begun chosen counted done drawn ended found given got grown heard held kept known learnt left
lost made meant named opened put said seen sent shown spent taken told tried used wanted worth
written
"""
PARTICIPLES = frozenset(_PARTICIPLES.split())
OPENERS = ("And", "As", "By", "Likewise", "Of", "So", "Such", "That", "The same", "These", "Those")
"""Words at the beginning of a docstring that leave its noun to the reader."""


def main() -> None:
    """Print a column of numbers for each revision that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", metavar="REV", help="revisions; this checkout")
    parser.add_argument("--words", nargs="+", metavar="FOLDER", type=Path, help="list style")
    options = parser.parse_args()
    for file in sorted(file for folder in options.words or () for file in folder.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for line, problem in sorted([*participles(text), *nounless_docstrings(text)]):
            print(f"{file}:{line} {problem}")
    if options.words:
        return
    revisions = options.revisions
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
    sources = [text for files in by_root.values() for text in files]
    return {
        "source lines": lines(sources),
        **{f"  {name}": lines(files) for name, files in by_root.items()},
        "modules": len(sources),
        "participles as names": sum(1 for text in sources for _ in participles(text)),
        "docstrings without noun": sum(1 for text in sources for _ in nounless_docstrings(text)),
        "lines of scripts": lines(texts(root / "scripts")),
        "lines of tests": lines(texts(root / "tests")),
        "words of documentation": sum(len(text.split()) for text in texts(root / "docs", "md")),
    }


def participles(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of each binding of a bare participle: variable, parameter, function."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case _:
                continue
        if name in PARTICIPLES:
            yield node.lineno, name


def nounless_docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and beginning of each docstring, attributes' included, that lacks its noun."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                if text.startswith(tuple(f"{opener} " for opener in OPENERS)):
                    yield node.lineno, text.partition("\n")[0]


def texts(folder: Path, suffix: str = "py") -> list[str]:
    """The texts of the files in a folder, however deep."""
    return [file.read_text(encoding="utf-8") for file in sorted(folder.rglob(f"*.{suffix}"))]


def lines(files: list[str]) -> int:
    """The lines of some texts, all together."""
    return sum(text.count("\n") for text in files)


if __name__ == "__main__":
    main()
