"""Decides which work each engine gets next. Pure: no IO, no clock.

| module | job |
|---|---|
| queue | pieces of work, and the queue of one model with its budget |
| schedules | when each model may be sent work; `decoupled`, the default |
| scheduler | `Scheduler`: what to send now, whether to start a problem |

What makes it faster, or differs, stands beside these:

| module | job |
|---|---|
| phases | the schedules of one model at a time: lockstep, batched, alternating |
| gathering | work that waits for more of it, where both models share a device |
| guesses | speculative work in empty slots, as long as it pays |
| held_scores | scores that may turn out not to be needed, held back to a share and out of a crowd |
| load_curve | how long an engine takes over its load, and what one more request costs |
"""

from tts.base.choices import ScheduleName, SpeculationName

from .queue import Job, Prefetch, WorkKind
from .scheduler import Scheduler
from .schedules import Policy

__all__ = [
    "Job",
    "Policy",
    "Prefetch",
    "ScheduleName",
    "Scheduler",
    "SpeculationName",
    "WorkKind",
]
