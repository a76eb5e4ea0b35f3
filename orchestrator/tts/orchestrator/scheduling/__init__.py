"""Which work goes to which engine next. Pure: no IO, no clock."""

from .jobs import Job, Kind
from .scheduler import Policy, Scheduler
from .schedules import ScheduleName

__all__ = ["Job", "Kind", "Policy", "ScheduleName", "Scheduler"]
