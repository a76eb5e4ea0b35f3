"""The `tts` command line. Heavy imports stay inside the commands: `tts --help` must be instant."""

from __future__ import annotations

import sys

import typer

from . import (
    doctor,
    engines,
    gateway,
    keys,
    plan,
    random_checkpoint,
    report,
    requests,
    runs,
    serve,
    simulate,
    study,
    tune,
    watch,
)
from .ending import ended

app = typer.Typer(
    name="tts",
    help="Verifier-guided test-time scaling: compile a generator and a process reward model, "
    "serve both with Triton, and search over them.\n\n"
    "DEPLOYMENT is a deployment file or the name of a bundled one, such as demo.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("plan", rich_help_panel="Build and serve")(plan.plan)
app.command("lint", rich_help_panel="Build and serve")(doctor.lint)
app.command("build-engines", rich_help_panel="Build and serve")(engines.build_engines)
app.command("deploy", rich_help_panel="Build and serve")(engines.deploy)
app.command("serve", rich_help_panel="Build and serve")(serve.serve)
app.command("gateway", rich_help_panel="Build and serve")(gateway.gateway)
app.add_typer(keys.app, name="keys", rich_help_panel="Build and serve")
app.command("requests", rich_help_panel="Build and serve")(requests.requests)
app.command("tune", rich_help_panel="Build and serve")(tune.tune)
app.command("random-checkpoint", rich_help_panel="Build and serve")(
    random_checkpoint.random_checkpoint
)
app.command("solve", rich_help_panel="Search")(runs.solve)
app.command("bench", rich_help_panel="Search")(runs.bench)
app.command("top", rich_help_panel="Look at runs")(watch.top)
app.command("watch", rich_help_panel="Look at runs")(watch.watch)
app.command("report", rich_help_panel="Look at runs")(report.report)
app.command("compare", rich_help_panel="Look at runs")(report.compare)
app.command("merge", rich_help_panel="Look at runs")(report.merge)
app.command("trace", rich_help_panel="Look at runs")(report.trace)
app.command("study", rich_help_panel="Study a deployment")(study.study)
app.command("calibrate", rich_help_panel="Study a deployment")(study.calibrate)
app.command("simulate", rich_help_panel="Study a deployment")(simulate.simulate)
app.command("doctor", rich_help_panel="Help")(doctor.doctor)


def main() -> None:
    """Run the command line; whatever happens becomes a sentence and an exit code (`ending`)."""
    sys.exit(ended(app))
