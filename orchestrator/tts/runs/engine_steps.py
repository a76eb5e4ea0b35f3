"""Engine steps of every target as one type, and those of a run on the run's own clock.

    openvino   the engine host's iteration log      every step
    tensorrt   Triton's metrics nv_trt_llm_*        samples
    llmapi     LLM.get_stats                        every step

What comes out is `EngineStep`, with None for what a source does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tts.build.errors import RunError
from tts.engines import wire
from tts.engines.statistics import Statistics

from .events import EngineName
from .folder import EVENTS
from .step_log import EngineStep, StepSession, read_step_log

_MODELS: dict[str, EngineName] = {wire.GENERATOR: "generator", wire.PRM_ENGINE: "verifier"}
_METRIC = re.compile(r"^(nv_trt_llm_\w+)\{(.*)\} (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class SessionSteps:
    """The steps of one engine in one session of a run."""

    began: float
    """When the session began, seconds since the run's first one did."""
    sampled: bool
    """Whether these are samples, taken about once a second; else all steps that there were."""
    steps: tuple[EngineStep, ...]
    """Their times count from `began`."""


def read_engine_steps(folder: Path, engine: EngineName) -> tuple[SessionSteps, ...]:
    """What a run's folder has of an engine's steps, a part for each session; raises RunError.

    Sessions have no gaps between them, as in `end_to_end`. Empty for a run without engine steps.
    """
    begins: dict[str, float] = {}
    sessions: list[SessionSteps] = []
    steps: list[EngineStep] = []
    session: StepSession | None = None
    for line in read_step_log(folder, engine):
        if isinstance(line, EngineStep):
            steps.append(line)
            continue
        begins = begins or _session_begins(folder)
        if session:
            sessions.append(_of_session(session, begins, steps))
        session, steps = line, []
    if session:
        sessions.append(_of_session(session, begins, steps))
    return tuple(sessions)


def steps_of_run(folder: Path, engine: EngineName) -> Iterator[EngineStep]:
    """The same one by one, none kept, with times since the run's first session began."""
    begins: dict[str, float] = {}
    began = 0.0
    for line in read_step_log(folder, engine):
        if isinstance(line, StepSession):
            begins = begins or _session_begins(folder)
            began = begins.get(line.session, 0.0)
        else:
            yield msgspec.structs.replace(line, t=began + line.t)


def of_iteration(statistics: Statistics, *, began: float, blocks: int) -> EngineStep:
    """A step from the CPU engine host's iteration log.

    `began` is when the session did, on the machine's monotonic clock; `blocks` is the pool's size.
    """
    return EngineStep(
        t=round(statistics.monotonic - began, 6),
        iteration=statistics.iteration,
        seconds=round(statistics.seconds, 6),
        active=statistics.active,
        queued=statistics.queued,
        scheduled=statistics.scheduled,
        context_requests=statistics.context_requests,
        generation_requests=statistics.generation_requests,
        context_tokens=statistics.context_tokens,
        generated_tokens=statistics.generated_tokens,
        blocks=blocks,
        blocks_used=statistics.blocks_used,
        blocks_reserved=statistics.blocks_reserved,
    )


def of_metrics(text: str, *, t: float) -> dict[EngineName, EngineStep]:
    """The last step of each engine from Triton's metrics, in Prometheus' text format.

    They have TensorRT-LLM's names (`tts.engines.statistics`). One step of many: a gauge keeps
    its value until the next is published, and while the engine is idle.
    """
    values: dict[EngineName, dict[tuple[str, str], float]] = {}
    for family, labels, value in _METRIC.findall(text):
        label = dict(_LABEL.findall(labels))
        engine = _MODELS.get(label.pop("model", ""))
        label.pop("version", None)
        if engine and label:
            kind = next(iter(label.values()))
            values.setdefault(engine, {})[family, kind] = float(value)
    return {engine: _of_gauges(gauges, t) for engine, gauges in values.items()}


def _of_gauges(gauges: Mapping[tuple[str, str], float], t: float) -> EngineStep:
    def value(family: str, kind: str) -> int | None:
        found = gauges.get((f"nv_trt_llm_{family}_metrics", kind))
        return None if found is None else round(found)

    generating = value("inflight_batcher", "generation_requests")
    return EngineStep(
        t=t,
        iteration=value("general", "iteration_counter"),
        active=value("request", "active"),
        queued=value("request", "waiting"),
        scheduled=value("request", "scheduled"),
        context_requests=value("request", "context"),
        generation_requests=generating,
        paused_requests=value("inflight_batcher", "paused_requests"),
        context_tokens=value("inflight_batcher", "total_context_tokens"),
        generated_tokens=generating,
        blocks=value("kv_cache_block", "max"),
        blocks_used=value("kv_cache_block", "used"),
        blocks_reused=value("kv_cache_block", "reused"),
    )


class _Line(msgspec.Struct):
    """As much of an event as tells when each session began."""

    event: str
    t: float
    time: str = ""


def _session_begins(folder: Path) -> dict[str, float]:
    """When each session of a run began, by its wall-clock time: seconds since the first did."""
    decode = msgspec.json.Decoder(_Line).decode
    begins: dict[str, float] = {}
    began = wall_s = 0.0
    try:
        with (folder / EVENTS).open("rb") as lines:
            for line in lines:
                try:
                    event = decode(line)
                except ValueError:  # damaged, or cut short
                    continue
                if event.event == "session":
                    began = begins[event.time] = wall_s
                else:
                    wall_s = max(wall_s, began + event.t)
    except OSError as error:
        raise RunError(f"{folder / EVENTS} cannot be read: {error.strerror or error}") from error
    return begins


def _of_session(
    session: StepSession, begins: Mapping[str, float], steps: list[EngineStep]
) -> SessionSteps:
    return SessionSteps(begins.get(session.session, 0.0), session.sampled, tuple(steps))
