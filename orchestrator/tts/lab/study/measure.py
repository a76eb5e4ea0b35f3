"""The table of every figure, and the advice, from the runs of a finished study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tts.build.spec import ROLES
from tts.runs.folder import read_json

from .advice import StudyAdvice, advise
from .cells import BASE
from .engine_tables import (
    batch_utilisation,
    cache_curves,
    caches_by_split,
    kv_blocks,
    memory_by_split,
    tokens_per_request,
)
from .folder import Measurement, load_file, measurements_file, write
from .results import CellResult, read_results
from .speed_tables import ablation, accuracy_by_n, by_load, by_split, concurrency, same_trees
from .study_plan import Study


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
        accuracy_by_n(study, results),
    )
    findings = Findings(
        tuple(table for table in tables if table),
        tuple(advise(results, load)),
        len(rounds[0]),
        same_trees(list(results.values())),
    )
    write(measurements_file(study.folder), asdict(findings))
    return findings
