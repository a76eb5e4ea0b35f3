"""The process of an engine: `python -m tts.engines.engine_process SOCKET`.

OpenVINO GenAI keeps Python's interpreter lock during a step. An engine in a process of its own does
not delay incoming requests or outgoing answers. SOCKET is the file descriptor of the connection to
whoever opened it (`engine_client`); its end ends this process.
"""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import select
import signal
import socket
import struct
import sys
from collections import deque
from typing import TYPE_CHECKING

from tts.base.errors import EngineError, TtsError
from tts.build.manifest import read_engine_config

from .engine_messages import (
    Commands,
    EngineReport,
    MessageReader,
    Open,
    Opened,
    ToEngine,
    encode,
)
from .responses import Response
from .statistics import Statistics

if TYPE_CHECKING:
    from .engine import Engine, EngineCommand

_PR_SET_PDEATHSIG = 1
_SCHED_SETATTR, _KEEP_POLICY = 314, 8  # on x86_64
_SLICE_NS = 4_000_000
"""How long an engine computes before others of its kind; Linux's default is 3 ms at most."""
_MAX_WAITING = 256
"""Statistics that wait for the next response, at most."""
_LONGEST_HELD_S = 1.0
"""How long they wait, at most: they tell that a slow engine is at work."""


class EngineConnection:
    """The engine's end of the connection: its inbox, and where its responses go.

    Nothing here waits for the other end to read, so both ends may write at the same time.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = MessageReader(connection, ToEngine)
        self._commands: deque[EngineCommand | None] = deque()
        self._responses: list[tuple[int, Response]] = []
        self._statistics: list[Statistics] = []
        self._may_wait = 0
        self._unsent = b""
        self._asked: Commands

    def open(self, opening: Open) -> Engine:
        """Open an engine whose commands come from here; raises EngineError."""
        if not opening.statistics_s:  # those of every step: by themselves worth no wake-up
            self._may_wait = _MAX_WAITING
        engine = _open(opening, self)
        self._asked = Commands(engine, self._answer)
        return engine

    def get(self, block: bool, timeout: float | None) -> EngineCommand | None:
        """The next command; see CommandInbox. Messages that wait are sent first."""
        if block or self._responses or self._unsent or self._statistics_due():
            self._send()
        while not self._commands:
            if block and not self._wait(timeout):
                break
            if not self._receive() and not block:
                break
        if not self._commands:
            raise queue.Empty
        return self._commands.popleft()

    def _statistics_due(self) -> bool:
        waiting = self._statistics
        return len(waiting) > self._may_wait or (
            bool(waiting) and waiting[-1].monotonic - waiting[0].monotonic > _LONGEST_HELD_S
        )

    def empty(self) -> bool:
        """Whether nothing more has come in: what would wait in the socket, nobody would count."""
        while not self._commands and self._receive():
            pass
        return not self._commands

    def publish(self, statistics: Statistics) -> None:
        """Send statistics with the next report."""
        self._statistics.append(statistics)

    def finish(self) -> None:
        """Send what is left, waiting for the other end."""
        self._socket.setblocking(True)
        self._send()
        while self._unsent:
            self._send()

    def _receive(self) -> bool:
        """Take in what one read gives; False if there is nothing."""
        try:
            messages = self._received.take()
        except BlockingIOError:
            return False
        self._commands.extend([None] if messages is None else self._asked.of(messages))
        return True

    def _answer(self, ticket: int, response: Response) -> None:
        self._responses.append((ticket, response))

    def _send(self) -> None:
        if self._responses or self._statistics:
            self._unsent += encode(EngineReport(self._responses, self._statistics))
            self._responses, self._statistics = [], []
        if self._unsent:
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):  # nobody is left who wants to know
                self._unsent = b""

    def _wait(self, timeout: float | None) -> bool:
        """Wait until there is something to receive, sending meanwhile; False if time is up."""
        while True:
            writers = [self._socket] if self._unsent else []
            readable, writable, _ = select.select([self._socket], writers, [], timeout)
            if writable:
                self._send()
            if readable or not writable:
                return bool(readable)


def _open(opening: Open, connection: EngineConnection) -> Engine:
    from .engine import Engine

    config = read_engine_config(opening.engine_dir)
    vocabulary = None
    if opening.tokenizer_dir:
        from tts.build.token_texts import guide_texts
        from tts.build.tokenizer import Tokenizer

        vocabulary = guide_texts(Tokenizer(opening.tokenizer_dir))
    return Engine(
        opening.engine_dir,
        config,
        opening.limits,
        threads=opening.threads,
        statistics_s=opening.statistics_s,
        on_statistics=connection.publish,
        iteration_log=opening.iteration_log,
        vocabulary=vocabulary,
    )


def _let_others_first() -> None:
    """Let what wakes up run at once: clients and servers, which pass messages on.

    From version 6.12 on, Linux interrupts a process for one whose slice is shorter; else a message
    waits for the end of an engine's slice wherever engines fill the cores.
    """
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack("=IIQiIQQQ", 48, 0, _KEEP_POLICY, nice, 0, _SLICE_NS, 0, 0)
    ctypes.CDLL(None).syscall(_SCHED_SETATTR, 0, attributes, 0)


def main() -> None:
    """Serve the connection that the command line names, until it ends."""
    _let_others_first()
    # dies with its parent, even in the middle of a step
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    # the lowest number that is free: `select` takes none from 1024 on, and a program may have more
    link = os.dup(descriptor := int(sys.argv[1]))
    os.close(descriptor)
    with socket.socket(fileno=link) as ours:
        received = MessageReader(ours, ToEngine)
        while not (messages := received.take()):
            if messages is None:
                return
        (opening,) = messages
        try:
            _serve(opening, ours)
        except EngineError as error:  # the engine must not be used any more
            sys.exit(str(error))


def _serve(opening: Open, ours: socket.socket) -> None:
    connection = EngineConnection(ours)
    try:
        engine = connection.open(opening)
    except TtsError as error:
        ours.sendall(encode(Opened(str(error))))
        return
    ours.sendall(encode(Opened(None)))
    ours.setblocking(False)
    engine.run(connection)
    connection.finish()


if __name__ == "__main__":
    main()
