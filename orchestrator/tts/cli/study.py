"""`tts tune` and `tts study`: measurements of a deployment."""

from __future__ import annotations

from dataclasses import dataclass

from typer import BadParameter

from tts.build.deployment_edit import require_writable, write_values
from tts.build.spec import Role, deployment_file
from tts.lab.study.cells import FULL, QUICK
from tts.lab.study.measure import measure
from tts.lab.study.study_run import resume_study, run_study
from tts.lab.tuning.measure import LoadLevel, Proposal, SaturationPoint
from tts.lab.tuning.tune import tune as tune_engines
from tts.reports.console import consoles
from tts.reports.progress import Bars
from tts.reports.study_page import print_advice, study_report
from tts.reports.tuning import print_change, print_tuned

from .json_output import print_json
from .options import given_options
from .options.study import Study, Tune

_FIXED = ("quick", "dataset", "seed", "server", "out")
"""Options of a new study alone."""


@dataclass(frozen=True, kw_only=True)
class TunedEngine:
    """The measurements of one engine, and the conclusions."""

    role: Role
    unit: str
    """The unit of its load."""
    samples: int
    """Measurements."""
    levels: tuple[LoadLevel, ...]
    saturation: SaturationPoint
    proposal: Proposal | None
    """null with too few measurements, or if they were stopped."""


@dataclass(frozen=True, kw_only=True)
class TuneDocument:
    """Throughput over load, and how much to keep in flight."""

    deployment: str
    """The deployment file."""
    result: str
    """The file that keeps the measurements."""
    stopped: bool
    """Whether Ctrl-C ended them early."""
    threads: str | None
    """The engines' CPU threads in words; null where they are not this machine's."""
    engines: list[TunedEngine]
    written: bool
    """Whether --write has changed the deployment file."""


def tune(options: Tune) -> None:
    """Run `tts tune`."""
    file = deployment_file(options.deployment)
    if options.write:
        require_writable(file)
    with Bars() as observer:
        tuned = tune_engines(
            options.deployment,
            run=options.run,
            dataset=options.dataset,
            seconds=options.seconds,
            server=options.server,
            out=options.out,
            observer=observer,
        )
    if options.as_json:
        if changed := bool(options.write and tuned.changes):
            write_values(file, tuned.changes)
        proposals = {proposal.role: proposal for proposal in tuned.proposals}
        document = TuneDocument(
            deployment=str(file),
            result=str(tuned.file),
            stopped=tuned.interrupted is not None,
            threads=tuned.threads,
            engines=[
                TunedEngine(
                    role=engine.role,
                    unit=engine.unit,
                    samples=len(engine.samples),
                    levels=engine.levels,
                    saturation=engine.saturation,
                    proposal=proposals.get(engine.role),
                )
                for engine in tuned.engines
            ],
            written=changed,
        )
        print_json(document)
        if tuned.interrupted:
            raise tuned.interrupted
        return
    stdout, _ = consoles()
    print_tuned(stdout, tuned)
    if tuned.interrupted:
        raise tuned.interrupted
    if tuned.changes:
        print_change(stdout, file, tuned.changes)
    elif tuned.proposals:
        stdout.print("The deployment file says so already.")
    if tuned.changes and options.write:
        write_values(file, tuned.changes)
        stdout.print(f"Written to {file}", markup=False, soft_wrap=True)
    elif tuned.changes:
        stdout.print("--write makes this change.", markup=False, soft_wrap=True)


def study(options: Study) -> None:
    """Run `tts study`."""
    with Bars() as observer:
        if options.resume is not None:
            fixed = given_options(options.context) & {*_FIXED}
            if fixed:
                raise BadParameter(
                    "a resumed study goes on as it began", param_hint=f"--{min(fixed)}"
                )
            finished = resume_study(options.resume, options.deployment, observer)
        elif options.deployment is None:
            raise BadParameter("name one, or --resume a study", param_hint="DEPLOYMENT")
        else:
            form = QUICK if options.quick else FULL
            finished = run_study(
                options.deployment,
                form,
                options.out,
                observer,
                dataset=options.dataset,
                seed=options.seed,
                server=options.server,
            )
    report = study_report(finished, measure(finished))
    page = report.write()
    stdout, _ = consoles()
    print_advice(stdout, report)
    stdout.print(f"page: {page}", style="dim", markup=False, soft_wrap=True)
