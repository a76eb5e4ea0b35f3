"""A run that is looked at while it goes on: its log read bit by bit, and in what state it is."""

from __future__ import annotations

from enum import Enum
from itertools import islice
from pathlib import Path

from tts.build.errors import RunError
from tts.runs.config import RunConfig, read_run_config
from tts.runs.folder import has_begun
from tts.runs.follow import Follower, Restarted
from tts.runs.going_on import current_run, is_complete, is_worked_on
from tts.runs.groups import is_group
from tts.runs.log import Damage

from .live_numbers import LiveNumbers

AT_ONCE = 5000
"""Events that are read before whoever looks is shown something: well below a tenth of a second."""


class State(Enum):
    """What is known of a run; the value is what a person reads."""

    STARTING = "starting"
    READING = "reading its log"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"


class LiveRun:
    """What a folder's run, or a group's run of the moment, has done so far.

    Nothing in the folder is locked or changed. The run may be begun, interrupted, resumed, repaired
    or begun anew meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        """Raises RunError if the folder holds no run, and nobody is about to begin one there."""
        self.named = folder
        if not (has_begun(folder) or is_group(folder) or is_worked_on(folder)):
            raise RunError(
                f"{folder} holds no run.", hint="Name the folder that tts bench wrote to (--out)."
            )
        self.state = State.STARTING
        self.config: RunConfig | None = None
        """None until the run has begun."""
        self.damaged = 0
        """Lines of the log that are no events; they are left out."""
        self.problem: str | None = None
        """Why the run cannot be read now, if it cannot."""
        self._look_at(folder)

    @property
    def numbers(self) -> LiveNumbers | None:
        """Those of the run so far; None until it has begun."""
        return self._numbers

    def read(self, most: int = AT_ONCE) -> bool:
        """Read on; whether anything was new. Damage is counted, what cannot be read is noted."""
        now = self._now()  # before the log is: of a run that has ended all is read then
        try:
            run = current_run(self.named)
            if run != self.run and self.state is not State.READING:
                self._look_at(run)
            new = self._read(most)
            self.problem = None
        except RunError as error:  # such as a file that is being brought back
            self.problem = error.message
            new = 0
        if new >= most:
            now = State.READING
        elif now is State.RUNNING and self._numbers is None:
            now = State.STARTING
        self.state = now
        return bool(new)

    def _look_at(self, run: Path) -> None:
        self.run = run
        self.damaged = 0
        self._follower = Follower(run)
        self._numbers: LiveNumbers | None = None

    def _read(self, most: int) -> int:
        """How many events were read."""
        if self._numbers is None:
            if not has_begun(self.run):
                return 0
            self._begin()
        new = 0
        for event in islice(self._follower.read(), most):
            new += 1
            if isinstance(event, Restarted):
                self._numbers = None  # also where its run.json cannot be read yet
                self._begin()
            elif isinstance(event, Damage):
                self.damaged += 1
            elif self._numbers:
                self._numbers.add(event)
        return new

    def _begin(self) -> None:
        self.config = read_run_config(self.run, going_on=True)
        self._numbers = LiveNumbers(self.config)
        self.damaged = 0

    def _now(self) -> State:
        if is_complete(self.named):
            return State.FINISHED
        return State.RUNNING if is_worked_on(self.named) else State.INTERRUPTED
