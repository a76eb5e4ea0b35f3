"""Answers in code: taken out of a text, and right if the problem's tests pass, in the sandbox.

A program is put together as the datasets' own harnesses do it: HumanEval's prompt, the answer, the
test and the call of `check` (github.com/openai/human-eval, execution.py); MBPP's answer, its set-up
and the assertions of `test_list`. The tests run in the process of the answer, as theirs do: they
tell what works, and do not hold against code that is written to deceive them.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tts.build.sandbox import Failure, Sandbox
from tts.build.spec import ExecutionSpec
from tts.build.thinking import answer_part

from .verdict import Outcome, Reason, Verdict

_BLOCK = re.compile(r"^[ \t]*(```+|~~~+)[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.M)
# the token tells that the end was reached: the answer may end the process by itself
_HARNESS = """
import json, os, sys, types
def run():
    asked = json.load(sys.stdin)
    told, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0), os.dup2(nothing, 1)
    module = sys.modules["candidate"] = types.ModuleType("candidate")
    exec(compile(asked["program"], "candidate.py", "exec"), module.__dict__)
    os.write(told, asked["token"].encode())
run()
"""


def extract_code(text: str) -> str | None:
    """The last fenced block of a completion, else all of it; None if there is nothing.

    It is read behind the completion's thinking. A block that was cut off counts.
    """
    if (said := answer_part(text)) is None:
        return None
    blocks = _BLOCK.findall(said)
    code: str = (blocks[-1][1] if blocks else said).rstrip()
    return code.strip("\n") or None


@dataclass(frozen=True)
class CodeTests:
    """The tests of a problem."""

    before: str
    """What stands before the answer."""
    after: str
    """What stands behind it, and fails if it is wrong."""
    entry_point: str = ""
    """The function that `before` ends with, unless the answer defines it anew."""
    asserts: tuple[str, ...] = ()
    """The assertions, where the problem names them one by one."""

    def program(self, code: str) -> str:
        """The answer with its tests: it ends without an error if they pass."""
        continues = self.entry_point and not re.search(
            rf"^(async )?def {re.escape(self.entry_point)}\b", code, re.M
        )
        return f"{self.before}{'' if continues else chr(10)}{code}\n{self.after}\n"


def tests_of(extra: Mapping[str, Any]) -> CodeTests | None:
    """The tests among what a problem has besides its question; None if there are none."""
    match extra:
        case {"prompt": str(prompt), "entry_point": str(name), "test": str(test)} if test.strip():
            return CodeTests(prompt, f"{test}\ncheck({name})", name)
        case {"test_list": [*tests]} if tests and all(isinstance(test, str) for test in tests):
            imports = "\n".join(map(str, extra.get("test_imports", ())))
            after = "\n".join([str(extra.get("test_setup_code", "")), *tests])
            return CodeTests(imports, after, asserts=tuple(tests))
    return None


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
        self._sandbox = Sandbox(spec)

        self._can_run = False

    def require(self) -> None:
        """Raise ConfigError where no tests can be run."""
        if not self._can_run:
            self._sandbox.require()
        self._can_run = True

    async def passes(self, tests: CodeTests, code: str) -> Verdict:
        """Whether the tests pass; an answer that hangs or uses up what it may is wrong."""
        token = secrets.token_hex(16)
        given = json.dumps({"program": tests.program(code), "token": token}).encode()
        ended = await self._sandbox.run([sys.executable, "-I", "-c", _HARNESS], given)
        if ended.failure is Failure.NOT_STARTED:
            return Verdict(Outcome.UNDECIDED, Reason.CRASHED)
        right = ended.failure is None and ended.output == token.encode()
        return Verdict(Outcome.EQUAL if right else Outcome.DIFFERENT, Reason.TESTS)
