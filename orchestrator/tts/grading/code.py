"""Answers in code: found in a completion, and right if the problem's tests pass, in the sandbox.

What a model writes is parsed by Python in the sandbox alone (`code_harness`). The tests are
HumanEval's (prompt, answer, test and the call of `check`, as execution.py of
github.com/openai/human-eval has it) and MBPP's (answer, set-up, the assertions of `test_list`).
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import json
import keyword
import logging
import re
import sys
import textwrap
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tts.base.errors import DatasetError
from tts.build.sandbox import Failure, Sandbox
from tts.build.spec import ExecutionSpec
from tts.build.thinking_families import answer_part

from .problem_grader import Outcome, Reason, Verdict

_HARNESS = (Path(__file__).parent / "code_harness.py").read_text(encoding="utf-8")

logger = logging.getLogger(__name__)


class SameText:
    """Answers in code are grouped by their text: what else is equal, no one can tell."""

    async def equal(self, prediction: str | None, reference: str) -> Verdict:
        """See Grader.equal."""
        if prediction == reference:
            return Verdict(Outcome.EQUAL, Reason.IDENTICAL)
        return Verdict(Outcome.DIFFERENT, Reason.NO_ANSWER if prediction is None else Reason.TEXTS)


class CodeGrader:
    """Runs the tests of code problems."""

    def __init__(self, spec: ExecutionSpec) -> None:
        # the tests are a process beside the answer's
        self._sandbox = Sandbox(spec.model_copy(update={"processes": spec.processes + 1}))
        self._can_run = False

    def require(self) -> None:
        """Raise ConfigError where no tests can be run."""
        if not self._can_run:
            self._sandbox.require()
        self._can_run = True

    async def passes(self, tests: CodeTests, code: str, *, together: bool = False) -> Verdict:
        """Whether the tests pass; an answer that hangs or uses up what it may is wrong.

        `together` runs the tests in the process of the answer.
        """
        job = {
            "program": tests.program(code),
            "imports": tests.imports,
            "tests": tests.tests,
            "names": [*dict.fromkeys([*tests.names, *tests.free_names])],
            "together": together,
        }
        command = [sys.executable, "-I", "-c", _HARNESS]
        end = await self._sandbox.run(command, json.dumps(job).encode())
        if end.failure is Failure.NOT_STARTED:
            return Verdict(Outcome.UNDECIDED, Reason.CRASHED)
        if end.failure:
            logger.debug("the tests of an answer failed: %s (%s)", end.failure.value, end.errors)
        return Verdict(Outcome.DIFFERENT if end.failure else Outcome.EQUAL, Reason.TESTS)


class ProblemTests:
    """The tests of a problem, and whether its published solution passes them."""

    def __init__(
        self, grader: CodeGrader, tests: CodeTests, solution: str | None, name: str
    ) -> None:
        """`name` is the problem's, for a warning."""
        self._grader = grader
        self._tests = tests
        self._solution = solution
        self._name = name
        self._lock = asyncio.Lock()
        self._is_tried = solution is None
        self._runs_together: bool | None = False
        """None where the published solution passes in neither way."""

    async def passes(self, code: str) -> Verdict:
        """Whether the tests pass.

        When one has failed the published solution is tried, once: tests that it fails say nothing
        of an answer, and those that it passes in their own process alone are run so.
        """
        if self._runs_together is False:
            verdict = await self._grader.passes(self._tests, code)
            if verdict.outcome is not Outcome.DIFFERENT:
                return verdict
            await self._try_solution()
            if self._runs_together is False:
                return verdict
        if self._runs_together:
            return await self._grader.passes(self._tests, code, together=True)
        return Verdict(Outcome.UNDECIDED, Reason.BROKEN_TESTS)

    async def _try_solution(self) -> None:
        async with self._lock:
            if self._is_tried or self._solution is None:
                return
            for together in (False, True):
                passed = await self._grader.passes(self._tests, self._solution, together=together)
                if passed.equal:
                    self._runs_together = together
                    break
            else:
                self._runs_together = None
                logger.warning(
                    "problem %s: its published solution fails its tests, so that they do not say "
                    "whether an answer is right",
                    self._name,
                )
            self._is_tried = True


