"""Tables of runs: the answers of one, the problems or the completions of many.

They are JSONL, CSV or Parquet. A finished run has its answers as answers.jsonl and answers.csv;
`tts runs export` makes the other two of any runs, reading their logs as a stream.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, get_args, get_type_hints

import msgspec

from tts.base.errors import ConfigError
from tts.base.extras import how_to_install

from .config import RunConfig, read_run_config
from .files import replacing
from .folder import ANSWERS, writing
from .groups import runs_in, short_names
from .log import read_events
from .measures import ProblemMeasures, measured_problems
from .run import Run, problem_record
from .state import ProblemState, solved_problems
from .statistics import rounded

TableKind = Literal["parquet", "csv", "jsonl"]
_BATCH = 1000
"""Rows that are written at a time, and that a Parquet file keeps together."""
_HARMLESS = re.compile(r"(?a:[-+]?[\d.,]*( \[[-+\d., ]*\])?)")
"""`-5`, `+1,000.5`, `+0.0 [-15.4, +15.4]`, a dash, nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A solved problem's answer; the fields are the columns of the table."""

    id: str
    question: str
    answer: str | None
    """The answer by the strategy's own rule; null if no completion has one."""
    score: float | None
    """The verifier's score of the best completion with this answer; null without one, or without
    scores."""
    probability: float | None
    """What `verifier.calibration` makes of it: the probability of being right; null without one."""
    correct: bool | None
    """Whether it equals the reference; null without a reference."""
    tokens: int
    """Generated tokens of both models, without speculation in vain."""
    seconds: float | None
    """From the start of the problem to its answer."""
    reference: str | None = None
    level: int | str | None = None


@dataclass(frozen=True, kw_only=True)
class RunColumns:
    """What every row of an export says of its run."""

    run: str
    """The end of its folder's path, as much as tells it apart."""
    strategy: str
    n: int | None
    seed: int
    deployment: str
    dataset: str
    schedule: str
    settings: str
    """The strategy's other parameters and the limits, as a JSON object."""


@dataclass(frozen=True, kw_only=True)
class ProblemRow(RunColumns):
    """A solved problem of an export."""

    problem: str
    """Its id."""
    level: str | None
    question: str
    reference: str | None
    answer: str | None
    """The answer by this vote."""
    vote: str
    correct: bool | None
    """Whether it equals the reference; null without one."""
    any_correct: bool | None
    """Whether a completion does."""
    score: float | None
    """The verifier's score of the best completion with this answer."""
    probability: float | None
    """What `verifier.calibration` makes of it."""
    completions: int
    generated_tokens: int
    """Tokens of the generator."""
    verifier_tokens: int
    """Prompt tokens of the verifier."""
    critique_tokens: int
    """Tokens that the verifier generated."""
    tokens: int
    """Generated tokens of both models, without speculation in vain."""
    verifier_calls: int
    compute: float | None
    """FLOPs of both models; null where the size of one is not known."""
    seconds: float | None
    """From the start of the problem to its answer."""
    limit: str | None
    """What ended its search before its own end."""
    tree_digest: str


@dataclass(frozen=True, kw_only=True)
class CompletionRow(RunColumns):
    """A completion of an export."""

    problem: str
    level: str | None
    reference: str | None
    completion: int
    """Its place among the problem's, best first, from 0."""
    node: str
    """Its last node, such as `0.2.1`."""
    answer: str | None
    correct: bool | None
    """Whether the answer equals the reference; null without one."""
    score: float | None
    probability: float | None
    step_scores: list[float | None]
    tokens: int
    """Generated tokens of its path."""
    text: str
    thinking: str


def answers_of(run: Run, vote: str | None = None) -> Iterator[Answer]:
    """The answers of the solved problems in the run's order, by this vote or its own.

    Raises RunError.
    """
    vote = vote or run.config.vote
    problems, ids = run.totals.problems, run.config.problem_ids
    names = [name for name in ids if name in problems]
    if len(names) < len(problems):  # a log that holds others
        others = problems.keys() - set(ids)
        names += (name for name in problems if name in others)
    for name in names:
        problem = problems[name]
        yield Answer(id=problem.id, level=problem.level, **_answer_columns(problem, vote))


def write_answers(run: Run) -> None:
    """Write the files of a finished run; raises RunError."""
    with writing(run.folder):
        for kind, name in ANSWERS.items():
            with replacing(run.folder / name) as stream:
                write_table(stream, kind, Answer, answers_of(run))


def problem_rows(folders: Sequence[Path]) -> Iterator[ProblemRow]:
    """The solved problems of runs, in the order of their logs; raises RunError.

    Strategies that share a run have a row each, by their own votes. A folder of runs, or of a
    group, stands for all of them.
    """
    for path, name, config, votes in _runs(folders):
        for strategy, vote in votes.items():
            columns = _run_columns(name, config) | {"strategy": strategy}
            for problem in measured_problems(read_events(path), config.model_parameters):
                yield ProblemRow(
                    **columns,
                    problem=problem.id,
                    level=None if problem.level is None else str(problem.level),
                    **_answer_columns(problem, vote),
                    vote=vote,
                    any_correct=problem.any_correct,
                    completions=problem.completions,
                    generated_tokens=problem.tokens,
                    verifier_tokens=problem.verifier_tokens,
                    critique_tokens=problem.critique_tokens,
                    verifier_calls=problem.verifier_calls,
                    compute=problem.compute,
                    limit=problem.limit,
                    tree_digest=problem.tree_digest,
                )


