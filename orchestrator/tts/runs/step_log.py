"""What the engines did per step in a run's time: a file per engine beside the log.

`engine-steps/ENGINE.jsonl` has a line for each session of the run, an object that names the columns
of what follows it: an array for each step that the engine made, whoever asked for its work. Nothing
else depends on these files: a run without them is whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tts.build.errors import RunError

from .durable import make_folder
from .events import EngineName
from .log import cut_half_line

FOLDER = "engine-steps"


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
    """Of the active requests, those that wait to be admitted."""
    scheduled: int | None = None
    """Requests that took part in the step: the batch."""
    context_requests: int | None = None
    """Of the scheduled requests, those whose prompt was being computed."""
    generation_requests: int | None = None
    """Of the scheduled requests, those that generated a token each."""
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

    @property
    def tokens(self) -> int | None:
        """Prompt and generated tokens of the step; None if the source does not tell both."""
        if self.context_tokens is None or self.generated_tokens is None:
            return None
        return self.context_tokens + self.generated_tokens


class StepSession(msgspec.Struct, frozen=True, kw_only=True):
    """What follows are steps of the session that began at this wall-clock time."""

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

    def __init__(self, folder: Path, engine: EngineName, session: StepSession) -> None:
        """Open the engine's file in a run folder, cutting off a half-written last line."""
        file = steps_file(folder, engine)
        make_folder(file.parent)
        cut_half_line(file)
        self._file = file.open("ab")
        self._file.write(_encoder.encode(session) + b"\n")

    def write(self, steps: Iterable[EngineStep]) -> None:
        """Append steps, and hand them to the operating system."""
        self._file.writelines(_encoder.encode(step) + b"\n" for step in steps)
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


def steps_file(folder: Path, engine: EngineName) -> Path:
    """Where a run folder keeps the steps of an engine."""
    return folder / FOLDER / f"{engine}.jsonl"


def read_step_log(folder: Path, engine: EngineName) -> Iterator[StepSession | EngineStep]:
    """The lines of an engine's steps, none if the run has no such file; raises RunError.

    A last line that was cut short by a kill is left out.
    """
    file = steps_file(folder, engine)
    try:
        with file.open("rb") as lines:
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
