"""What the asyncio of Python 3.10 lacks; there a small backport carries it."""

import asyncio
import sys
from typing import Any

if sys.version_info >= (3, 11):
    from asyncio import Runner as Runner
    from asyncio import TaskGroup as TaskGroup
    from asyncio import timeout as timeout
    from builtins import BaseExceptionGroup as BaseExceptionGroup
else:
    from exceptiongroup import BaseExceptionGroup as BaseExceptionGroup
    from taskgroup import Runner as Runner
    from taskgroup import TaskGroup as TaskGroup
    from taskgroup import timeout as timeout


def cancelling(task: asyncio.Task[Any] | None) -> bool:
    """Whether somebody has asked this task to end; Python 3.10 does not know and says no."""
    count = getattr(task, "cancelling", None)
    return bool(count and count())
