"""Chains of steps to be scored, with labels where files have them; candidates made elsewhere.

| form | columns of a row | labels |
|---|---|---|
| ProcessBench | problem, steps, label, final_answer_correct | first wrong step; later ones: none |
| PRM800K | question, label.steps[].completions[].rating | -1 is wrong, 0 and 1 are right |
| Math-Shepherd | input with a mark after each step, label | + and - in the place of the marks |
| plain | problem, steps, and labels, first_wrong or correct | of each step, or of the answer |
| candidates | problem, candidates; correct, answer | of each candidate; or none |

Rows with the same question are chains of one problem, whatever their ids: their labels and scores
are alike, which intervals must know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tts.base.errors import DatasetError
from tts.base.input_files import Unreadable
from tts.datasets.answers import as_cell_text
from tts.datasets.rows import read_rows


@dataclass(frozen=True, slots=True)
class Chain:
    """One candidate solution of a problem, in steps."""

    problem: str
    """The problem's id; chains of one problem share it."""
    name: str
    """Unique within the file: the row's `id`, or PROBLEM/NUMBER."""
    question: str
    steps: tuple[str, ...]
    right_steps: tuple[bool | None, ...] | None = None
    """Label of each step, None for a step without one; None where no step has any."""
    right: bool | None = None
    """Whether the final answer is right; None where nobody says so."""
    level: str | None = None
    """What the file calls the problem's level, or the part of a collection that it is in."""
    place: str = ""
    """Where the chain stands, for messages: FILE, line 7."""
    reference: str | None = None
    """The right answer to the problem, where the file has it."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Other cells of the problem's row, for a verifier that is a program."""


@dataclass(frozen=True)
class ChainSet:
    """The chains of a file or a run, and how they were read."""

    chains: list[Chain]
    notes: list[str]
    """Which forms the rows have, what was left out, and what was changed; for people."""
    scores: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """The logged scores of chains whose every step has one, by the chain's name."""


@dataclass(frozen=True, slots=True)
class ScoredChain:
    """A chain with the verifier's own score of each step."""

    chain: Chain
    scores: tuple[float | None, ...]
    """One per step. A verifier of whole answers scores the last step only."""
    lengths: tuple[int, ...]
    """Length of each step, in the unit that `Measurement` is given: tokens or characters."""


MARK: Final = "ки"
"""What stands after each step of a Math-Shepherd row."""
_RIGHT: Final[Mapping[object, bool]] = {True: True, False: False, "+": True, "-": False}
"""Labels of a step; 1 and 0 are True and False."""
_QUESTIONS: Final = ("problem", "question", "prompt")
_STEPS: Final = ("steps", "completions")
_CANDIDATES: Final = (*_QUESTIONS, "id", "unique_id", "candidates", "correct", "answer", "level")


Cells = Mapping[str, Any]
Labels = tuple[bool | None, ...]
_unnamed = partial(Chain, "", "")
"""A chain of a question and steps, without what names it."""


@dataclass(frozen=True)
class _Form:
    """One way of writing chains into rows."""

    name: str
    fits: Callable[[Cells], bool]
    read: Callable[[Cells, str | None], Iterator[Chain]]
    """The chains of a row, unnamed; takes the step delimiter, too. Raises Unreadable."""
    published: bool = False
    """Whether step delimiters within steps are replaced: nobody can split the file's steps."""
    irregular: bool = False
    """Whether rows with faults are left out and counted: the published file has some."""


