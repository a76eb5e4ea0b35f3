"""The tables of every figure, and the advice, from the runs of a finished study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tts.build.spec import ROLES
from tts.runs.folder import Json, read_json
from tts.runs.statistics import rounded, wilson

from .advice import StudyAdvice, advise, of_n
from .cells import BASE
from .engine_tables import (
    batch_utilisation,
    cache_curves,
    caches_by_split,
    kv_blocks,
    memory_by_split,
    tokens_per_request,
)
from .folder import FigureRow, Measurement, Study, load_file, measurements_file, write
from .kv_memory import deployment_of, generator_share
from .results import CellResult, read_results

Results = Mapping[str, CellResult]


def by_split(study: Study, results: Results) -> Measurement | None:
    """Throughput against the generator's share of the KV memory; None where it was not measured."""
    cells = [results[BASE], *(r for r in results.values() if r.cell.engines.share is not None)]
    if len(cells) < 2:
        return None
    rows: list[FigureRow] = []
    for result in cells:
        spec = deployment_of(study.planned, study.memory, result.cell.engines)
        rows.append(
            {
                "generator share": round(generator_share(spec, study.memory), 4),
                "deployed": result.cell.name == BASE,
                **{f"{role} blocks": e.kv_cache.blocks for role, e in spec.engines().items()},
                **_speed(result),
            }
        )
    return Measurement("throughput-by-split", sorted(rows, key=_first), notes=_design(study))


def ablation(study: Study, results: Results) -> Measurement:
    """The cells that change the schedule, speculation or a cache, beside the base."""
    rows: list[FigureRow] = [
        {
            "changed": result.cell.title,
            **_speed(result),
            "generated tokens/s": round(result.tokens_per_s, 1),
            "useful tokens/s": round(result.useful_tokens_per_s, 1),
            "goodput, tokens/s": rounded(result.goodput, 2),
            "s per problem (median)": rounded(result.latency_p50_s, 3),
        }
        for result in results.values()
        if result.cell.n == results[BASE].cell.n
        and result.cell.in_flight is None
        and result.cell.engines.share is None
    ]
    base = results[BASE]
    scores = sum(run.scores for run in base.runs)
    cached = sum(run.cached_scores for run in base.runs)
    notes = [
        *_design(study),
        f"The score cache answered {cached:,} of {scores:,} scores of the base without a request; "
        "there is no switch that turns it off, nor one for pruning early.",
    ]
    return Measurement("ablation", rows, notes=notes)


def concurrency(study: Study, results: Results, problems: int) -> Measurement | None:
    """Throughput and latency against the problems in flight; None where it was not measured."""
    cells = [r for r in results.values() if r.cell.in_flight is not None]
    if not cells:
        return None
    rows: list[FigureRow] = [
        {
            "problems in flight": result.cell.in_flight or problems,
            "limited": result.cell.in_flight is not None,
            **_speed(result),
            "s per problem (median)": rounded(result.latency_p50_s, 3),
        }
        for result in [*cells, results[BASE]]
    ]
    notes = [
        *_design(study),
        f"Without a limit the schedule starts problems while the engines have room, at most the "
        f"{problems} of a round.",
    ]
    return Measurement("concurrency", sorted(rows, key=_first), notes=notes)


def accuracy_by_n(results: Results) -> Measurement | None:
    """Accuracy and cost over n; None where n was not varied or nothing has a reference."""
    cells = [result for result in of_n(results) if result.accuracy is not None]
    if len(cells) < 2:
        return None
    rows: list[FigureRow] = []
    for result in cells:
        accuracy, count = result.accuracy or 0.0, len(result.right)
        low, high = wilson(accuracy, count)
        compute = result.compute_per_problem
        rows.append(
            {
                "n": result.cell.n,
                "accuracy": round(accuracy, 4),
                "low": round(low, 4),
                "high": round(high, 4),
                "problems": count,
                "generated tokens per problem": round(result.tokens_per_problem, 1),
                **({"compute per problem": compute} if compute is not None else {}),
                "problems/s": round(result.problems_per_s, 4),
            }
        )
    return Measurement("accuracy-by-n", rows, notes=["Intervals: Wilson, 95%."])


