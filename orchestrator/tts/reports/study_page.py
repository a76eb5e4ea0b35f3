"""The output of `tts study` when its runs are finished: advice in words, and the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tts.lab.study.cells import CellRun
from tts.lab.study.folder import run_folder
from tts.lab.study.measure import Findings
from tts.lab.study.study_plan import Study

from .figures.figure import Cell, Figure
from .figures.study import study_figures
from .page import FILE, write_page
from .page.of_runs import facts_of
from .page.page import ADVISED


def print_advice(out: Console, findings: Findings) -> None:
    """Print each advice with the name of the figure that it rests on."""
    titles = {figure.name: figure.title for figure in study_figures(findings.measurements)}
    for advice in findings.advice:
        out.print(f"[bold]{advice.subject}[/bold]", soft_wrap=True)
        out.print(f"  {advice.text}", markup=False, soft_wrap=True)
        rests_on = titles.get(advice.figure, advice.figure)
        out.print(f"  Figure: {rests_on}", style="dim", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class StudyReport:
    """The content of a study's page, and where it is written."""

    study: Study
    findings: Findings

    @property
    def file(self) -> Path:
        """The page."""
        return self.study.folder / FILE

    @property
    def figures(self) -> list[Figure]:
        """The advice as a table, and the figures."""
        return [advice_figure(self.findings), *study_figures(self.findings.measurements)]

    def write(self) -> Path:
        """Write the page, with the trees of the base's first run; raises RunError."""
        base = run_folder(self.study.folder, CellRun(self.study.cells()[0], 1))
        return write_page(
            self.file,
            f"Study of {self.study.config.deployment}",
            facts(self.study, self.findings) | _of_machine(base),
            study_figures(self.findings.measurements),
            [base],
            lead=_lead(self.study, self.findings),
            advice=self.findings.advice,
        )


def advice_figure(findings: Findings) -> Figure:
    """All advice as a table, with the figures that it rests on."""
    titles = {figure.name: figure.title for figure in study_figures(findings.measurements)}
    rows: list[dict[str, Cell]] = [
        {
            "advice about": advice.subject,
            "advice": advice.text,
            "rests on": titles.get(advice.figure, advice.figure),
        }
        for advice in findings.advice
    ]
    return Figure("advice", "Advice", ADVISED, rows)


def _lead(study: Study, findings: Findings) -> str:
    rounds = study.config.form.rounds
    times = "one round" if rounds == 1 else f"{rounds} rounds"
    return (
        f"Throughput and accuracy of both engines, measured in {times} of {findings.problems:,} "
        f"problems of {study.config.dataset}."
    )


def facts(study: Study, findings: Findings) -> dict[str, Mapping[str, Cell]]:
    """The study's configuration, for the page."""
    config, spec = study.config, study.spec
    engines: dict[str, Cell] = {}
    for role, engine in spec.engines().items():
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


def _of_machine(run: Path) -> dict[str, Mapping[str, Cell]]:
    """The versions and machine of every run."""
    return {name: said for name, said in facts_of([run]).items() if name != "Configuration"}
