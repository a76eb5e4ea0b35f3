"""The problems of a file, whatever its format; code problems as HumanEval and MBPP have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from tts.base.choices import AnswerKind
from tts.base.errors import DatasetError
from tts.base.input_files import Unreadable
from tts.grading.code import require_tests, tests_of
from tts.problem import Problem, Turn

from .answers import (
    as_cell_text,
    check_choices,
    read_answer,
    read_choice,
    read_choices,
    with_letters,
)
from .rows import USUAL, Columns, DatasetRow, choice_columns, column_of, read_rows


def read_files(
    files: Sequence[Path], name: str, columns: Columns, answers: AnswerKind | None
) -> tuple[list[Problem], str]:
    """All problems of a dataset in some files, and which columns they were read from, as a phrase.

    Without a column of answers, in any of its rows, the problems have none; an answer of null is
    none, too. Raises DatasetError naming the file and the line or row.
    """
    places: dict[str, str] = {}
    problems: list[Problem] = []
    columns_used: dict[str, None] = {}  # by all rows together, in order
    before = 0
    answered: bool | None = None
    for file in files:
        number = 0
        for row in read_rows(file):
            where, number = f"{file}, {row.place}", row.number
            reader = _RowReader(row, columns, where, columns_used)
            code = reader.code()
            if code:
                question, answer = code.question, code.answer
                reader.says_none = answer is None
            else:
                question, answer = reader.question_and_answer(answers)
            if not reader.says_none:
                if answered is not None and answered != (answer is not None):
                    there = ", ".join(sorted(row.cells))
                    raise DatasetError(
                        f"{where} lacks the field 'answer', which rows before it have; it has "
                        f"{there:.500}."
                        if answered
                        else f"{where} has an answer, and the rows before it lack one.",
                        hint="Give every row its answer, or null where there is none.",
                    )
                answered = answer is not None
            known_as = reader.id() or (code.id if code else "") or f"{name}:{before + number}"
            if known_as in places:
                raise DatasetError(
                    f"{where}: id {known_as!r:.200} was used in {places[known_as]} already; ids "
                    "must be unique."
                )
            places[known_as] = where
            extra = code.extra if code else reader.extra()
            require_tests(extra, where)
            problems.append(
                Problem(known_as, question, answer, reader.level(), reader.history(), extra=extra)
            )
        before += number
    if not problems:
        raise DatasetError(f"{files[0]} holds no problems.")
    if without := sum(p.answer is None and tests_of(p.extra) is None for p in problems):
        some = f"{without} of {len(problems)} problems without an answer"
        columns_used[some if without < len(problems) else "no answers, so no accuracy"] = None
    return problems, ", ".join(columns_used)


class _RowReader:
    """The parts of one row's problem; notes in `used` which columns they came from."""

    def __init__(
        self, row: DatasetRow, columns: Columns, where: str, columns_used: dict[str, None]
    ) -> None:
        self._cells = row.cells
        self._columns = columns
        self._where = where
        self._used = columns_used
        self.says_none = False
        """Whether the answer is null, in a column of answers."""

    def question_and_answer(self, answers: AnswerKind | None) -> tuple[str, str | None]:
        """The question as it is asked, and its reference answer; None where it has none."""
        column = column_of("problem", self._columns, self._cells, self._where) or ""
        with self._reading(column):
            question = as_cell_text(self._cells[column])
        self._note("problem", column)
        choices = self._choices()
        answer_column = column_of("answer", self._columns, self._cells, self._where)
        self.says_none = answer_column is not None and self._cells[answer_column] is None
        if answer_column is None or self.says_none:
            return with_letters(question, choices) if choices else question, None
        column = answer_column
        self._note("answer", column)
        with self._reading(column):
            if choices:
                answer = read_choice(self._cells[column], choices, answers)
                return with_letters(question, choices), answer
            return question, read_answer(self._cells[column], answers)

    def code(self) -> Problem | None:
        """The row of a code problem; None where it has a question, or one was named."""
        names = ("problem", *USUAL["problem"])
        if any(name in self._columns or name in self._cells for name in names):
            return None
        try:
            code = read_code_row(self._cells)
        except Unreadable as error:
            raise DatasetError(f"{self._where} {error}.") from error
        if code:
            self._used["code problems, graded by their tests"] = None
        return code

    def extra(self) -> dict[str, Any]:
        """What else a verifier gets of the problem, as the row has it."""
        extra = self._cells.get("extra")
        if not isinstance(extra, dict):
            return {}
        self._note("extra", "extra")
        return extra

    def level(self) -> int | str | None:
        """The level, None where there is none."""
        column = column_of("level", self._columns, self._cells, self._where)
        level = self._cells[column] if column else None
        if isinstance(level, float) and level.is_integer():  # as Parquet has integers with gaps
            level = int(level)
        if isinstance(level, bool) or not isinstance(level, int | str | None):
            raise DatasetError(
                f"{self._where}: {column} is {level!r:.200}; it must be a number or a text."
            )
        if column:
            self._note("level", column)
        return level

    def history(self) -> tuple[Turn, ...]:
        """The conversation before the question, where a run's folder has kept it."""
        try:
            history = msgspec.convert(self._cells.get("history"), tuple[Turn, ...])
        except msgspec.ValidationError:  # a column of something else
            return ()
        if history:
            self._note("history", "history")
        return history

    def id(self) -> str | None:
        """The name of the problem in its file; None where it has none."""
        column_of("id", self._columns, self._cells, self._where)  # one that was named must be there
        own = self._columns.get("id")
        for column in (own,) if own else USUAL["id"]:
            value = self._cells.get(column)
            if isinstance(value, bool) or not isinstance(value, int | float | str | None):
                raise DatasetError(
                    f"{self._where}: {column} is {value!r:.200}; it must be a text or a number."
                )
            if value is not None and str(value).strip():
                self._note("id", column)
                return str(value)
        return None

    def _choices(self) -> list[str]:
        columns = choice_columns(self._columns, self._cells, self._where)
        cells = [self._cells[column] for column in columns]
        if not columns:
            return []
        self._note("choices", "+".join(columns))
        with self._reading("+".join(columns)):
            return read_choices(cells[0]) if len(cells) == 1 else check_choices(cells)

    def _note(self, role: str, column: str) -> None:
        self._used[role if role == column else f"{role} from {column!r}"] = None

    @contextmanager
    def _reading(self, column: str) -> Iterator[None]:
        try:
            yield
        except Unreadable as error:
            raise DatasetError(f"{self._where}: {column} {error}.") from error


