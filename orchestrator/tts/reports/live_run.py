"""A run that is looked at while it goes on: its log, read bit by bit, its state and its numbers.

Memory: an id for each solved problem, a few numbers for each running one, and a window of seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Final

from tts.build.errors import RunError
from tts.runs.config import RunConfig, read_run_config
from tts.runs.events import AnyEvent, Idle, Session, Used
from tts.runs.folder import has_begun
from tts.runs.going_on import current_run, is_complete, is_worked_on
from tts.runs.groups import is_group
from tts.runs.log import Damage, Follower, Restarted
from tts.runs.records import ENGINES, Engine, EngineRequest
from tts.runs.requests import request_of
from tts.runs.state import ProblemState, RunState
from tts.runs.statistics import wilson
from tts.runs.utilization import Speculation

WINDOW_S: Final = 30
"""Over which rates and loads are taken: long enough for several steps of every beam."""
RECENT: Final = 50
"""Solved problems that are kept to be shown."""
_PACE: Final = 100
"""Solved problems from which the time left is estimated."""


@dataclass(frozen=True)
class SolvedProblem:
    """A line of the list of recent problems."""

    id: str
    level: int | str | None
    answer: str | None
    correct: bool | None
    tokens: int
    seconds: float | None
    """None where the log does not say when it was started."""


@dataclass
class _Second:
    """What one second of the session adds to the window, by engine."""

    tokens: dict[Engine, int] = field(default_factory=lambda: dict.fromkeys(ENGINES, 0))
    idle_s: dict[Engine, float] = field(default_factory=lambda: dict.fromkeys(ENGINES, 0.0))
    in_flight: dict[Engine, int] = field(default_factory=lambda: dict.fromkeys(ENGINES, 0))
    """Summed over the requests that were sent in it."""
    sent: int = 0


class LiveNumbers:
    """A run so far. Times are those of the log: nothing here reads a clock."""

    def __init__(self, config: RunConfig) -> None:
        """Start with nothing read; `config` says how many problems there are, and the vote."""
        self.total = len(config.problem_ids)
        self.vote = config.vote
        self.run = RunState(keeps_events=False)
        self.judged = self.right = 0
        self.speculation = Speculation()
        self.recent: deque[SolvedProblem] = deque(maxlen=RECENT)
        """The newest last."""
        self._servers: set[str] = set()
        self._seconds: dict[int, _Second] = {}
        self._pace: deque[float] = deque([0.0], maxlen=_PACE + 1)

    @property
    def done(self) -> int:
        """Problems solved, in all sessions."""
        return len(self.run.solved)

    @property
    def running(self) -> int:
        """Problems that were started in the session that goes on, and are not solved."""
        return sum(problem.session == self.run.sessions for problem in self.run.open.values())

    @property
    def wall_s(self) -> float:
        """Seconds of all sessions, without what was between them."""
        return self.run.wall_s

    @property
    def session_s(self) -> float:
        """What the log covers of the session that goes on."""
        return self.run.wall_s - self.run.began

    @property
    def generated_tokens(self) -> int:
        """Tokens of all answers of the generator, in all sessions."""
        return self.run.work.generated_tokens

    @property
    def accuracy(self) -> tuple[float, float, float] | None:
        """The share of right answers with its 95% interval; None without a judged problem."""
        if not self.judged:
            return None
        share = self.right / self.judged
        return (share, *wilson(share, self.judged))

    @property
    def left_s(self) -> float | None:
        """Seconds to the end at the pace of the problems solved last; None before the first.

        Only the session that goes on counts: an earlier one may have been on another machine.
        """
        solved = len(self._pace) - 1
        if not solved or self.run.finished:
            return None
        return (self.total - self.done) * (self.session_s - self._pace[0]) / solved

    def tokens_per_s(self, engine: Engine) -> float:
        """Tokens generated, or read by the verifier, over the window."""
        tokens = sum(second.tokens[engine] for second in self._seconds.values())
        return tokens / self._window_s if self._window_s else 0.0

    def in_flight(self, engine: Engine) -> float | None:
        """Requests in flight when one was sent, on average over the window; None: none was sent."""
        seconds = [second for second in self._seconds.values() if second.sent]
        sent = sum(second.sent for second in seconds)
        return sum(second.in_flight[engine] for second in seconds) / sent if sent else None

    def in_flight_by_second(self, engine: Engine, seconds: int) -> list[float]:
        """The same for each of the last seconds, oldest first; 0 where nothing was sent."""
        now = int(self.session_s)
        found = (self._seconds.get(place) for place in range(now - seconds + 1, now + 1))
        return [each.in_flight[engine] / each.sent if each and each.sent else 0 for each in found]

    def busy(self, engine: Engine) -> float | None:
        """The share of the window in which an engine had something in flight; None at first.

        With several servers it is the mean.
        """
        if not self._window_s:
            return None
        idle = sum(second.idle_s[engine] for second in self._seconds.values())
        return max(0.0, 1 - idle / (self._window_s * max(1, len(self._servers))))

    def add(self, event: AnyEvent) -> None:
        """Take in the next event."""
        before = int(self.session_s)
        solved = self.run.apply(event)
        if isinstance(event, Session):
            self._seconds.clear()
            self._pace = deque([0.0], maxlen=_PACE + 1)
            return
        self._drop_old(before)
        if server := getattr(event, "server", ""):
            self._servers.add(server)
        if request := request_of(event, 0.0):
            self._count(request)
        elif solved:
            self._solve(solved, event.t)
        elif isinstance(event, Used):
            self.speculation.use(event.problem, event.node)
        elif isinstance(event, Idle):
            self._idle(event)

    def _count(self, request: EngineRequest) -> None:
        """Add a request to the seconds in which it was sent and answered, on the session's clock.

        Tokens are those that the generator wrote, and those that the verifier read.
        """
        if request.engine == "generator" and request.kind == "speculative":
            self.speculation.add(request)
        sent = self._second(request.sent)
        sent.sent += 1
        for engine, load in zip(ENGINES, request.in_flight, strict=True):
            sent.in_flight[engine] += load
        if request.cancelled is None and request.kind != "prefetch":
            tokens = request.tokens if request.engine == "generator" else request.prompt_tokens
            self._second(request.done).tokens[request.engine] += tokens or 0

    def _solve(self, problem: ProblemState, now: float) -> None:
        self.speculation.solved(problem.id)
        if problem.repeated:  # by two processes at once: only its first solution counts
            return
        self._pace.append(now)
        correct = problem.correct(self.vote)
        if correct is not None:
            self.judged += 1
            self.right += correct
        self.recent.append(
            SolvedProblem(
                problem.id,
                problem.solution.level if problem.solution else None,
                problem.answer(self.vote),
                correct,
                problem.work.generated_tokens,
                problem.seconds,
            )
        )

    def _idle(self, event: Idle) -> None:
        first = max(event.since, self.session_s - WINDOW_S)
        last = min(event.until, self.session_s)
        for place in range(int(first), int(last) + 1):
            inside = min(last, place + 1) - max(first, place)
            self._second(place).idle_s[event.engine] += max(0.0, inside)

    @property
    def _window_s(self) -> float:
        return min(self.session_s, WINDOW_S)

    def _second(self, at: float) -> _Second:
        """The second of this time; an unused one if it is not in the window."""
        place = int(at)
        if not self.session_s - WINDOW_S <= place <= self.session_s:
            return _Second()
        return self._seconds.setdefault(place, _Second())

    def _drop_old(self, before: int) -> None:
        """Drop seconds older than the window, when the log reaches another second."""
        if int(self.session_s) > before:
            oldest = self.session_s - WINDOW_S
            self._seconds = {at: each for at, each in self._seconds.items() if at >= oldest}


AT_ONCE = 5000
"""Events that are read before the display is updated: well below a tenth of a second."""


class State(Enum):
    """The state of a run; the value is the text that is shown."""

    STARTING = "starting"
    READING = "reading its log"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"


class LiveRun:
    """The progress of a folder's run, or of a group's present run.

    Nothing in the folder is locked or changed. The run may be begun, interrupted, resumed, repaired
    or begun anew meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        """Raises RunError if the folder holds no run, and none is about to begin there."""
        self.named = folder
        if not (has_begun(folder) or is_group(folder) or is_worked_on(folder)):
            raise RunError(
                f"{folder} holds no run.", hint="Name the folder that tts bench wrote to (--out)."
            )
        self.state = State.STARTING
        self.config: RunConfig | None = None
        """None until the run has begun."""
        self.damaged = 0
        """Lines of the log without an event; they are left out."""
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
