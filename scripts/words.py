r"""Find sentences that are hard to read, in pages, help texts, messages and docstrings.

    scripts/run words                          # everything
    scripts/run words docs/guides help         # a folder of pages, and the command line's help
    scripts/run words messages docstrings      # errors and hints in the code; its docstrings

A finding is the place, the advice and the sentence. PATTERNS is the list of what is looked for: to
add a rule, add a row, and its sentence to `tests/scripts/test_words.py`. Code, link targets and
quotations are not looked at. A style guide for everything else is CONTRIBUTING.md's "Rules".
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from scripts.programs import ROOT
from tts.build import errors

PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "benchmarks",
    "examples",
)
SOURCES = ("build", "engines", "triton_repo", "orchestrator")
MOST_WORDS = 45
"""A sentence with more words is a finding, except in a docstring."""

PATTERNS: tuple[tuple[str, str], ...] = (
    (r"^What\b[^?]*\b(?:is|are|was|were|has|have|may|can|must)\b[^?]*$", "name the subject"),
    (r"^Who\b[^?]*$", "name the subject: 'users who', 'a class that'"),
    (r"^(?:Of|From|Before|To) (?:\S+ ?){1,4}(?:, at most)?\.$", "write a whole sentence"),
    (r"\bof which (?:any|each|none|some|one|all|the|only)\b", "two sentences, or 'any of which'"),
    (r"\bas ever\b", "say how it works"),
    (r"\ba (\w+) more is a\b", "'Each ... adds ...'"),
    (r"(?:\s[\u2013\u2014]\s.*){2,}", "at most one dash in a sentence"),
    (r"\bbut for (?:its|their|the|a|an|those|what|how|some|one)\b", "'except'"),
    (r"\b(?:is|are|was|were) said\b", "'is reported', or say it"),
    (r"\b(?:is|are|to be) another\b[.,;:]?(?!\s\w)", "'differs'"),
    (r"\bfrom (?:which|there|then) on\b", "'since', 'after that', 'beyond which'"),
    (r"\bin (?:the place of|(?:its|their|the \w+'s) place)\b", "'instead of'"),
    (r"\bha(?:s|ve) not (?:what|the|a|any)\b", "'does not have'"),
    (r"\bfor nobody\b|\bby nobody\b|\bnobody's\b", "say who or what"),
    (r"\bso many (?:\w+ )?(?:as|of|at)\b|\bso much (?:as|of) (?!possible)", "'as many as', 'that'"),
    (r"\b(?:lies|lie) (?:in|at|beside|below|beneath)\b", "'is in'"),
    (r"\btold (?:apart|of)\b|\btells? of\b", "'distinguish', 'reports'"),
    (r"\bwhatever (?:has|have) become of\b|\bwhat (?:be|has be)comes? of\b", "say what happens"),
    (r"\bwithout a word\b|\bgoes without\b|\bwho wants to\b", "say it directly"),
    (r"^\w+ is true\.$", "say what is counted or meant"),
    (r"\bhang(?:s)? on\b|\bshut each other\b|\bpromised too much\b", "say it without a picture"),
    (r"\bonce more than\b|\bthe one and the other\b|\bthe more so\b", "say it without a riddle"),
)
"""What is looked for in a sentence, and what to write in its place."""
ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type)}
"""The classes whose message and hint are read."""
_COMPILED = [(re.compile(pattern), advice) for pattern, advice in PATTERNS]


@dataclass(frozen=True)
class Finding:
    """A sentence that is hard to read."""

    place: str
    advice: str
    sentence: str
    is_pattern: bool = True
    """Found by a pattern, and not for its length."""

    def __str__(self) -> str:
        return f"{self.place}: {self.advice}\n    {self.sentence}"


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of a Markdown page, with the line where their paragraph begins.

    Items of lists and cells of tables are paragraphs of their own. Left out: code, headings,
    quotations, and front matter.
    """
    text = re.sub(r"^(```|~~~).*?^\1", _blank, text, flags=re.M | re.S)
    text = re.sub(r"\A---\n.*?^---$|<!--.*?-->", _blank, text, flags=re.M | re.S)
    paragraph: list[str] = []
    began = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        starts = re.match(r"\s*(?:[-*+]|\d+\.)\s+", line)
        if not line.strip() or line.startswith(("    ", "#", "|", ">")) or starts:
            yield from ((began, each) for each in _split(" ".join(paragraph)))
            paragraph = []
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip("| ")):
                yield from ((number, each) for each in _split(cell))
        elif line.strip() and not line.startswith(("    ", "#", ">")):
            began = began if paragraph else number
            paragraph.append(line[starts.end() :] if starts else line.strip())


