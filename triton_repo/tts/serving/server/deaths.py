"""How a process of a server ended: one wording, whoever notices it first."""

from __future__ import annotations

import signal

from tts.build.errors import ServerError

from .state import process_fields


class Mishap(ServerError):
    """A start that failed by no fault of the deployment's; another may well succeed.

    Triton's Python backend takes a stub that has not moved for a second (by the wall clock) for
    dead: on a machine that is busy enough, or whose clock jumps forward. Then it waits for ever
    for the end of a stub that lives, or aborts by a lock_exception, or says that the stub is not
    healthy.
    """

    def plain(self) -> ServerError:
        """The same for those who cannot start again."""
        return ServerError(self.message, hint=self.hint)


def death(what: str, number: int) -> str:
    """`The server was killed by SIGKILL`, or `The server died` where the signal is not known, 0."""
    return f"{what} was killed by {signal.Signals(number).name}" if number else f"{what} died"


def signal_of(pid: int) -> int:
    """The signal that killed a process, if it is a zombie, whose exit status can still be read."""
    fields = process_fields(pid)
    return int(fields[-1]) & 0x7F if fields else 0
