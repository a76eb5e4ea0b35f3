"""The tests of a code problem: how a program is put together for them, and what makes them useless.

HumanEval's prompt, the answer, the test and the call of `check` (github.com/openai/human-eval,
execution.py); MBPP's answer, its set-up and the assertions of `test_list`.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import keyword
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from tts.base.errors import DatasetError

from .code_blocks import defines


@dataclass(frozen=True)
class CodeTests:
    """The tests of a problem."""

    tests: tuple[str, ...]
    """What fails if the answer is wrong."""
    prompt: str = ""
    """What stands before the answer."""
    entry_point: str = ""
    """The function that the prompt ends with, unless the answer defines it anew."""
    imports: tuple[str, ...] = ()
    """What stands before the answer, and before the tests."""
    setup: str = ""
    """What stands behind the answer, and belongs to it."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What an answer has to define.

        A built-in function only where the tests take nothing else, as MBPP's 126 calls `sum`.
        """
        if self.entry_point:
            return (self.entry_point,)
        own = [name for name in self.free_names if name not in _bound([self.setup])]
        return tuple(own) or tuple(name for name in _called(self.tests) if name in vars(builtins))

    @cached_property
    def free_names(self) -> tuple[str, ...]:
        """What the tests take from the program, besides what is built in."""
        bound = _bound([*self.imports, *self.tests]) | vars(builtins).keys()
        loaded = (node.id for node in _nodes(self.tests) if isinstance(node, ast.Name))
        return tuple(name for name in dict.fromkeys(loaded) if name not in bound)

    def program(self, code: str) -> tuple[str, ...]:
        """The answer with what belongs to it, in parts that are executed in turn.

        A script is a part by itself: it may begin with an import from `__future__`.
        """
        if self.entry_point and not defines(code, self.entry_point):
            starts_indented = code.lstrip("\n")[:1].isspace()
            return (self.prompt + (code if starts_indented else textwrap.indent(code, "    ")),)
        return (*self.imports, *self._whole_prompt, code, self.setup)

    @property
    def _whole_prompt(self) -> tuple[str, ...]:
        """The prompt with its function ended; nothing where that is no program."""
        for prompt in (self.prompt, f"{self.prompt}\n    pass\n"):
            with contextlib.suppress(SyntaxError):
                _parsed(prompt)
                return (prompt,)
        return ()


@lru_cache
def _parsed(text: str) -> ast.Module:
    """The tree of a text; Python's warnings of it are its author's business."""
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(text)


def _nodes(texts: Iterable[str]) -> Iterator[ast.AST]:
    for text in texts:
        yield from ast.walk(_parsed(text))


def _called(texts: Iterable[str]) -> list[str]:
    """The names that are called as functions."""
    calls = (node.func for node in _nodes(texts) if isinstance(node, ast.Call))
    return [function.id for function in calls if isinstance(function, ast.Name)]


def _bound(texts: Iterable[str]) -> set[str]:
    """The names that a program gives a value anywhere."""
    names = set()
    for node in _nodes(texts):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.alias(name=name, asname=alias):
                names.add(alias or name.partition(".")[0])
    return names


def tests_of(extra: Mapping[str, Any]) -> CodeTests | None:
    """The tests among what a problem has besides its question; None if there are none."""
    match extra:
        case {"prompt": str(prompt), "entry_point": str(name), "test": str(test)} if test.strip():
            return CodeTests((test, f"check({name})"), prompt, name)
        case {"test_list": [*tests]} if tests and all(isinstance(test, str) for test in tests):
            imports = tuple(map(str, extra.get("test_imports") or ()))
            setup = str(extra.get("test_setup_code") or "")
            return CodeTests(tuple(tests), imports=imports, setup=setup)
    return None


def require_tests(extra: Mapping[str, Any], what: str) -> None:
    """Raise DatasetError if a problem has tests that cannot be run, or say nothing.

    `what` has them, for the message.
    """
    if fault := _fault(extra):
        raise DatasetError(f"{what} {fault}.", hint="Correct the tests, or leave this problem out.")


def _fault(extra: Mapping[str, Any]) -> str | None:
    tests = tests_of(extra)
    if tests is None:
        return None
    imports = extra.get("test_imports") or []
    if isinstance(imports, str) or not all(isinstance(line, str) for line in imports):
        return f"has the test_imports {imports!r:.100}; they must be a list of texts"
    name = tests.entry_point
    if name and (not name.isidentifier() or keyword.iskeyword(name)):
        return f"has the entry_point {name!r:.100}, which is no name of a function"
    for text in (*tests.imports, tests.setup, *tests.tests):
        try:
            _parsed(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"has a test that is no Python: {text.strip()!r:.200} ({error})"
    if name and "check" not in _bound(tests.tests):
        return "has a test without the function check"
    asserting = [text for text in tests.tests if any(map(_asserts, _nodes([text])))]
    silent = [text for text in tests.tests if text not in asserting]
    if not asserting or (silent and not name):
        return f"has a test that asserts nothing: {silent[0].strip()!r:.200}"
    if not tests.names:
        return "has tests that use nothing of an answer"
    return None


def _asserts(node: ast.AST) -> bool:
    """Whether a part of a test can fail it: an assertion, an error, a call of an `assert_...`."""
    if isinstance(node, ast.Call):
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return name.startswith("assert") or name == "fail"
    return isinstance(node, ast.Assert | ast.Raise)
