"""Parts of asyncio that Python 3.10 lacks, provided there by a small backport."""

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
    """Whether this task was asked to end; always False on Python 3.10, which does not know."""
    count = getattr(task, "cancelling", None)
    return bool(count and count())
