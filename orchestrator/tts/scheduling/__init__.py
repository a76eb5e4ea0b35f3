"""Decides which work each engine gets next. Pure: no IO, no clock.

| module | job |
|---|---|
| scheduler | `Scheduler`: what to send, what to cancel, whether to start a problem |
| schedules | lockstep, batched, alternating, decoupled: when each model may be sent work |
| queue | pieces of work, and the queue of one model with its budget |
| held_scores | scores that may turn out not to be needed, held back to a share and out of a crowd |
| load_curve | how long an engine takes over its load, and what one more request costs |
"""

from .queue import Job, Prefetch, WorkKind
from .scheduler import Policy, Scheduler, SpeculationName
from .schedules import ScheduleName

__all__ = [
    "Job",
    "Policy",
    "Prefetch",
    "ScheduleName",
    "Scheduler",
    "SpeculationName",
    "WorkKind",
]