def findings(place: str, found: Iterable[tuple[int, str]]) -> Iterator[Finding]:
    """The findings among sentences, each with the number of its line."""
    for line, sentence in found:
        where = f"{place}:{line}" if line else place
        for pattern, advice in _COMPILED:
            if pattern.search(sentence):
                yield Finding(where, advice, sentence)
        if (words := len(re.findall(r"[\w`'-]+", sentence))) > MOST_WORDS:
            yield Finding(where, f"{words} words: make it two sentences", sentence, False)


def of_pages(path: Path) -> Iterator[Finding]:
    """The findings of a page, or of all pages below a folder."""
    for page in sorted(path.rglob("*.md")) if path.is_dir() else [path]:
        name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
        yield from findings(str(name), sentences(page.read_text(encoding="utf-8")))


def of_help() -> Iterator[Finding]:
    """The findings of all that `tts ... --help` prints."""
    from tts.cli import app

    for place, text in _help_of(typer.main.get_command(app), "tts"):
        yield from findings(place, ((0, each) for each in _split(" ".join(text.split()))))


def of_messages(folder: Path) -> Iterator[Finding]:
    """The findings of the errors and hints that the code below a folder can raise."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _name(node.func) in ERRORS:
                place = f"{file.relative_to(ROOT)}:{node.lineno}"
                for argument in [*node.args[:1], *(each.value for each in node.keywords)]:
                    yield from findings(place, ((0, each) for each in _split(_text(argument))))


def of_docstrings(folder: Path) -> Iterator[Finding]:
    """The findings in docstrings below a folder, also those of attributes; not long sentences."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            body = getattr(node, "body", None)
            for inner in body if isinstance(body, list) else []:
                if isinstance(inner, ast.Expr) and (text := _text(inner.value)):
                    place = f"{file.relative_to(ROOT)}:{inner.lineno}"
                    read = ((0, each) for _, each in sentences(inspect.cleandoc(text)))
                    yield from (each for each in findings(place, read) if each.is_pattern)


def _help_of(command: object, name: str) -> Iterator[tuple[str, str]]:
    yield name, getattr(command, "help", None) or ""
    for parameter in getattr(command, "params", []):
        yield f"{name} {parameter.opts[0]}", getattr(parameter, "help", None) or ""
    for each, inner in getattr(command, "commands", {}).items():
        yield from _help_of(inner, f"{name} {each}")


def _name(function: ast.expr) -> str:
    return str(getattr(function, "attr", None) or getattr(function, "id", ""))


def _text(value: ast.expr) -> str:
    """A text in the code, with X where a value is put in; empty if it is no text."""
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) else ""
    if isinstance(value, ast.JoinedStr):
        return "".join(
            _text(part) if isinstance(part, ast.Constant) else "X" for part in value.values
        )
    if isinstance(value, ast.BinOp):
        return _text(value.left) + _text(value.right)
    return ""


def _split(text: str) -> list[str]:
    """The sentences of a paragraph, without code, link targets, quotations and emphasis."""
    text = re.sub(r"`+[^`]*`+", "X", text)
    text = re.sub(r"\[[^\s\]]*[/.][^\s\]]*\]\([^)]*\)", "X", text)  # a link whose text is a path
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r'"[^"]*"|\u201c[^\u201d]*\u201d', "X", text)
    text = re.sub(r"\*\*|__|<[^>]*>", "", text)
    parts = re.split(r"(?<=[.!?])\s+(?=[A-Z(])", text)
    return [part.strip() for part in parts if part.strip()]


def _blank(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


def main() -> None:
    """Print the findings; the exit status is 1 if there are any."""
    parser = argparse.ArgumentParser(description="Find sentences that are hard to read.")
    parser.add_argument("where", nargs="*", help="pages, folders, `help`, `messages`, `docstrings`")
    where = parser.parse_args().where or [*PAGES, "help", "messages", "docstrings"]
    count = 0
    for name in where:
        if name == "help":
            found = of_help()
        elif name == "messages":
            found = (each for source in SOURCES for each in of_messages(ROOT / source / "tts"))
        elif name == "docstrings":
            found = (each for source in SOURCES for each in of_docstrings(ROOT / source / "tts"))
        else:
            found = of_pages(ROOT / name)
        for finding in found:
            count += 1
            print(finding)
    sys.exit(f"{count} sentences to mend" if count else 0)


if __name__ == "__main__":
    main()