def completion_rows(folders: Sequence[Path]) -> Iterator[CompletionRow]:
    """The completions of the solved problems of runs, likewise; each run once."""
    for path, name, config, _ in _runs(folders):
        columns = _run_columns(name, config)
        for problem in solved_problems(read_events(path)):
            yield from _completions(columns, problem, config.vote)


def _completions(
    columns: dict[str, Any], problem: ProblemState, vote: str
) -> Iterator[CompletionRow]:
    record, own, solved = problem_record(problem, vote), problem.tokens_by_node(), problem.solution
    paths, ends = problem.completed_paths(), solved.completions if solved else ()
    for place, (completion, end) in enumerate(zip(record.completions, ends, strict=True)):
        group = solved.groups[end.group] if solved and end.group >= 0 else None
        yield CompletionRow(
            **columns,
            problem=record.id,
            level=None if record.level is None else str(record.level),
            reference=record.reference,
            completion=place,
            node=".".join(map(str, completion.node)),
            answer=completion.answer,
            correct=None if record.correct is None else bool(group and group.correct),
            score=completion.score,
            probability=completion.probability,
            step_scores=list(completion.step_scores),
            tokens=sum(own.get(node, 0) for node in paths[place]),
            text=completion.text,
            thinking=completion.thinking,
        )


def _runs(folders: Sequence[Path]) -> Iterator[tuple[Path, str, RunConfig, dict[str, str]]]:
    """The runs of folders: folder, name, configuration, votes by strategy."""
    runs = [each for folder in folders for each in runs_in(folder)]
    for name, (path, votes) in zip(short_names([path for path, _ in runs]), runs, strict=True):
        config = read_run_config(path)
        yield path, name, config, votes or {config.strategy: config.vote}


def _run_columns(name: str, config: RunConfig) -> dict[str, Any]:
    settings = {key: value for key, value in config.parameters.items() if key != "n"}
    return {
        "run": name,
        "strategy": config.strategy,
        "n": config.parameters.get("n"),
        "seed": config.seed,
        "deployment": config.deployment,
        "dataset": config.dataset,
        "schedule": config.schedule,
        "settings": json.dumps(settings | msgspec.to_builtins(config.limits)),
    }


def _answer_columns(problem: ProblemMeasures, vote: str) -> dict[str, Any]:
    """The columns that the answer of a problem by this vote has in every table."""
    answer = problem.answers.get(vote)
    score, probability = problem.scores.get(answer or "", (None, None))
    return {
        "question": problem.text,
        "answer": answer,
        "score": _six_digits(score),
        "probability": _six_digits(probability),
        "correct": None if problem.correct is None else problem.correct.get(vote),
        "tokens": problem.search_tokens,
        "seconds": rounded(problem.seconds, 3),
        "reference": problem.reference,
    }


def _six_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def as_table(rows: Iterable[Any], kind: str, of: type = Answer) -> bytes:
    """A small table in memory: see `write_table`."""
    stream = io.BytesIO()
    write_table(stream, kind, of, rows)
    return stream.getvalue()


def write_table(stream: IO[bytes], kind: str, of: type, rows: Iterable[Any]) -> int:
    """Write rows of one dataclass, `of`, as a TableKind; how many they were.

    JSONL has a JSON object a line, CSV a header. Raises ConfigError without pyarrow.
    """
    write = {"parquet": _write_parquet, "csv": _write_csv, "jsonl": _write_jsonl}[kind]
    count = 0

    def batches() -> Iterator[list[dict[str, Any]]]:
        nonlocal count
        remaining = iter(rows)
        while batch := [_cells(row) for row in islice(remaining, _BATCH)]:
            count += len(batch)
            yield batch

    write(stream, of, batches())
    return count


Batches = Iterator[list[dict[str, Any]]]


def _cells(row: Any) -> dict[str, Any]:
    """A row's cells; half of a surrogate pair, which no file holds, becomes a question mark."""
    return {
        field.name: value.encode(errors="replace").decode() if isinstance(value, str) else value
        for field in fields(row)
        for value in [getattr(row, field.name)]
    }


def _write_jsonl(stream: IO[bytes], of: type, batches: Batches) -> None:
    for batch in batches:
        lines = (f"{json.dumps(cells, ensure_ascii=False)}\n" for cells in batch)
        stream.write("".join(lines).encode())


def _write_csv(stream: IO[bytes], of: type, batches: Batches) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    table = csv.writer(text, lineterminator="\n")
    table.writerow(field.name for field in fields(of))
    for batch in batches:
        table.writerows(map(csv_cell, cells.values()) for cells in batch)
    text.detach()


def _write_parquet(stream: IO[bytes], of: type, batches: Batches) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            f"Parquet files are written by pyarrow, which cannot be used: {error}.",
            hint=f"Install it: {how_to_install('parquet')}\nOr take the rows as JSONL or CSV.",
        ) from error
    types = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
        list[float | None]: pyarrow.list_(pyarrow.float64()),
    }
    columns = [
        (name, next(types[each] for each in (hint, *get_args(hint)) if each in types))
        for name, hint in get_type_hints(of).items()
    ]
    schema = pyarrow.schema(columns)
    with parquet.ParquetWriter(stream, schema) as table:
        for batch in batches:
            table.write_table(pyarrow.Table.from_pylist(batch, schema))


def csv_cell(value: object) -> object:
    """A value as a cell: a text that a spreadsheet would take for a formula begins with `'`.

    Numbers, with an interval or without, and dashes are left as they are; a list is JSON.
    """
    if isinstance(value, str) and (value[:1] in "=+-@" or not value[:1].isprintable()):
        return value if _HARMLESS.fullmatch(value) else f"'{value}"
    if isinstance(value, list):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else value
