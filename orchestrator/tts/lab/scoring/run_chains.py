"""The completions of a run as chains, with the scores that its log has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tts.base.errors import RunError
from tts.build.spec import Deployment
from tts.runs.config import FunctionSource, prompting_of
from tts.runs.folder import has_finished
from tts.runs.log import read_events
from tts.runs.run import Run, problem_record
from tts.runs.state import solved_problems
from tts.serving.repository.digest import deployment_digest

from .chains import Chain, ChainSet


def chains_of_run(folder: Path) -> ChainSet:
    """The completions of a run's solved problems; raises RunError."""
    run = Run.load(folder)
    if not has_finished(folder):
        raise RunError(
            f"The run in {folder} has not finished.",
            hint=f"Continue it with: tts bench --resume {folder}",
        )
    chains, scores = [], {}
    place = {name: number for number, name in enumerate(run.config.problem_ids)}
    for problem in sorted(
        solved_problems(read_events(folder)), key=lambda each: place.get(each.id, len(place))
    ):
        record, solved = problem_record(problem, run.config.vote), problem.solution
        assert solved is not None
        for number, (completion, logged) in enumerate(
            zip(record.completions, solved.completions, strict=True), 1
        ):
            pairs = [
                (step, score)
                for step, score in zip(completion.steps, completion.step_scores, strict=True)
                if step
            ]
            if not pairs:
                continue
            name = f"{record.id}/{number}"
            steps, step_scores = zip(*pairs, strict=True)
            right = None
            if record.reference is not None or solved.correct is not None:
                right = logged.group >= 0 and bool(solved.groups[logged.group].correct)
            level = None if record.level is None else str(record.level)
            chains.append(
                Chain(
                    record.id,
                    name,
                    record.question,
                    steps,
                    right=right,
                    level=level,
                    place=f"{folder}, problem {record.id}",
                    reference=record.reference,
                )
            )
            if None not in step_scores:
                scores[name] = step_scores
    if not chains:
        raise RunError(f"The run in {folder} has no completion that could be scored.")
    return ChainSet(chains, [f"{len(chains):,} completions of the run in {folder}"], scores)


def is_same_verifier(folder: Path, deployment: Deployment, source: FunctionSource | None) -> bool:
    """Whether a run was scored by this deployment's verifier, or by this function in its place."""
    config = Run.load(folder).config
    scored_by = config.sources.get("verifier")
    if source or scored_by:
        return bool(source and scored_by and source.sha256 == scored_by.sha256)
    return (
        "verifier" not in config.functions
        and config.deployment_digest == deployment_digest(deployment)
        and _prompting(config.prompting) == _prompting(prompting_of(deployment))
    )


def _prompting(prompting: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of the verifier that decide a score, and not what a calibration makes of it."""
    return {**prompting.get("verifier", {}), "calibration": None}
