"""Tuning a deployment: record a run if none is given, measure both engines, propose budgets.

The result is kept in tune.json, to which `tts simulate` fits step times. An engine with n requests
in flight that takes step_s + n * request_s for a step answers n / that requests a second, so
seconds per request are request_s + step_s / n: a straight line over 1/n.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tts.base.choices import ServerKind
from tts.base.errors import Interrupted, RunError
from tts.base.user_paths import is_folder, is_there
from tts.build.deployment_edit import Field
from tts.build.openvino.threads import threads_in_words
from tts.build.spec import Deployment, Role
from tts.build.started.memory import planned
from tts.datasets.load import load_problems
from tts.engines.simulated import Affine
from tts.fleet.connecting import require_engines
from tts.prompting import Models
from tts.runs.config import RunConfig, read_run_config
from tts.runs.folder import locked, read_json, refuse_begun, write_json, writing
from tts.runs.log import read_events
from tts.session import AsyncSession
from tts.session.event_loop import interruptible
from tts.session.plan import Plan, check_lengths, findable, load_checked
from tts.session.run import OpenRun, open_run, unused_folder
from tts.session.strategy import choose

from ..campaign import Campaign
from ..observer import Observer
from .measure import ROUNDS, SHARE, EngineResult, Measured, Proposal, analyse, measure
from .recorded_requests import (
    RecordedRequests,
    load_unit,
    loadable_generator,
    loadable_verifier,
    recorded_requests,
)

PROBLEMS = 8
"""Problems of the run that is recorded where none is given."""
LEAST_REQUESTS = 16
"""Requests to each engine that a run must hold."""


@dataclass(frozen=True)
class Tuned:
    """What `tune` found, and the file that keeps it."""

    engines: tuple[EngineResult, ...]
    file: Path
    interrupted: Interrupted | None
    """Whether the user stopped it before everything was measured."""
    threads: str | None = None
    """The engines' CPU threads in words; None where they are not this machine's."""

    @property
    def proposals(self) -> list[Proposal]:
        """The budgets that follow, for the engines with enough measurements.

        None if stopped: a budget from part of the rounds would look like one from all of them.
        """
        if self.interrupted:
            return []
        return [engine.proposal for engine in self.engines if engine.proposal]

    @property
    def changes(self) -> Mapping[Field, int]:
        """The proposed budgets that differ from those in the deployment file, by their fields."""
        return {p.field: p.value for p in self.proposals if p.value != p.present}


def tune(
    deployment: str,
    *,
    run: Path | None = None,
    dataset: str = "demo",
    seconds: float = 60.0,
    server: ServerKind | None = None,
    out: Path | None = None,
    observer: Observer,
) -> Tuned:
    """Measure both engines of a deployment, keep the result, and say what follows.

    `run` is the run whose requests are sent; without one, a short run on `dataset` is recorded
    first. `seconds` is the time to measure, both engines together. `server` is what runs the
    engines; None: what the deployment says. `out` is the result's folder; a new one under runs/ if
    None. Ctrl-C ends the measurements early: those made so far are kept and returned, and nothing
    is proposed. Raises a TtsError.
    """
    spec = load_checked(deployment).served_by(server)
    facts = planned(spec)
    facts.compiled_pair()
    if spec.engines():
        require_engines(spec, (), observer.say)
    models = Models.load(spec)
    on_this_cpu = spec.target == "openvino" and not spec.endpoints
    threads = threads_in_words(spec) if on_this_cpu else None
    folder = (out or unused_folder(f"{spec.name}-tune")).resolve()
    if is_there(folder / RESULT):
        raise RunError(f"{folder} already holds a tune result.", hint="Name another with --out.")
    refuse_begun(folder)
    recorded = read_requests(run, models) if run else None
    plan = _recording(deployment, models, dataset) if recorded is None else None
    source = run or folder / "run"
    measured: list[Measured] = []
    interrupted: Interrupted | None = None

    campaign = Campaign(observer, cold=False)

    async def record_and_measure(run: OpenRun | None) -> AsyncGenerator[tuple[str, OpenRun], None]:
        nonlocal recorded
        if run:
            observer.say(f"Recording a run of {len(run.plan.problems)} problems")
            yield "recording", run
            recorded = read_requests(source, models)
        assert recorded is not None
        observer.say(
            f"Replaying {len(recorded.generations):,} generator and "
            f"{len(recorded.scorings):,} verifier requests of {source}"
        )
        session = await campaign.session(spec)
        async with session.work():
            await measure_engines(session, recorded, seconds, measured, observer)

    with locked(folder), open_run(plan, source) if plan else nullcontext() as recording:
        try:
            interruptible(campaign.run(record_and_measure(recording)), observer.say)
        except Interrupted as stopped:
            if recorded is None or not any(engine.samples for engine in measured):
                raise
            interrupted = stopped
        assert recorded is not None  # it is there once something was measured
        engines = tuple(analyse(engine, facts) for engine in measured)
        result = to_json(facts, str(source), recorded, engines, stopped=bool(interrupted))
        if threads:
            result["threads"] = threads
        with writing(folder):
            write_json(folder / RESULT, result)
    return Tuned(engines, folder / RESULT, interrupted, threads)


def read_requests(run: Path, models: Models) -> RecordedRequests:
    """The requests of a run of this deployment; raises RunError."""
    config = read_run_config(run)
    spec = models.deployment
    if config.deployment != spec.name:
        raise RunError(
            f"The run in {run} is one of {config.deployment!r}, not of {spec.name!r}.",
            hint="Its token ids and lengths are those of other models: name a run of this "
            "deployment, or leave --run out to record one.",
        )
    recorded = recorded_requests(models, config, read_events(run))
    for role, requests in (("generator", recorded.generations), ("verifier", recorded.scorings)):
        if len(requests) < LEAST_REQUESTS:
            raise RunError(
                f"The run in {run} holds {len(requests)} requests to the {role}; "
                f"at least {LEAST_REQUESTS} are needed.",
                hint="Record one with: tts bench DEPLOYMENT --strategy beam-search",
            )
    return recorded


def _recording(deployment: str, models: Models, dataset: str) -> Plan:
    """The recording made if no run is given: a short run of beam search."""
    source, spec = findable(deployment), models.deployment
    config = RunConfig(deployment_source=source, dataset=findable(dataset), limit=PROBLEMS)
    problems = tuple(load_problems(dataset, limit=PROBLEMS))
    plan = Plan(config, spec, problems, choose(config.strategy, spec, {}))
    check_lengths(models, plan.problems)
    return plan


async def measure_engines(
    session: AsyncSession,
    recorded: RecordedRequests,
    seconds: float,
    into: list[Measured],
    observer: Observer,
) -> None:
    """Measure one engine after the other with a run's requests, adding to `into`.

    `seconds` are for both together. Raises EndpointError.
    """
    generator, verifier = session.replicas.pairs[0].endpoints  # the policies are a server's
    spec = planned(session.deployment)
    # salts must differ from those of earlier measurements on the same server
    first = random.randrange(1 << 20)
    for engine in (
        loadable_generator(generator, recorded, spec),
        loadable_verifier(verifier, recorded, spec),
    ):
        into.append(Measured(engine.role, engine.full_batch))
        observer.say(f"Measuring the {engine.role}'s throughput over load")
        observer.measuring(
            engine.role, load_unit(engine.role, spec), len(engine.loads) * (ROUNDS + 1)
        )
        await measure(engine, seconds / 2, into[-1], first=first, on_load=observer.at)


RESULT = "tune.json"


def to_json(
    spec: Deployment,
    source: str,
    recorded: RecordedRequests,
    results: Sequence[EngineResult],
    *,
    stopped: bool = False,
) -> dict[str, Any]:
    """The measurements, their requests, and what follows from them.

    Nothing follows from measurements that were stopped; then the result says so.
    """
    return {
        **({"stopped": True} if stopped else {}),
        "deployment": spec.name,
        "requests_from": source,
        "share": SHARE,
        "engines": {
            result.role: {
                "unit": result.unit,
                **_requests(result.role, recorded, spec),
                "max_batch_size": spec.engines()[result.role].max_batch_size,
                "max_num_tokens": spec.engines()[result.role].max_num_tokens,
                "levels": [asdict(level) for level in result.levels],
                "samples": [asdict(sample) for sample in result.samples],
                "saturation_point": asdict(result.saturation),
            }
            for result in results
            if result.levels
        },
        "policy": {
            proposal.role: {
                "present": proposal.present,
                "proposed": proposal.value,
                "why": proposal.why,
            }
            for result in results
            if not stopped and (proposal := result.proposal)
        },
    }


def _requests(role: Role, recorded: RecordedRequests, spec: Deployment) -> dict[str, Any]:
    """How many there are and how long they are on average, in tokens."""
    prompts: list[int]
    computed, generated = 1.0, 1.0
    scorings = recorded.scorings
    if role == "generator":  # each prompt is in the cache, but for its last token
        prompts = [len(call.input_ids) for call in recorded.generations]
        generated = fmean(call.max_new_tokens for call in recorded.generations)
    else:
        prompts = [len(scoring.ids) for scoring in scorings]
        if spec.critiques:
            generated = fmean(scoring.critique_tokens for scoring in scorings)
        else:
            cache = spec.compiled_pair()[1].kv_cache
            block = cache.block_size if cache.reuse else cache.tokens  # whole blocks are reused
            computed = fmean(len(s.ids) - s.cached // block * block for s in scorings)
    return {
        "requests": len(prompts),
        "prompt_tokens": fmean(prompts),
        "computed_tokens": computed,
        "generated_tokens": generated,
    }


def read_fits(file: Path) -> dict[Role, Affine]:
    """Both engines' step times from a tune result or its folder; raises RunError."""
    if is_folder(file):
        file = file / RESULT
    result = read_json(file, f"There is no tune result {file}")
    try:
        engines = result["engines"]
        fit = fit_decode if engines["verifier"].get("unit") == "critiques" else fit_prefill
        return {
            "generator": fit_decode(engines["generator"]),
            "verifier": fit(engines["verifier"]),
        }
    except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise RunError(
            f"{file} holds no tune result that a step time can be fitted to: {error!r}",
            hint="Make one with: tts tune DEPLOYMENT",
        ) from error


