"""What the engines did per step in a run's time, as one type.

    openvino   the engine host's iteration log      every step
    tensorrt   Triton's metrics nv_trt_llm_*        samples

The result is `EngineStep`, with None for values that a source
does not have. A run has a file for each engine beside its log: `engine-steps/ENGINE.jsonl` has a
line for each session of the run, an object that names the columns of what follows it: an array for
each step that the engine made, whoever asked for its work. Nothing else depends on these files: a
run without them is whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import msgspec

from tts.base.errors import RunError
from tts.build.spec import Role
from tts.engines import wire
from tts.engines.statistics import Statistics

from .events import SessionBegan
from .files import make_folder, open_file
from .folder import ENGINE_STEPS
from .log import cut_half_line, read_events
from .state import end_to_end

_MODELS: dict[str, Role] = {
    wire.GENERATOR: "generator",
    wire.PRM_ENGINE: "verifier",
    wire.PRM: "verifier",  # of target openvino; where it is an ensemble it has no such metrics
}
_METRIC = re.compile(r"^(nv_trt_llm_\w+)\{(.*)\} (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class EngineStep(msgspec.Struct, frozen=True, array_like=True):
    """One step (iteration) of an engine. None is what its source does not tell.

    On disk an array in the order of the fields, so a new one comes last, with a default.
    """

    t: float
    """When it ended, seconds since the session began; of a sample, when that was taken."""
    iteration: int | None = None
    """On the engine's own count, which starts anew with the engine."""
    seconds: float | None = None
    """How long the engine took for it."""
    active: int | None = None
    """Requests known to the engine: scheduled, admitted or queued."""
    queued: int | None = None
    """Active requests that wait to be admitted."""
    scheduled: int | None = None
    """Requests that took part in the step: the batch."""
    context_requests: int | None = None
    """Scheduled requests whose prompt was being computed."""
    generation_requests: int | None = None
    """Scheduled requests that generated a token each."""
    paused_requests: int | None = None
    """Requests whose KV blocks were taken away for others, to be computed again."""
    context_tokens: int | None = None
    """Prompt tokens of the step. The CPU engine host counts each prompt whole, in the step that
    completes it, whatever was reused of it."""
    generated_tokens: int | None = None
    blocks: int | None = None
    """KV blocks of the pool."""
    blocks_used: int | None = None
    """KV blocks that active requests hold."""
    blocks_reserved: int | None = None
    """KV blocks that active requests hold in the worst case."""
    blocks_reused: int | None = None
    """KV blocks of prompts that were found in the cache, since the engine started."""
    blocks_missed: int | None = None
    """KV blocks of prompts that were not, since the engine started."""
    prefixes_missed: int | None = None
    """Prompts of which the pool had kept a part and dropped it, since the engine was opened."""

    @property
    def tokens(self) -> int | None:
        """Prompt and generated tokens of the step; None if the source does not tell both."""
        if self.context_tokens is None or self.generated_tokens is None:
            return None
        return self.context_tokens + self.generated_tokens


class StepSession(msgspec.Struct, frozen=True, kw_only=True):
    """The next steps belong to the session that began at this wall-clock time."""

    session: str
    """`time` of the log's session event."""
    sampled: bool
    """Whether the steps are samples, taken about once a second; else all that there were."""
    columns: tuple[str, ...] = EngineStep.__struct_fields__


_encoder = msgspec.json.Encoder()
_decode_session = msgspec.json.Decoder(StepSession).decode
_decode_step = msgspec.json.Decoder(EngineStep).decode


class StepLog:
    """Appends one engine's steps to a run; a context manager. Raises OSError."""

    def __init__(self, folder: Path, engine: Role, session: StepSession) -> None:
        """Open the engine's file in a run folder, cutting off a half-written last line."""
        file = steps_file(folder, engine)
        make_folder(file.parent)
        cut_half_line(file)
        self._file = open_file(file, "ab")
        self._file.write(_encoder.encode(session) + b"\n")

    def write(self, steps: Iterable[EngineStep]) -> None:
        """Append steps, and hand them to the operating system."""
        self._file.writelines(_encoder.encode(step) + b"\n" for step in steps)
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


def steps_file(folder: Path, engine: Role) -> Path:
    """Where a run folder keeps the steps of an engine."""
    return folder / ENGINE_STEPS / f"{engine}.jsonl"


def read_step_log(folder: Path, engine: Role) -> Iterator[StepSession | EngineStep]:
    """The lines of an engine's steps, none if the run has no such file; raises RunError.

    A last line that was cut short by a kill is left out.
    """
    file = steps_file(folder, engine)
    try:
        with open_file(file) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield _decode_step(line) if line[:1] == b"[" else _decode_session(line)
                except ValueError as error:  # msgspec's are of this kind, too
                    raise RunError(
                        f"{file}, line {number} is not a step of an engine: {error}",
                        hint="Drop the line, or the file: nothing but figures of the engines' "
                        "steps needs it.",
                    ) from error
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error}") from error


def steps_of_run(folder: Path, engine: Role) -> Iterator[EngineStep]:
    """An engine's steps with times on the run's clock, sessions without gaps; raises RunError.

    Steps are read one by one and none is kept. There are none in a run without engine steps.
    """
    begins: dict[str, float] = {}
    began = 0.0
    for line in read_step_log(folder, engine):
        if isinstance(line, StepSession):
            if not begins:
                timed = end_to_end(read_events(folder))
                begins = {each.time: at for at, each in timed if isinstance(each, SessionBegan)}
            began = begins.get(line.session, 0.0)
        else:
            yield msgspec.structs.replace(line, t=began + line.t)


def prefixes_missed(folder: Path, engine: Role) -> int:
    """How many prompts of a run missed a prefix that had been dropped; raises RunError."""
    missed, before = 0, None
    for line in read_step_log(folder, engine):
        now = None if isinstance(line, StepSession) else line.prefixes_missed or 0
        if now is not None and before is not None:
            missed += max(0, now - before)  # below 0: the engine was opened anew
        before = now
    return missed


def of_iteration(statistics: Statistics, *, began: float, blocks: int) -> EngineStep:
    """A step from the CPU engine host's iteration log.

    `began` is when the session did, on the machine's monotonic clock; `blocks` is the pool's size.
    """
    shared = EngineStep.__struct_fields__
    values = {name: value for name, value in asdict(statistics).items() if name in shared}
    values |= {"t": round(statistics.monotonic - began, 6), "blocks": blocks}
    return EngineStep(**{**values, "seconds": round(statistics.seconds, 6)})


def of_metrics(text: str, *, t: float) -> dict[Role, EngineStep]:
    """The last step of each engine from Triton's metrics, in Prometheus' text format.

    They have TensorRT-LLM's names (`tts.engines.statistics`). One step of many: a gauge keeps
    its value until the next is published, and while the engine is idle.
    """
    values: dict[Role, dict[tuple[str, str], float]] = {}
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
        gauge = gauges.get((f"nv_trt_llm_{family}_metrics", kind))
        return None if gauge is None else round(gauge)

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
