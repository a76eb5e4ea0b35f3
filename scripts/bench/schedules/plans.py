"""What the two pairs solve: demo problems, and a recorded run of them for larger engines."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml
from msgspec.structs import replace

from tts.build import paths
from tts.build.builder import build_engines
from tts.build.random_checkpoint import make_random_checkpoint, size_of
from tts.build.server_kinds import ServerKind
from tts.build.spec import Deployment, load_deployment
from tts.datasets.load import load_problems
from tts.lab.campaign import Campaign
from tts.lab.observer import Observer
from tts.prompting import Models
from tts.runs.config import RunConfig
from tts.runs.replay import open_recording, read_recording
from tts.session.event_loop import run_loop
from tts.session.plan import Plan
from tts.session.run import OpenRun, open_run
from tts.session.strategy import choose

from .replaying import ReplayPlan
from .trials import Settings, say

HEAVY = "bench-heavy"
SIZES = {"generator": "25M", "verifier": "100M"}


def prepare(settings: Settings, recorded: Path) -> dict[str, Plan]:
    """The plans by pair, with engines built; the heavy one replays a run recorded in `recorded`."""
    demo = demo_plan(settings)
    plans = {"demo": demo}
    if "heavy" in settings.pairs:
        say(f"recording the demo pair's run of {settings.problems} problems")
        record(demo, recorded)
        plans["heavy"] = heavy_plan(recorded, demo, settings.server)
    return plans


def demo_plan(settings: Settings) -> Plan:
    """Beam search on the demo pair, its engines built."""
    deployment = load_deployment("demo").served_by(settings.server)
    build_engines(deployment, verify=False, say=say)
    problems, seed = settings.problems, settings.seed
    return Plan(
        RunConfig(deployment_source="demo", dataset="demo", limit=problems, seed=seed),
        deployment,
        tuple(load_problems("demo", limit=problems, seed=seed)),
        choose("beam-search", deployment, {"n": settings.n, "beam_width": settings.width}),
    )


def heavy_plan(recorded: Path, demo: Plan, server: ServerKind) -> Plan:
    """The recorded run of the demo pair replayed on a pair of 25M and 100M random weights."""
    file = _heavy_deployment(demo.deployment)
    deployment = load_deployment(file).served_by(server)
    build_engines(deployment, verify=False, say=say)
    folder, config = open_recording(recorded)
    return ReplayPlan(
        replace(demo.config, deployment_source=str(file)),
        deployment,
        demo.problems,
        demo.strategy,
        script=read_recording(folder, config, Models.load(deployment)),
    )


def record(plan: Plan, folder: Path) -> None:
    """An ordinary run, kept in `folder`, for the replay."""

    async def running(run: OpenRun) -> None:
        async with Campaign(Observer(), cold=False) as campaign:
            await campaign.run(run, "recording")

    with open_run(plan, folder) as run:
        run_loop(running(run))


def _heavy_deployment(demo: Deployment) -> Path:
    """The deployment file of the heavy pair: the demo pair's, but for name and checkpoints.

    Lengths, policies and pools are those of the demo pair, so that the same requests fit. Both
    engines are fp32: it runs on any CPU, and on the recorded work the two need about equal time.
    """
    folder = paths.built_dir(HEAVY)
    folder.mkdir(parents=True, exist_ok=True)
    fields = demo.model_dump(mode="json", exclude_none=True)
    fields["name"] = HEAVY
    for seed, (role, size) in enumerate(SIZES.items()):
        checkpoint = folder / "checkpoints" / f"{role}-{size}"
        if not checkpoint.is_dir():
            say(f"making {checkpoint}")
            checkpoint.parent.mkdir(exist_ok=True)
            # made under another name first: one that is cut short is not taken for a whole one
            part = checkpoint.with_name(f"{checkpoint.name}.part")
            tokenizer = fields[role]["checkpoint"]
            shutil.rmtree(part, ignore_errors=True)
            make_random_checkpoint(
                part, tokenizer=Path(tokenizer), parameters=size_of(SIZES[role]), seed=seed
            )
            part.rename(checkpoint)
        fields[role] |= {"checkpoint": str(checkpoint), "precision": "fp32"}
    file = folder / f"{HEAVY}.yaml"
    file.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
    return file
