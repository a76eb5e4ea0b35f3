"""Every error that a user may see, in one tree.

    TtsError
    ├── ConfigError          a deployment file, flag or parameter is wrong (exit 2)
    ├── DatasetError         a dataset file or line is wrong (exit 2)
    ├── CheckpointError      a checkpoint is missing, corrupt or unsupported (exit 2)
    ├── BuildError           compiling or verifying an engine failed
    ├── EngineError          an engine refused a request or broke
    │   └── RequestError     one request was refused; the engine is unaffected
    ├── ServerError          a server could not start, has died, or cannot be used
    ├── EndpointError        a request to an engine failed, by gRPC, by HTTP or here
    │   ├── EndpointUnavailable   nothing answers, or the server is gone (retried, then fatal)
    │   ├── EndpointTimeout       no answer for too long (retried, then its problem has failed)
    │   └── RequestRefused        the server refused this request (never retried)
    ├── SearchError          a search could not go on
    │   └── DeadlineExceeded      it did not end in the time it was given
    ├── RunError             the run folder cannot be written or resumed
    │   └── RunDamaged           its parts contradict each other, or are not as they were written
    ├── SessionError         a session was used before it was opened or after it was closed
    │   └── ForkError            what a process has opened was used in a fork of it
    ├── FunctionError        a Python function given to a session failed or gave what it must not
    ├── ContentBlocked       a filter of the gateway refused a prompt or an answer
    ├── WorkerUnavailable    a process that renders chat templates or grades does not start
    └── Interrupted          the user pressed Ctrl-C (exit 130)
        └── Terminated       another process asked to stop, by SIGTERM (exit 143)

The message says what was wrong and where; `hint` says what to do. The command line prints both
and exits with `exit_code`; anything that is not a TtsError is a bug (exit 70), whose traceback it
keeps in a file (`tts.cli.ending`).
"""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, names_there: Iterable[str]) -> str:
    """A question that names what was probably meant, with a space behind it; else nothing."""
    import difflib  # only where something was wrong

    names = list(names_there)
    longer = [each for each in names if name and each.startswith(name)]
    close = longer if len(longer) == 1 else difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]}? " if close else ""


class TtsError(Exception):
    """Base of all errors meant for the user.

    `message` is one sentence or more naming what was wrong and where; `hint` is what to do next.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class ConfigError(TtsError):
    """A deployment file, a flag or a parameter is wrong."""

    exit_code = 2


class DatasetError(TtsError):
    """A dataset file or one of its lines is wrong."""

    exit_code = 2


class CheckpointError(TtsError):
    """A checkpoint is missing, corrupt or not supported."""

    exit_code = 2


class BuildError(TtsError):
    """Compiling or verifying an engine failed."""


class EngineError(TtsError):
    """An engine refused a request or broke."""


class RequestError(EngineError):
    """One request was refused before it reached the pipeline; the engine is unaffected."""


class ServerError(TtsError):
    """A server could not be found or started, it died, or it cannot be what is asked of it."""


class EndpointError(TtsError):
    """A request to an engine failed."""


class EndpointUnavailable(EndpointError):
    """Nothing answers at the address, or the server went away."""


class EndpointTimeout(EndpointError):
    """No answer came, to this request or any other, for too long."""


class RequestRefused(EndpointError):
    """The server refused this very request; sending it again would not help."""


class SearchError(TtsError):
    """A search could not go on."""


class DeadlineExceeded(SearchError):
    """A search did not end in the time it was given."""


class RunError(TtsError):
    """A run folder cannot be written, read or resumed."""


class WrongFolder(RunError):
    """A folder that is named for a run holds none, or cannot take a new one."""

    exit_code = 2


class RunDamaged(RunError):
    """Parts of a run folder contradict each other, or are not as they were written."""


class SessionError(TtsError):
    """A session was used while it was not open."""


class ForkError(SessionError):
    """An object that one process opened was used in a fork of it."""


class FunctionError(TtsError):
    """A Python function that a program gave failed, or gave what it must not."""


class WorkerUnavailable(TtsError):
    """A worker process of this one does not start: a fault of the installation or the machine."""


class ContentBlocked(TtsError):
    """A content filter refused a prompt or an answer."""


class Interrupted(TtsError):
    """The user asked to stop."""

    exit_code = 130


class Terminated(Interrupted):
    """Another process asked to stop."""

    exit_code = 143