HUMANEVAL: Final = """\
Please provide a self-contained Python script that solves the following problem in a markdown code \
block:
```python
{prompt}
```"""
"""The instruction of EvalPlus (Liu et al. 2023, evalplus/codegen.py)."""
MBPP: Final = """\
You are an expert Python programmer, and here is your task: {prompt} Your code should pass these \
tests:

{tests}"""
"""The prompt of Austin et al., as the dataset's README has it."""
_KEPT = (
    "prompt",
    "entry_point",
    "test",
    "test_list",
    "test_setup_code",
    "test_imports",
    "challenge_test_list",
)
"""The fields that a verifier and the grader get; the solution is not among them."""


def read_code_row(cells: Mapping[str, Any]) -> Problem | None:
    """The problem of a row with the fields of HumanEval or of MBPP; None for any other row.

    Its id may be empty; its answer is the published solution. Raises Unreadable for a field that is
    not as published.
    """
    if not {"prompt", "entry_point", "test"} <= cells.keys() and (
        "test_list" not in cells or cells.keys().isdisjoint(("text", "prompt"))
    ):
        return None
    is_humaneval = "entry_point" in cells
    prompt = cells.get("prompt", cells.get("text"))
    if not isinstance(prompt, str) or not prompt.strip():
        raise Unreadable(f"has the prompt {prompt!r:.100}; it must be a text")
    extra = {name: cells[name] for name in _KEPT if cells.get(name)}
    tests = tests_of(extra)
    if tests is None:
        fields = "test and entry_point texts" if is_humaneval else "test_list a list of texts"
        raise Unreadable(f"has no tests that can be run: {fields}, not empty")
    solution = cells.get("canonical_solution" if is_humaneval else "code")
    if solution is not None and not isinstance(solution, str):
        raise Unreadable(f"has the solution {solution!r:.100}; it must be a text")
    question = (
        HUMANEVAL.format(prompt=prompt.rstrip())
        if is_humaneval
        else MBPP.format(prompt=prompt.strip(), tests="\n".join(tests.tests))
    )
    task = cells.get("task_id")
    return Problem("" if task is None else str(task), question, solution, extra=extra)