def read_chains(files: Sequence[Path], delimiter: str | None = None) -> ChainSet:
    """All chains of some files: JSONL, JSON lists, CSV or Parquet.

    A step must not hold the step delimiter: the verifier would see two. In published files it
    becomes a line's end or a space; elsewhere it is an error. Raises DatasetError naming the file
    and line or row.
    """
    chains: list[Chain] = []
    places: dict[str, str] = {}
    problems: dict[str, str] = {}
    in_problem: Counter[str] = Counter()
    forms: Counter[str] = Counter()
    left_out: list[str] = []
    replaced = 0
    for file in files:
        for row in read_rows(file):
            place = f"{file}, {row.place}"
            form = _form_of(row.cells, place)
            try:
                unnamed = list(form.read(row.cells, delimiter))
                row_id = _row_id(row.cells)
            except Unreadable as error:
                if not form.irregular:
                    raise DatasetError(f"{place}: {error}.") from error
                left_out.append(f"{place}: {error}")
                continue
            forms[form.name] += 1
            for count, each in enumerate(unnamed, 1):
                problem = problems.setdefault(
                    each.question, row_id or f"{file.stem}:{len(problems)}"
                )
                in_problem[problem] += 1
                name = row_id or f"{problem}/{in_problem[problem]}"
                if row_id and (len(unnamed) > 1 or form.name == "candidates"):
                    name = f"{row_id}/{count}"
                if name in places:
                    raise DatasetError(
                        f"{place}: id {name!r:.200} was used in {places[name]} already; ids must "
                        "be unique."
                    )
                places[name] = place
                holding = [
                    number
                    for number, step in enumerate(each.steps, 1)
                    if delimiter and delimiter in step.strip()
                ]
                if holding and not form.published:
                    raise DatasetError(
                        f"{place}: step {holding[0]} holds the step delimiter {delimiter!r}.",
                        hint="Split it into two steps, each with its label, or set the "
                        "generator's step_delimiter in the deployment.",
                    )
                replaced += len(holding)
                steps = tuple(_without(step, delimiter) for step in each.steps)
                chains.append(replace(each, problem=problem, name=name, steps=steps, place=place))
    if not chains:
        why = f" {left_out[0]}." if left_out else ""
        raise DatasetError(f"{', '.join(map(str, files))}: there are no chains to score.{why}")
    notes = [f"{count:,} row{'s' * (count != 1)} as {name}" for name, count in forms.items()]
    if left_out:
        notes.append(f"rows left out: {len(left_out):,}, the first: {left_out[0]}")
    if replaced:
        notes.append(f"steps in which the step delimiter was replaced: {replaced:,}")
    return ChainSet(chains, notes)


def first_wrong(right_steps: Sequence[bool | None] | None) -> int | None:
    """The index of the first wrong step, -1 if all are right; None where labels do not say."""
    for number, right in enumerate(right_steps or [None]):
        if right is not True:
            return number if right is False else None
    return -1


def _without(step: str, delimiter: str | None) -> str:
    """A step in which a line's end, or a space, stands for the delimiter; none at its ends."""
    if not delimiter or delimiter not in step:
        return step
    parts = (part.strip() for part in step.split(delimiter))
    return (" " if delimiter in "\n" else "\n").join(part for part in parts if part)


def _form_of(cells: Cells, place: str) -> _Form:
    for form in _FORMS:
        if form.fits(cells):
            return form
    there = ", ".join(sorted(cells)) or "none"
    raise DatasetError(
        f"{place} holds no chain of steps; its fields are {there:.500}.",
        hint='A line is {"problem": ..., "steps": [...], "labels": [true, false]}, or first_wrong '
        'or correct in place of labels, or {"problem": ..., "candidates": [...]}; files of '
        "ProcessBench, PRM800K and Math-Shepherd are read as they are.",
    )


def _row_id(cells: Cells) -> str | None:
    for column in ("unique_id", "id"):
        value = cells.get(column)
        if isinstance(value, bool) or not isinstance(value, int | float | str | None):
            raise Unreadable(f"{column} is {value!r:.200}; it must be a text or a number")
        if value is not None and str(value).strip():
            return str(value)
    return None


