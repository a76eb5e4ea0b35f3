"""The two pairs of engines that are measured."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import yaml

from tts.bench.run import Plan, execute
from tts.build import paths
from tts.build.builder import build_engines
from tts.build.spec import Deployment, load_deployment
from tts.datasets.load import load_problems
from tts.prompting.context import Context, Models
from tts.replay import Replay, open_source
from tts.serving.repository.digest import deployment_digest
from tts.serving.server.start import start_server
from tts.strategies.catalog import find_strategy

Say = Callable[[str], None]

HEAVY = "bench-heavy"
SIZES = {"generator": "25M", "verifier": "100M"}
SCRIPTS = Path(__file__).resolve().parents[1]


def demo_plan(problems: int, n: int, width: int, seed: int, say: Say) -> Plan:
    """Beam search on the demo pair, its engines built."""
    deployment = load_deployment("demo")
    build_engines(deployment, verify=False, say=say)
    return _plan("demo", deployment, problems, n, width, seed)


def heavy_plan(recorded: Path, demo: Plan, say: Say) -> Plan:
    """The recorded run of the demo pair replayed on a pair of 25M and 100M random weights."""
    file = _heavy_deployment(demo.deployment, say)
    deployment = load_deployment(file)
    build_engines(deployment, verify=False, say=say)
    source = open_source(recorded)
    models = source.limited(Models.load(deployment))
    problems = [context.problem for context in demo.problems]
    return replace(
        demo,
        source=str(file),
        deployment=deployment,
        deployment_digest=deployment_digest(deployment),
        models=models,
        problems=tuple(Context.of(models, problem) for problem in problems),
        replay=Replay(source.script(models, problems), source.description),
    )


async def record(plan: Plan, folder: Path) -> None:
    """An ordinary run, kept in `folder`, for the replay."""
    with start_server(plan.deployment) as server:
        await execute(plan, folder, server.addresses.grpc)


def _plan(
    source: str, deployment: Deployment, problems: int, n: int, width: int, seed: int
) -> Plan:
    strategy = find_strategy("beam-search")
    models = Models.load(deployment)
    loaded = load_problems("demo", limit=problems, seed=seed)
    return Plan(
        source=source,
        deployment=deployment,
        deployment_digest=deployment_digest(deployment),
        dataset="demo",
        models=models,
        problems=tuple(Context.of(models, problem) for problem in loaded),
        limit=problems,
        seed=seed,
        strategy=strategy,
        parameters=strategy.configure(
            {"n": n, "beam_width": width}, context=deployment.generator.max_seq_len
        ),
        schedule="decoupled",
    )


def _heavy_deployment(demo: Deployment, say: Say) -> Path:
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
            command = [sys.executable, SCRIPTS / "make_random_checkpoint", "--params", size]
            command += ["--tokenizer", tokenizer, "--seed", str(seed), part]
            shutil.rmtree(part, ignore_errors=True)
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            part.rename(checkpoint)
        fields[role] |= {"checkpoint": str(checkpoint), "precision": "fp32", "threads": 1}
    file = folder / f"{HEAVY}.yaml"
    file.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
    return file