def fit_decode(engine: Mapping[str, Any]) -> Affine:
    """The decoding time of an engine that writes: a step gives each request one token.

    Raises ValueError.
    """
    points = [
        (level["load"], 1 / level["tokens_per_s"])
        for level in engine["levels"]
        if level["load"] <= engine["max_batch_size"]
    ]
    step_s, decode_s = fit_line(points)
    return Affine(step_s, decode_s=decode_s)


def fit_prefill(engine: Mapping[str, Any]) -> Affine:
    """A verifier's step time: a step computes what is new in each request. Raises ValueError."""
    computed = engine["computed_tokens"]
    points = [
        (parallel, 1 / level["requests_per_s"])
        for level in engine["levels"]
        if (parallel := level["requests_per_s"] * level["latency_s"]) <= engine["max_batch_size"]
        and parallel * computed <= engine["max_num_tokens"]
    ]
    step_s, request_s = fit_line(points)
    return Affine(step_s, prefill_token_s=request_s / computed)


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(step_s, each_s) of (n, seconds per piece of work), none negative; raises ValueError.

    Least squares of the relative error, so that the fast loads count as much as the slow ones.
    """
    if len({n for n, _ in points}) < 2:
        raise ValueError("fewer than two loads within the engine's batch were measured")
    # y ~ each + step * x, weighted by 1/y: rows (1/y, x/y) against 1
    rows = [(1 / y, 1 / (n * y)) for n, y in points]
    aa, bb = sum(a * a for a, _ in rows), sum(b * b for _, b in rows)
    ab, a1, b1 = sum(a * b for a, b in rows), sum(a for a, _ in rows), sum(b for _, b in rows)
    determinant = aa * bb - ab * ab
    each, step = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
    if each < 0:
        return b1 / bb, 0.0
    if step < 0:
        return 0.0, a1 / aa
    return step, each