def _text(cells: Cells, *columns: str) -> str:
    """The text of the first of these columns that there is."""
    column = next((name for name in columns if name in cells), columns[0])
    try:
        return as_cell_text(cells.get(column))
    except Unreadable as error:
        raise Unreadable(f"{column} {error}") from error


def _texts(value: Any, column: str) -> tuple[str, ...]:
    """A list of steps, none of them blank."""
    if not isinstance(value, list) or not value:
        raise Unreadable(f"{column} is {value!r:.200}; it must be a list of texts")
    for number, step in enumerate(value, 1):
        if not isinstance(step, str) or not step.strip():
            raise Unreadable(f"step {number} of {column} is {step!r:.200}; it must be a text")
    return tuple(value)


def _flag(value: Any, column: str) -> bool | None:
    if value is not None and not (isinstance(value, bool) or value in (0, 1)):
        raise Unreadable(f"{column} is {value!r:.200}; it must be true, false or null")
    return None if value is None else bool(value)


def _labels(value: Any, steps: Sequence[str], column: str) -> Labels:
    """A label for each step."""
    if not isinstance(value, list) or len(value) != len(steps):
        count = f"{len(value)} labels" if isinstance(value, list) else f"{value!r:.100}"
        raise Unreadable(f"{column} holds {count}, and there are {len(steps)} steps")
    for number, label in enumerate(value, 1):
        if label is not None and (isinstance(label, list | dict) or label not in _RIGHT):
            raise Unreadable(
                f"label {number} of {column} is {label!r:.100}; it must be true, false, 1, 0, + "
                "or -, or null for none"
            )
    return tuple(None if label is None else _RIGHT[label] for label in value)


