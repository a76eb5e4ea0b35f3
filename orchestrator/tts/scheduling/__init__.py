"""Which work goes to which engine next. Pure: no IO, no clock."""

from .queue import Job, Kind, Prefetch
from .scheduler import Policy, Scheduler, SpeculationName
from .schedules import ScheduleName

__all__ = ["Job", "Kind", "Policy", "Prefetch", "ScheduleName", "Scheduler", "SpeculationName"]
