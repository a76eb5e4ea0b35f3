"""`tts build-engines`, `tts render` and `tts serve`."""

from __future__ import annotations

from collections.abc import Sequence

from tts.base import paths
from tts.base.errors import ConfigError
from tts.build.builder import BuildReport, preview_build
from tts.build.builder import build_engines as build
from tts.build.inputs import Inputs
from tts.build.resolve import open_deployment
from tts.build.spec import Deployment, Role, load_deployment
from tts.checks import BEFORE_BUILD
from tts.checks.after_build import BEFORE_DEPLOY
from tts.checks.requirements import require_checkpoints, require_gpu
from tts.reports.console import consoles, say
from tts.reports.progress import BuildLines, ProgressLines
from tts.serving.repository.engine_manifests import (
    render_engine_manifests,
    require_engine_manifests,
)
from tts.serving.repository.manifests import render_manifests, require_manifests
from tts.serving.repository.render import missing_engines, render_repository, require_something
from tts.serving.server.lookup import stop_server
from tts.serving.server.started import services_of
from tts.serving.server.supervise import serve as supervise

from .doctor import stop_on_errors
from .options.build import BuildEngines, Render, Serve


def build_engines(options: BuildEngines) -> None:
    """Run `tts build-engines`."""
    spec = open_deployment(options.deployment)
    inputs = Inputs(spec)
    stop_on_errors(spec, BEFORE_BUILD, inputs)
    out, _ = consoles()
    if options.dry_run:
        for line in preview_build(spec, inputs):
            out.print(line, markup=False, soft_wrap=True)
        return
    require_checkpoints(spec)
    with BuildLines() as lines:
        reports = build(
            spec, inputs=inputs, force=options.force, verify=options.verify, say=lines.say
        )
    for report in reports:
        out.print(_built(report), markup=False, soft_wrap=True)


def render(options: Render) -> None:
    """Run `tts render`."""
    out, _ = consoles()
    spec = load_deployment(options.deployment)
    if spec.started():
        if not options.manifests:
            raise ConfigError(
                f"The engines of {spec.name!r} are servers of their own: there is no repository.",
                hint=f"Manifests: tts render {options.deployment} --manifests DIR. "
                "Here: tts serve.",
            )
        require_engine_manifests(spec)
        stop_on_errors(spec, BEFORE_DEPLOY)
        for file in render_engine_manifests(spec, options.manifests):
            out.print(f"manifest: {file}", markup=False, soft_wrap=True)
        return
    spec = open_deployment(options.deployment)
    require_something(spec)
    if options.manifests:
        require_manifests(spec)
    stop_on_errors(spec, BEFORE_DEPLOY)
    folder = render_repository(spec)
    out.print(f"model repository: {folder}", markup=False, soft_wrap=True)
    for file in render_manifests(spec, options.manifests) if options.manifests else ():
        out.print(f"manifest: {file}", markup=False, soft_wrap=True)
    missing = missing_engines(spec)
    for line in _left_to_do(
        spec, options.deployment, manifests=bool(options.manifests), missing=missing
    ):
        say(line)


def _built(report: BuildReport) -> str:
    """The outcome for one engine: built or not, its size, how it was verified, its folder."""
    size = f"{report.size_bytes / 1e6:.1f} MB"
    if report.verification:
        error = max(report.verification.export_error, report.verification.served_error)
        checked = f"largest logit error against transformers {error:.1e}"
    else:
        checked = f"not verified: {report.not_verified}"
    took = f" in {report.seconds:.1f} s" if report.status == "built" else ""
    return f"{report.role}: {report.status}{took}, {size}, {checked}\n  {report.folder}"


def _left_to_do(
    deployment: Deployment, source: str, *, manifests: bool, missing: Sequence[Role]
) -> list[str]:
    """The remaining steps after `tts render`, in lines.

    `source` is what the user called the deployment, `missing` the engines that are not built here.
    """
    notes = []
    if manifests and deployment.server.grpc_port == "auto":
        notes += [
            "There the server listens on gRPC port 8001; bench and solve look for it on that port",
            "when the deployment says server.grpc_port: 8001.",
        ]
    if missing:
        notes += [
            f"Not built on this machine: {' and '.join(missing)}. The repository expects them in",
            f"{paths.built_dir(deployment.name)}; build them with: tts build-engines {source}",
            "Then render again: clients know a server by the engines it was rendered for.",
        ]
    return notes


def serve(options: Serve) -> None:
    """Run `tts serve`."""
    spec = open_deployment(options.deployment)
    if not spec.started():
        require_something(spec)
    services = services_of(spec)
    if options.dry_run:
        for service in services:
            print(service.planned_command())  # noqa: T201 - to be pasted, so without line breaks
        return
    lines = ProgressLines()
    if options.stop:
        stopped = [stop_server(service) for service in services]
        lines.say("Stopped." if any(stopped) else f"No server of {spec.name} is running.")
        return
    if not services:
        raise ConfigError(
            f"Deployment {spec.name} says server.kind: embedded, so every program runs the engines "
            "itself and none would use a server.",
            hint="Nothing has to be started: tts solve, tts bench, tts gateway. For a server leave "
            "out server.kind.",
        )
    require_gpu(spec)
    with lines:
        supervise(services, say=lines.say, on_loading=lines.loading)
