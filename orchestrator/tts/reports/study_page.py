"""The output of `tts study` when its runs are finished: advice in words, and the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rich.console import Console

from tts.lab.study.cells import CellRun
from tts.lab.study.folder import run_folder
from tts.lab.study.measure import Findings
from tts.lab.study.study_plan import Study

from .figures.figure import Cell
from .figures.study import study_figures
from .page import FILE
from .page.of_runs import Report


def print_advice(out: Console, report: Report) -> None:
    """Print each advice with the title of the figure that it rests on."""
    for advice in report.advice:
        out.print(f"[bold]{advice.subject}[/bold]", soft_wrap=True)
        out.print(f"  {advice.text}", markup=False, soft_wrap=True)
        rests_on = report.title_of(advice.figure)
        out.print(f"  Figure: {rests_on}", style="dim", markup=False, soft_wrap=True)


def study_report(study: Study, findings: Findings) -> Report:
    """The report of a study, with the trees of the base's first run."""
    rounds = study.config.form.rounds
    times = "one round" if rounds == 1 else f"{rounds} rounds"
    return Report(
        study.folder / FILE,
        f"Study of {study.config.deployment}",
        f"Throughput and accuracy of both engines, measured in {times} of {findings.problems:,} "
        f"problems of {study.config.dataset}.",
        study_figures(findings.measurements),
        [run_folder(study.folder, CellRun(study.cells()[0], 1))],
        advice=findings.advice,
        configuration=_configuration(study, findings),
    )


def _configuration(study: Study, findings: Findings) -> dict[str, Mapping[str, Cell]]:
    """The study's configuration, for the page."""
    config, spec = study.config, study.spec
    engines: dict[str, Cell] = {}
    for role, engine in study.planned.engines().items():
        engines[f"{role}: checkpoint"] = engine.checkpoint.name
        engines[f"{role}: precision"] = engine.precision
        engines[f"{role}: KV blocks"] = engine.kv_cache.blocks
        engines[f"{role}: max_batch_size"] = engine.max_batch_size
        engines[f"{role}: max_num_tokens"] = engine.max_num_tokens
    strategy = study.strategy()
    form = {
        name: ", ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(config.form).items()
        if value is not None
    }
    return {
        "Study": {
            "deployment": config.deployment_source,
            "target": spec.target,
            "digest": config.deployment_digest,
            "dataset": config.dataset,
            "seed": config.seed,
            "strategy": f"{strategy.name}, n = {study.n}",
            "rounds": config.form.rounds,
            "problems in a round": findings.problems,
            "servers were started with other limits": config.restarts,
            "same trees in all cells of a round": findings.same_trees,
        },
        "Engines": engines,
        "Form": form,
    }
