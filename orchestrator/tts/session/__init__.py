"""The Python API: a session holds the engines, solves problems and keeps runs. See
docs/reference/python.md.

| module | job |
|---|---|
| session | `Session`: calls that block, for scripts and notebooks |
| async_session | `AsyncSession`: the same, awaited |
| event_loop | a command's loop, which Ctrl-C stops in order; a thread's for calls that block |
| result | what a program gets back: `Result`, `Step`, `Usage`; how far a run is |
| questions | texts and pairs as problems |
| arguments | the options of a call, checked, and the configuration that they ask for |
| strategy | the search for a strategy's name, config object or function |
| plan | a run's resolved configuration, with its functions and other objects |
| functions | the program's own `answer_of` and `equal`; functions in files |
| solver | solves the problems of a plan; results that the program has not taken yet |
| outcome | a finished search to its answers, votes, record and doubts |
| scoring | samples outside a search; scores of solutions that exist, candidates ranked |
| run | a run in a folder and its use of the machine; the results of one that is continued |

Importing this package is quick: each name's module is imported when the name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tts.runs.run import Run

    from .async_session import AsyncSession
    from .result import Result, RunProgress, Step, Usage
    from .session import Session

__all__ = ["AsyncSession", "Result", "Run", "RunProgress", "Session", "Step", "Usage"]

_HOMES = {
    "AsyncSession": "tts.session.async_session",
    "Result": "tts.session.result",
    "Run": "tts.runs.run",
    "RunProgress": "tts.session.result",
    "Session": "tts.session.session",
    "Step": "tts.session.result",
    "Usage": "tts.session.result",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