def _until_first_wrong(value: Any, steps: Sequence[str], column: str) -> Labels:
    """Labels from the index of the first wrong step; what follows it has none."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value % 1 or not -1 <= value < len(steps):
        raise Unreadable(
            f"{column} is {value!r:.100}; it must be the index of one of {len(steps)} steps, from "
            "0 on, or -1"
        )
    wrong = int(value)
    if wrong < 0:
        return (True,) * len(steps)
    return (True,) * wrong + (False,) + (None,) * (len(steps) - wrong - 1)


def _level(cells: Cells, column: str = "level") -> str | None:
    value = cells.get(column)
    if isinstance(value, float) and value.is_integer():  # as Parquet has integers with gaps
        value = int(value)
    return None if value is None else str(value)


def _process_bench(cells: Cells, _: str | None) -> Iterator[Chain]:
    steps = _texts(cells["steps"], "steps")
    right_steps = _until_first_wrong(cells["label"], steps, "label")
    right = _flag(cells.get("final_answer_correct"), "final_answer_correct")
    part = str(cells.get("id") or "").rpartition("-")[0] or None  # gsm8k-12
    yield _unnamed(_text(cells, "problem"), steps, right_steps, right, _level(cells) or part)


def _prm800k(cells: Cells, _: str | None) -> Iterator[Chain]:
    """The labelled path, and a chain for each alternative to one of its steps.

    Labels of an alternative's chain are those of its last step alone: the steps before it stand in
    the path's.
    """
    question = _text(cells["question"], "problem")
    path: list[str] = []
    labels: list[bool | None] = []
    others: list[Chain] = []
    try:
        for step in cells["label"]["steps"]:
            completions, human = step["completions"] or [], step["human_completion"]
            place = step["chosen_completion"]
            if place is None and not human:
                place = 0  # phase 2: the step that was generated beforehand, which is wrong
            if not completions and not human:
                break
            ratings = [each["rating"] for each in completions]
            rights = [None if rating is None else rating >= 0 for rating in ratings]
            for number, right in enumerate(rights):
                if number != place and right is not None:
                    steps = (*path, completions[number]["text"])
                    others.append(_unnamed(question, steps, (*[None] * len(path), right)))
            path.append(human["text"] if place is None else completions[place]["text"])
            labels.append(None if place is None else rights[place])
    except (KeyError, IndexError, TypeError) as error:
        raise Unreadable("label is not as PRM800K has it") from error
    for chain in (_unnamed(question, tuple(path), tuple(labels)), *others):
        _texts(list(chain.steps), "label")
        yield chain


def _math_shepherd(cells: Cells, _: str | None) -> Iterator[Chain]:
    parts = _text(cells, "input").split(MARK)
    rest = _text(cells, "label")
    right_steps: list[bool | None] = []
    for number, part in enumerate(parts[:-1], 1):
        sign = rest.removeprefix(part)[:1]
        if not rest.startswith(part) or sign not in _RIGHT:
            raise Unreadable(f"label has no + or - where input marks the end of step {number}")
        right_steps.append(_RIGHT[sign])
        rest = rest[len(part) + 1 :]
    question, heading, first = parts[0].rpartition("Step 1:")
    if not question.strip() or len(parts) < 2 or parts[-1].strip():
        raise Unreadable(f"input is not a question and steps that end in {MARK}")
    steps = [step.strip() for step in (heading + first, *parts[1:-1])]
    # the label of the last step says whether its answer is right
    labels = tuple(right_steps)
    texts = _texts(steps, "input")
    yield _unnamed(question.strip(), texts, labels, labels[-1], _level(cells, "task"))


def _plain(cells: Cells, _: str | None) -> Iterator[Chain]:
    column = next(name for name in _STEPS if name in cells)
    steps = _texts(cells[column], column)
    right_steps = None
    if cells.get("labels") is not None:
        right_steps = _labels(cells["labels"], steps, "labels")
    elif cells.get("first_wrong") is not None:
        right_steps = _until_first_wrong(cells["first_wrong"], steps, "first_wrong")
    right = _flag(cells.get("correct"), "correct")
    yield _unnamed(_text(cells, *_QUESTIONS), steps, right_steps, right, _level(cells))


def _candidates(cells: Cells, delimiter: str | None) -> Iterator[Chain]:
    question, candidates = _text(cells, *_QUESTIONS), cells["candidates"]
    reference = _text(cells, "answer") if cells.get("answer") is not None else None
    extra = {name: value for name, value in cells.items() if name not in _CANDIDATES}
    if not isinstance(candidates, list) or not candidates:
        raise Unreadable(f"candidates is {candidates!r:.200}; it must be a list")
    correct = cells.get("correct")
    if correct is None:
        correct = [None] * len(candidates)
    if not isinstance(correct, list) or len(correct) != len(candidates):
        raise Unreadable(f"correct is {correct!r:.200}; there are {len(candidates)} candidates")
    for number, (candidate, right) in enumerate(zip(candidates, correct, strict=True), 1):
        column = f"candidate {number}"
        if isinstance(candidate, str):
            parts = candidate.split(delimiter) if delimiter else [candidate]
            candidate = [part for part in parts if part.strip()]
        steps = _texts(candidate, column)
        yield _unnamed(
            question,
            steps,
            right=_flag(right, column),
            level=_level(cells),
            reference=reference,
            extra=extra,
        )


def _has(*columns: str) -> Callable[[Cells], bool]:
    return lambda cells: all(name in cells for name in columns)


_FORMS: Final = (
    _Form(
        "PRM800K",
        lambda cells: (
            isinstance(cells.get("question"), dict)
            and isinstance(cells.get("label"), dict)
            and isinstance(cells["label"].get("steps"), list)
        ),
        _prm800k,
        published=True,
        irregular=True,
    ),
    _Form("Math-Shepherd", _has("input", "label"), _math_shepherd, published=True, irregular=True),
    _Form("ProcessBench", _has("problem", "steps", "label"), _process_bench, published=True),
    _Form("candidates", _has("candidates"), _candidates),
    _Form("steps", lambda cells: any(name in cells for name in _STEPS), _plain),
)
"""The first that fits a row reads it."""
