"""Tables of what the engines did per step: KV blocks in use, batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from tts.build.spec import Deployment
from tts.runs.engine_steps import steps_of_run
from tts.runs.records import Engine

from .measurement import Measurement, Row
from .results import CellResult

Step = TypeVar("Step")

MOST_STEPS = 150
"""Rows of an engine under one division."""


def kv_blocks(engine: Engine, runs: Sequence[tuple[str, Path]]) -> Measurement | None:
    """KV blocks in use over an engine's steps, of runs under different divisions, by title.

    None where the engine did not tell.
    """
    rows: list[Row] = []
    for title, folder in runs:
        steps = [step for step in steps_of_run(folder, engine) if step.blocks_used is not None]
        most = max((step.blocks_used or 0 for step in steps), default=0)
        rows += [
            {
                "division": title,
                "engine": engine,
                "step": begin,
                "blocks in use": max(step.blocks_used or 0 for step in part),
                "pool": part[0].blocks,
                "most in use": most,
            }
            for begin, part in parts(steps, MOST_STEPS)
        ]
    if not rows:
        return None
    notes = [
        "Blocks of active requests; blocks that are kept for reuse alone are left out.",
        f"Thinned to {MOST_STEPS} rows a run: each is the most of neighbouring steps.",
        "Dotted: the pool, where it is near.",
    ]
    return Measurement(f"kv-blocks-{engine}", rows, notes=notes)


def batch_utilisation(results: Sequence[CellResult], spec: Deployment) -> Measurement | None:
    """How full the engines' batches were under each schedule; None where they did not tell."""
    rows: list[Row] = []
    for result in results:
        for engine, limits in spec.engines().items():
            steps = [
                step
                for run in result.runs
                for step in steps_of_run(run.folder, engine)
                if step.scheduled
            ]
            if not steps:
                continue
            batch = fmean(step.scheduled or 0 for step in steps)
            tokens = _mean(step.tokens for step in steps)
            rows.append(
                {
                    "schedule": result.cell.title,
                    "engine": engine,
                    "steps": len(steps),
                    "requests per step": round(batch, 2),
                    "batch utilisation": round(batch / limits.max_batch_size, 4),
                    "tokens per step": None if tokens is None else round(tokens, 1),
                    "of max_num_tokens": None
                    if tokens is None
                    else round(tokens / limits.max_num_tokens, 4),
                }
            )
    if not rows:
        return None
    notes = ["Steps in which the engine had something to do; idle time is not in these means."]
    return Measurement("batch-utilisation", rows, notes=notes)


def parts(steps: Sequence[Step], most: int) -> Iterable[tuple[int, Sequence[Step]]]:
    """Neighbouring steps in at most so many parts, each with the number of its first step."""
    size = max(1, -(-len(steps) // most))
    return ((begin, steps[begin : begin + size]) for begin in range(0, len(steps), size))


def _mean(values: Iterable[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
