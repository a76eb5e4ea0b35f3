"""Which work goes to which engine next. Pure: no IO, no clock."""

from .scheduler import Job, Kind, Policy, Schedule, Scheduler

__all__ = ["Job", "Kind", "Policy", "Schedule", "Scheduler"]
