"""How large the project is, and how much of it repeats itself: of a checkout or of revisions.

    scripts/run size                 # this checkout as it is
    scripts/run size f47a7b2 HEAD    # revisions side by side, from git archive

Source lines are those of the four source roots, with comments and docstrings. A reader of the log
is a module that asks whether an event is of a certain type; a look-up is config["..."] or
summary["..."]. Everything is found in the syntax trees; nothing is imported.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = ("build", "engines", "triton_repo", "orchestrator")
FOLDERS = (*SOURCE_ROOTS, "scripts", "tests")
EVENTS = ("orchestrator/tts/runs/events.py", "orchestrator/tts/runlog/events.py")
"""Where the events of the log are defined, now and in older revisions."""
LONG = 60
KEYED = {"config", "summary"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Print a column of numbers for each revision that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", metavar="REV", help="revisions; this checkout")
    revisions = parser.parse_args().revisions
    columns = [sizes(ROOT)] if not revisions else list(map(sizes_at, revisions))
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
    texts = {
        file: file.read_text(encoding="utf-8")
        for source in SOURCE_ROOTS
        for file in sorted((root / source / "tts").rglob("*.py"))
    }
    trees = {file: ast.parse(text) for file, text in texts.items()}
    nodes = {file: list(ast.walk(tree)) for file, tree in trees.items()}
    every = [node for of_file in nodes.values() for node in of_file]
    orchestrator = [file for file in texts if "orchestrator" in file.relative_to(root).parts]
    packages = {file.relative_to(root).parts[2] for file in orchestrator if file.name[0] == "_"}
    names = Counter(file.name for file in texts if file.name[0] != "_")
    functions = [node for node in every if isinstance(node, Function)]
    events = event_names(root)
    scripts = list(scripts_of(root))
    return {
        "source lines": sum(text.count("\n") for text in texts.values()),
        "modules": len(texts),
        "packages": len({file.parent for file in texts}),
        "packages directly in the orchestrator": len(packages),
        "readers of the log": sum(reads_events(of_file, events) for of_file in nodes.values()),
        "look-ups by string key of config and summary": sum(map(is_look_up, every)),
        "functions": len(functions),
        f"functions over {LONG} lines": sum(lines_of(node) > LONG for node in functions),
        'docstrings that begin with "Of "': sum(map(begins_with_of, every)),
        "file names more than once": sum(count > 1 for count in names.values()),
        "file names more than twice": sum(count > 2 for count in names.values()),
        "lines of scripts": sum(text.count("\n") for _, text in scripts),
        "Python programs without an extension": sum(
            not file.suffix and "python" in text.partition("\n")[0] for file, text in scripts
        ),
        "lines of tests": sum(
            file.read_text(encoding="utf-8").count("\n") for file in (root / "tests").rglob("*.py")
        ),
    }


def scripts_of(root: Path) -> Iterator[tuple[Path, str]]:
    """The programs and modules below scripts/, with their text."""
    for file in (root / "scripts").rglob("*"):
        if file.is_file() and file.suffix in ("", ".py"):
            yield file, file.read_text(encoding="utf-8")


def event_names(root: Path) -> set[str]:
    """The names of the events that a log may hold."""
    (file,) = (root / name for name in EVENTS if (root / name).is_file())
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any(word.arg == "tag" for word in node.keywords)
    }


def reads_events(nodes: list[ast.AST], events: set[str]) -> bool:
    """Whether a module tells events apart by their type."""
    for node in nodes:
        match node:
            case ast.Call(ast.Name("isinstance"), [_, kinds]):
                named = {name_of(part) for part in ast.walk(kinds)}
            case ast.MatchClass(kind):
                named = {name_of(kind)}
            case _:
                continue
        if named & events:
            return True
    return False


def name_of(node: ast.AST) -> str:
    """The last part of a name, or nothing."""
    return getattr(node, "id", None) or getattr(node, "attr", None) or ""


def is_look_up(node: ast.AST) -> bool:
    """Whether it is config["..."], summary["..."] or run.config["..."], and the like."""
    match node:
        case ast.Subscript(value, ast.Constant(str())):
            return name_of(value) in KEYED
    return False


def lines_of(node: Function) -> int:
    """The lines of a function, from `def` to its last."""
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def begins_with_of(node: ast.AST) -> bool:
    """Whether it is a docstring, or the text below a field, that begins with "Of "."""
    match node:
        case ast.Expr(ast.Constant(str(text))):
            return text.startswith("Of ")
    return False


if __name__ == "__main__":
    main()