def by_load(load: Json) -> list[Measurement]:
    """Each engine's throughput over the load in flight, from tune.json."""
    return [
        Measurement(
            f"{role}-by-load",
            [
                {
                    "engine": role,
                    "in flight": level["load"],
                    "unit": engine["unit"],
                    "tokens/s": round(level["tokens_per_s"], 1),
                    "lowest": round(level["lowest"], 1),
                    "highest": round(level["highest"], 1),
                    "ms per request": round(1e3 * level["latency_s"], 2),
                    "saturation point": rounded(engine["saturation_point"]["load"], 1),
                }
                for level in engine["levels"]
            ],
            notes=["Lines: from the slowest to the fastest repeat (docs/guides/tune.md)."],
        )
        for role, engine in load["engines"].items()
    ]


def same_trees(results: Sequence[CellResult]) -> bool:
    """Whether every cell with the same n has found the same trees in each round."""
    digests: dict[tuple[int, int], set[str]] = {}
    for result in results:
        for number, run in enumerate(result.runs):
            digests.setdefault((result.cell.n, number), set()).add(run.tree_digest)
    return all(len(each) == 1 for each in digests.values())


def _speed(result: CellResult) -> FigureRow:
    return {
        "problems/s": round(result.problems_per_s, 4),
        "speed": round(result.speed.value, 4),
        "low": rounded(result.speed.low, 4),
        "high": rounded(result.speed.high, 4),
    }


def _design(study: Study) -> list[str]:
    rounds = study.config.form.rounds
    if rounds == 1:
        return ["One round: how much of the differences is noise is not known."]
    return [
        f"{rounds} rounds with different problems; the speed is that of problems/s over the "
        "deployment's, as it is. Intervals hold together for all cells of the study, in 95% of "
        "studies (docs/guides/tune.md#study)."
    ]


def _first(row: FigureRow) -> float:
    """The value of the first column, a number."""
    value = next(iter(row.values()))
    assert isinstance(value, int | float)
    return value


@dataclass(frozen=True)
class Findings:
    """What a finished study shows."""

    measurements: tuple[Measurement, ...]
    advice: tuple[StudyAdvice, ...]
    problems: int
    """Problems of each cell in a round."""
    same_trees: bool
    """Whether all cells with the same n found the same trees."""


def hits_by_split(study: Study, run: Path) -> list[Measurement]:
    """Prefix hits and thrashing over divisions; none where no prefixes are reused."""
    engines = study.planned.engines().values()
    if not study.memory.shared or not all(engine.kv_cache.reuse for engine in engines):
        return []
    return caches_by_split(study.planned, study.memory, cache_curves(run, study.planned))


def two_divisions(results: Mapping[str, CellResult]) -> list[tuple[str, Path]]:
    """The base, and the division that differs most in speed from it: titles and run folders."""
    others = [each for each in results.values() if each.cell.engines.share is not None]
    cells = [results[BASE]]
    if others:
        cells.append(max(others, key=lambda each: abs(math.log(each.speed.value))))
    return [(each.cell.title, each.runs[0].folder) for each in cells]


def by_schedule(results: Mapping[str, CellResult]) -> list[CellResult]:
    """The cells that differ from the base in the schedule at most."""
    return [
        each
        for each in results.values()
        if each.cell.name == BASE or each.cell.schedule != "decoupled"
    ]


def measure(study: Study) -> Findings:
    """Read every run of a finished study, and keep what follows; raises RunError."""
    steps, rounds = study.steps()
    cells = list(dict.fromkeys(step.cell for step in steps))
    results = read_results(cells, study.config.form.rounds, study.folder / "runs")
    load = read_json(load_file(study.folder), f"{study.folder} has no throughput over load")
    base = results[BASE]
    tables = (
        memory_by_split(study.planned, study.memory) if study.memory.shared else None,
        by_split(study, results),
        *(kv_blocks(engine, two_divisions(results)) for engine in ROLES),
        *hits_by_split(study, base.runs[0].folder),
        tokens_per_request(base.runs[0].folder),
        *by_load(load),
        batch_utilisation(by_schedule(results), study.planned),
        ablation(study, results),
        concurrency(study, results, len(rounds[0])),
        accuracy_by_n(results),
    )
    findings = Findings(
        tuple(table for table in tables if table),
        tuple(advise(results, load)),
        len(rounds[0]),
        same_trees(list(results.values())),
    )
    write(measurements_file(study.folder), asdict(findings))
    return findings
