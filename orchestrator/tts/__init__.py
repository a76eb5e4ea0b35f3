"""Verifier-guided test-time scaling: a generator and a process reward model, searched over.

    from tts import Session

    with Session.open("demo") as session:
        print(session.solve("Compute 12 + 30.").answer)

Importing it is quick: what a name needs is imported with the name. Everything else is imported
from its package, such as `tts.search` or `tts.strategies`.

The folders build/, engines/ and triton_repo/ of the repository hold further packages of `tts`,
without a file like this one: `extend_path` finds them, and where only they can be imported (in the
Python models of a server, for example), `tts` is a namespace and these names are absent.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

__path__ = extend_path(__path__, __name__)

if TYPE_CHECKING:
    from tts.base.errors import TtsError
    from tts.build.spec import load_deployment
    from tts.problem import Problem, Turn
    from tts.session import AsyncSession, Result, Run, RunProgress, Session, Step, Usage

    __version__: str

__all__ = [
    "AsyncSession",
    "Problem",
    "Result",
    "Run",
    "RunProgress",
    "Session",
    "Step",
    "TtsError",
    "Turn",
    "Usage",
    "__version__",
    "load_deployment",
]

_HOMES = {
    "AsyncSession": "tts.session",
    "Problem": "tts.problem",
    "Result": "tts.session",
    "Run": "tts.session",
    "RunProgress": "tts.session",
    "Session": "tts.session",
    "Step": "tts.session",
    "TtsError": "tts.base.errors",
    "Turn": "tts.problem",
    "Usage": "tts.session",
    "load_deployment": "tts.build.spec",
}


if not TYPE_CHECKING:  # else a checker takes every name for one of this module's

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        elif name == "__version__":
            value = _version()
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value  # asked for once
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    """The installed version; of source folders that are not installed, 0+unknown."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tts-toolkit")
    except PackageNotFoundError:
        return "0+unknown"
