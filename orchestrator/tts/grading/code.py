"""Answers in code are right if the problem's tests pass, in the sandbox.

The tests run in a process beside that of the answer, which sees what it is called with and no more
(`code_harness`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

from tts.build.sandbox import Failure, Sandbox
from tts.build.spec import ExecutionSpec

from .code_tests import CodeTests
from .verdict import Outcome, Reason, Verdict

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
        failure = (await self._sandbox.run(command, json.dumps(job).encode())).failure
        if failure is Failure.NOT_STARTED:
            return Verdict(Outcome.UNDECIDED, Reason.CRASHED)
        return Verdict(Outcome.DIFFERENT if failure else Outcome.EQUAL, Reason.TESTS)


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