_FENCED = re.compile(
    r"^([ \t]*)(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^(?:\1 {0,3}|[ \t]{0,3})\2[ \t]*$|\Z)", re.S | re.M
)
_TAGGED = re.compile(r"\[PYTHON\](.*?)(?:\[/PYTHON\]|\Z)", re.S)
_CODE_LINE = re.compile(
    r"\s|#|$|@|['\"]{3}|[\])}]|(?:async |def |class |import |from \S+ import )"
    r"|(?:return|raise|assert|break|continue|pass|del|global)\b"
    r"|(?:if|elif|for|while|with|except)\b.*:\s*(?:#.*)?$|(?:else|try|finally)\s*:"
    r"|[\w.\[\]'\"]+(?:\s*,\s*[\w.\[\]'\"]+)*\s*(?:[-+*/%@&|^]|//|\*\*|>>|<<)?=(?!=)"
    r"|[A-Za-z_][\w.]*\((?:.*[\])}])?\s*(?:#.*)?$"
)
"""The beginning of a line of a program; prose begins otherwise."""
_INTROSPECTION = re.compile(
    r"\b(?:_getframe|_current_frames|f_back|tb_frame|gi_frame|__eq__|__subclasses__)\b"
    r"|\b(?:import|from)\s+(?:gc|inspect|ctypes)\b|/proc/"
)


def extract_code(text: str, names: Collection[str] = ()) -> str | None:
    """The last block of a completion that defines what is asked for; None if there is nothing.

    Blocks are fenced, or between [PYTHON] tags, or else lines of a program among prose. If none
    defines all of the `names`, it is the last that defines some, else the last that is fenced or
    tagged, else all of the text. It is read behind the completion's thinking. A block that was cut
    off counts.
    """
    answer = answer_part(text)
    if answer is None:
        return None
    answer = answer.replace("\r\n", "\n").replace("\r", "\n")
    blocks = list(_fenced(answer)) or [match[1] for match in _TAGGED.finditer(answer)]
    last = blocks[-1] if blocks else answer
    blocks = [_dedented(block, names) for block in blocks or _programs(answer)]
    for enough in (all, any):
        for block in reversed(blocks):
            if names and enough(defines(block, name) for name in names):
                return block.rstrip().strip("\n")
    return last.rstrip().strip("\n") or None


def _fenced(text: str, *, nested: bool = True) -> Iterator[str]:
    """The fenced blocks of a text, and behind each the blocks in it."""
    for indent, _, content in _FENCED.findall(text):
        lines = [line.removeprefix(indent) for line in content.splitlines()]
        block = "\n".join(lines)
        yield block
        if nested:
            yield from _fenced(block, nested=False)


def _programs(text: str) -> Iterator[str]:
    """The runs of lines that look like a program."""
    lines: list[str] = []
    in_text = False  # between three quotes
    for line in text.splitlines():
        if in_text or (_CODE_LINE.match(line) and (lines or line.strip())):
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
        in_text ^= bool((line.count('"""') + line.count("'''")) % 2)
    yield "\n".join(lines)


def _dedented(block: str, names: Collection[str]) -> str:
    dedented = textwrap.dedent(block)
    return dedented if any(defines(dedented, name) for name in names) else block


def defines(code: str, name: str) -> bool:
    """Whether a name is defined at the top of a program, as far as can be seen without parsing."""
    name = re.escape(name)
    return bool(
        re.search(rf"^(?:(?:async +)?def|class) +{name}\b|^{name} *(?::[^=\n]*)?=(?!=)", code, re.M)
    )


def uses_introspection(code: str) -> bool:
    """Whether code names what code that deceives its tests needs: frames, `gc`, `__eq__`, ..."""
    return bool(_INTROSPECTION.search(code))


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
    """Raise DatasetError if the tests of `what` cannot be run, or say nothing."""
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
