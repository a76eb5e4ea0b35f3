"""`tts score`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from typer import BadParameter

from tts.lab.scoring.calibrate import calibrate, calibration_fields
from tts.lab.scoring.findings import findings_of
from tts.lab.scoring.measurement import measure
from tts.lab.scoring.score_run import ScoreRequest, ScoringCost, score_chains
from tts.lab.scoring.tables import (
    BestRow,
    MeasureRow,
    best_rows,
    measure_rows,
    writable_file,
    write_calibration,
    write_tables,
)
from tts.reports.console import consoles, say
from tts.reports.measurement import measurement_report, print_measurement, print_rankings
from tts.reports.progress import Bars
from tts.runs.verdicts import Finding

from .command import command_line
from .json_output import print_json
from .options import given_options
from .options.search import Score
from .runs import given_sources


@dataclass(frozen=True, kw_only=True)
class ScoreDocument:
    """Scores, what they tell of the verifier, and the best of candidates."""

    folder: str
    """It has every score: steps.jsonl, steps.csv."""
    deployment: str
    verifier: dict[str, str]
    """What decides its scores: model, format, template."""
    chains: int
    """Solutions that have scores."""
    problems: int
    steps: int
    """Scores of steps."""
    notes: list[str]
    """What was read as what, and what was left out."""
    cost: ScoringCost
    findings: list[Finding]
    """Sentences, the verdict first."""
    measures: list[MeasureRow]
    """Estimates with their intervals; empty without labels."""
    calibration: dict[str, Any]
    """The fields of verifier.calibration that --write sets; empty where no map holds."""
    best: list[BestRow]
    """The best candidate of each problem; empty where they were not made elsewhere."""
    page: str | None
    """The report; null without labels."""
    written: bool
    """Whether the calibration was written to the deployment file."""


def score(options: Score) -> None:
    """Run `tts score`."""
    if (options.file is None) == (options.dataset is None):
        raise BadParameter(
            "give a file of chains, the folder of a run, or --dataset to sample them",
            param_hint="FILE",
        )
    of_samples = given_options(options.context) & {"limit", "n", "seed"}
    if of_samples and options.dataset is None:
        raise BadParameter("goes with --dataset", param_hint=f"--{min(of_samples)}")
    if options.write and options.verifier is not None:
        raise BadParameter(
            "is for the deployment's own verifier; name the function in the file as "
            "verifier.function",
            param_hint="--write",
        )
    own_file = writable_file(options.deployment) if options.write else None
    request = ScoreRequest(
        deployment=options.deployment,
        input=options.file,
        dataset=options.dataset,
        limit=options.limit,
        n=options.n,
        seed=options.seed,
        source=given_sources([], options.verifier, options.deployment).get("verifier"),
        server=options.server,
        endpoints=tuple(options.endpoints or ()),
        command=tuple(command_line(options.context)),
    )
    with Bars() as observer:
        scored = score_chains(request, options.out, observer)
    measurement = measure(scored.chains, length_unit=scored.length_unit)
    final, inner = measurement.final, measurement.inner
    maps = calibrate(final.these if final else None, inner.these if inner else None)
    findings = [*findings_of(measurement), Finding("cost", str(scored.cost))]
    page = None
    if measurement.main:
        facts = {"Scoring": scored.facts}
        title = f"The verifier of {scored.deployment.name}, on {scored.source}"
        page = measurement_report(
            scored.folder / "report.html", title, measurement, findings, maps, facts
        ).write()
    names = write_tables(scored, measurement)
    is_written = bool(own_file and write_calibration(own_file, scored, measurement, maps))
    if options.as_json:
        document = ScoreDocument(
            folder=str(scored.folder),
            deployment=scored.deployment.name,
            verifier=asdict(scored.verifier),
            chains=measurement.chains,
            problems=measurement.problems,
            steps=measurement.scores,
            notes=scored.notes,
            cost=scored.cost,
            findings=findings,
            measures=list(measure_rows(measurement)) if measurement.main else [],
            calibration=calibration_fields(measurement, maps),
            best=list(best_rows(scored.rankings)),
            page=str(page) if page else None,
            written=is_written,
        )
        print_json(document)
    else:
        stdout, _ = consoles()
        if scored.rankings:
            print_rankings(stdout, scored.rankings)
        if measurement.main or not scored.rankings:
            print_measurement(stdout, measurement, findings, maps if final else None)
        else:
            stdout.print(str(scored.cost), markup=False, soft_wrap=True)
    say(f"tables in {scored.folder}: {', '.join(names)}")
    if page:
        say(f"the page: {page}")
    if own_file:
        say(f"verifier.calibration: {'written to' if is_written else 'nothing for'} {own_file}")
