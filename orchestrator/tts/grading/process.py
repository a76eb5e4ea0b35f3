"""A worker process that grades: what is asked of it, and what its answers mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tts.build.worker_process import Loss, WorkerLost, WorkerProcess

from .sketch import Parsed, Sketch
from .verdict import Outcome, Reason, Verdict

_REASONS = {
    Loss.MEMORY: Reason.MEMORY,
    Loss.CPU: Reason.TIMEOUT,
    Loss.STALLED: Reason.TIMEOUT,
    Loss.CRASHED: Reason.CRASHED,
}


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker answered, and the CPU time it took.

    The content is a `Parsed` answer or a verdict: of a comparison, or why there is no other.
    """

    content: Parsed | Verdict
    cpu_s: float


class GradingWorker(WorkerProcess):
    """One worker process, started at the first question and replaced when it is lost."""

    def __init__(self, *, cpu_s: float, memory_mb: int) -> None:
        super().__init__("tts.grading.worker", "grades", cpu_s=cpu_s, memory_mb=memory_mb)

    def reply(self, task: str, *answers: str) -> Reply:
        """Have the worker `read` an answer or `compare` two (prediction, reference).

        Raises WorkerUnavailable if no worker starts, RuntimeError after `stop`.
        """
        try:
            answer = self.ask([task, *answers])
        except WorkerLost as error:
            return Reply(Verdict(Outcome.UNDECIDED, _REASONS[error.loss]), error.cpu_s)
        return Reply(_content(*answer.content), answer.cpu_s)


def _content(kind: str, content: Any) -> Parsed | Verdict:
    if kind == "verdict":
        outcome, reason = content
        return Verdict(Outcome(outcome), Reason(reason))
    texts, has_formula, sketch = content
    return Parsed(tuple(texts), has_formula, sketch and Sketch.from_json(sketch))
