"""An engine in a process of its own, as an event loop sees it.

    submit() ─> socket ─> engine_process.py ─> socket ─> answer()

Requests submitted in one turn of the loop are sent together, and a step's responses come in one
message. The loop is the program's, or that of a Triton model's thread (`engine_thread`), which
sends for itself.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Self, cast

from tts.base.errors import EngineError

from .engine_messages import (
    Cancel,
    EngineReport,
    FromEngine,
    Messages,
    Open,
    Opened,
    Submissions,
    encode,
)
from .generate_request import GenerateRequest
from .responses import CLOSING, OnResponse, guarded, how_it_ended, unavailable
from .statistics import Statistics

_CODE = "import sys; sys.path[:] = {path}; from tts.engines.engine_process import main; main()"
_OPEN_S = 1800.0
"""Patience with an engine that opens: as long as a server's that is reset."""
_END_S = 5.0
"""How long a process whose connection has ended may take to end, before it is killed."""
_LAST_WORDS = 2000
"""Most bytes passed on of the output of a process that could not open its engine."""


class EngineClient(asyncio.Protocol):
    """One engine, open for requests until `aclose`; it belongs to the loop that opened it."""

    def __init__(
        self,
        opening: Open,
        on_statistics: Callable[[Statistics], None],
        on_death: Callable[[str, str | None], None],
        keeps_output: bool,
    ) -> None:
        """Made by `open`."""
        self._opening = opening
        self._on_statistics = on_statistics
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._messages = Messages(FromEngine)
        self._tickets = count(1)
        self._answering: dict[int, OnResponse] = {}
        self._outbox: list[bytes] = []
        self._submissions = Submissions()
        self._is_open = False
        self._closed = False
        self._transport: asyncio.Transport
        # no file of it is left, however this process ends; closed by aclose, or by the engine's end
        self._said = tempfile.TemporaryFile() if keeps_output else None  # noqa: SIM115
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*_command(), str(theirs.fileno()), opening.engine_dir],  # the last is for `ps`
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=self._said,
                    stderr=self._said,
                    # Ctrl-C is for the program, which ends it; under Triton none comes. It stays in
                    # the session: Linux divides time by sessions, and the program would wait for it
                    process_group=0 if keeps_output else None,
                )
        except BaseException:
            self._socket.close()
            self._close_output()
            raise

    @classmethod
    async def open(
        cls,
        opening: Open,
        *,
        on_statistics: Callable[[Statistics], None] = lambda statistics: None,
        on_death: Callable[[str, str | None], None] = lambda how, words: None,
        keeps_output: bool = True,
    ) -> Self:
        """Start the engine's process and wait until it is open.

        `on_death` is called when the process has ended by itself, after every request was failed,
        with its exit status and last output. Without `keeps_output` what it says goes where this
        process's output goes, and it is in this process's group. Raises EngineError if the engine
        cannot be opened, and OSError if no process can be started.
        """
        client = cls(opening, on_statistics, on_death, keeps_output)
        try:
            await client._loop.create_unix_connection(lambda: client, sock=client._socket)
            client._transport.write(encode(opening))
            await asyncio.wait_for(client._opened, _OPEN_S)
            client._is_open = True
        except TimeoutError:
            await client.aclose()
            late = f"The engine in {opening.engine_dir} was not open after {_OPEN_S:.0f} s."
            raise EngineError(late) from None
        except BaseException:  # Ctrl-C, too, while a large engine opens
            await client.aclose()
            raise
        return client

    @property
    def pid(self) -> int:
        """The engine's process."""
        return self._process.pid

    def submit(
        self,
        request: GenerateRequest,
        answer: OnResponse,
        *,
        cold: bool = False,
        ticket: int | None = None,
    ) -> int:
        """Send a request to the engine; returns the ticket that `cancel` takes.

        `answer` is called until a response is final, exactly one of which comes. With `cold` the
        prefix cache is emptied before, or the request refused. By default tickets are numbered.
        """
        ticket = next(self._tickets) if ticket is None else ticket
        if self._closed or self._transport.is_closing():
            self._loop.call_soon_threadsafe(answer, CLOSING)
            return ticket
        self._answering[ticket] = answer
        self._send(self._submissions.encode(ticket, request, cold=cold))
        return ticket

    def cancel(self, ticket: int) -> None:
        """End a request with the tokens it has; does nothing if it ended already."""
        if ticket in self._answering:
            self._send(encode(Cancel(ticket)))

    def kill(self) -> None:
        """End the process at once: its results are no longer needed, and it keeps no files."""
        self._process.kill()

    async def aclose(self) -> None:
        """Fail the remaining requests, end the engine's process and wait for it."""
        if self._closed:
            return
        self._closed = True
        for answer in self._answering.values():
            guarded(answer, CLOSING)
        self._answering.clear()
        if hasattr(self, "_transport"):
            self._transport.abort()
        else:
            self._socket.close()
        self.kill()
        try:
            await self._wait()
        finally:  # a cancelled one, too
            self._close_output()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no class of asyncio

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        for message in self._messages.feed(data):
            if isinstance(message, EngineReport):
                self._take(message)
            elif isinstance(message, Opened) and not self._opened.done():
                if message.error is None:
                    self._opened.set_result(None)
                else:
                    self._opened.set_exception(EngineError(message.error))

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol: the process has ended, or is about to."""
        if not self._closed:
            self._burying = self._loop.create_task(self._bury())

    def _send(self, message: bytes) -> None:
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(message)

    def _flush(self) -> None:
        data = b"".join(self._outbox)
        self._outbox.clear()
        if not self._transport.is_closing():
            self._transport.write(data)

    def _take(self, report: EngineReport) -> None:
        for ticket, response in report.responses:
            answer = self._answering[ticket]
            if response.final:
                del self._answering[ticket]
            guarded(answer, response)
        for statistics in report.statistics:
            guarded(self._on_statistics, statistics)

    async def _bury(self) -> None:
        how = how_it_ended(await self._wait())
        if not self._opened.done():
            what = f"The process of the engine in {self._opening.engine_dir} {how}."
            self._opened.set_exception(EngineError(what, hint=self._last_words()))
            return
        if self._closed or not self._is_open:
            return
        self._closed = True
        words = self._last_words()
        self._close_output()
        response = unavailable(f"the engine's process {how}")
        for answer in self._answering.values():
            guarded(answer, response)
        self._answering.clear()
        self._on_death(how, words)

    async def _wait(self) -> int:
        """The exit status of the process, which ends in time or is killed."""
        try:
            return await asyncio.to_thread(self._process.wait, _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)

    def _close_output(self) -> None:
        if self._said:
            self._said.close()

    def _last_words(self) -> str | None:
        if not self._said:
            return None
        size = self._said.seek(0, 2)
        self._said.seek(max(0, size - _LAST_WORDS))
        return self._said.read().decode(errors="replace").strip() or None


def _command() -> list[str]:
    """The Python of this process, without its environment and current folder."""
    path = [each for each in sys.path if Path(each).is_absolute()]
    return [sys.executable, "-I", "-c", _CODE.format(path=path)]
