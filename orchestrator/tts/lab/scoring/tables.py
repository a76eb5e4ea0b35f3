"""The files of a scoring: a row for each chain, and the best candidate of each problem."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tts.runs.files import replacing, write_whole
from tts.runs.folder import writing
from tts.search.thought import aggregate, significant

from .measurement import AGGREGATIONS
from .score_run import Scored

ROWS = "scores"
BEST = "best.jsonl"

Row = dict[str, Any]


def rows_of(scored: Scored) -> Iterator[Row]:
    """A row for each chain, in the input's order."""
    ranks = {
        (result.problem.question, done.node[0]): (rank, done.answer)
        for result in scored.rankings
        for rank, done in enumerate(result.completions, 1)
    }
    places: dict[str, int] = {}
    for each in scored.chains:
        chain = each.chain
        place = places.get(chain.question, 0)
        places[chain.question] = place + 1
        rank, answer = ranks.get((chain.question, place), (None, None))
        numbers = [score for score in each.scores if score is not None]
        yield {
            "problem": chain.problem,
            "id": chain.name,
            "scores": [None if score is None else significant(score) for score in each.scores],
            "lengths": list(each.lengths),
            **{how: aggregate(numbers, how) if numbers else None for how in AGGREGATIONS},
            "rank": rank,
            "answer": answer,
            "right": chain.right,
            "right_steps": None if chain.right_steps is None else list(chain.right_steps),
        }


def best_of(scored: Scored) -> Iterator[Row]:
    """The best candidate of each problem, and the answers that the candidates vote for."""
    for result in scored.rankings:
        best = result.completions[0]
        yield {
            "problem": result.problem.id,
            "question": result.problem.question,
            "candidate": best.node[0] + 1,
            "of": len(result.completions),
            "score": None if best.score is None else significant(best.score),
            "answer": best.answer,
            "right": result.correct,
            "weighted": result.answers["weighted"],
            "majority": result.answers["majority"],
            "text": best.text,
        }


def write_tables(scored: Scored) -> list[str]:
    """Write the files; their names. Parquet is written where pyarrow is installed."""
    rows, folder = list(rows_of(scored)), scored.folder
    with writing(folder):
        write_whole(folder / f"{ROWS}.jsonl", _json_lines(rows))
        write_whole(folder / f"{ROWS}.csv", _csv(rows))
        names = [f"{ROWS}.jsonl", f"{ROWS}.csv"]
        if write_parquet := _parquet(rows):
            with replacing(folder / f"{ROWS}.parquet") as file:
                write_parquet(file)
            names.append(f"{ROWS}.parquet")
        if scored.rankings:
            write_whole(folder / BEST, _json_lines(best_of(scored)))
            names.append(BEST)
    return names


def _json_lines(rows: Iterator[Row] | Sequence[Row]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    table.writerow(rows[0])
    table.writerows(map(_cell, row.values()) for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool | list) else value


def _parquet(rows: Sequence[Row]) -> Callable[[Any], None] | None:
    """What writes the rows as Parquet; None without pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return None
    kinds = {
        "scores": pyarrow.list_(pyarrow.float64()),
        "lengths": pyarrow.list_(pyarrow.int64()),
        "right_steps": pyarrow.list_(pyarrow.bool_()),
        "right": pyarrow.bool_(),
        "rank": pyarrow.int64(),
        **dict.fromkeys(("problem", "id", "answer"), pyarrow.string()),
    }
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in rows[0]])
    table = pyarrow.Table.from_pylist(list(rows), schema=schema)
    return lambda file: parquet.write_table(table, file)
