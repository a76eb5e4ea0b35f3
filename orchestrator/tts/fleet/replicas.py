"""The servers that are used side by side: their health, and the failover of work between them.

`routing` decides. This module gives it connections, the time, a watch that notices dead servers,
and a real request that shows when they are back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self, TypeVar

from tts.base.errors import EndpointTimeout, EndpointUnavailable, ServerError, TtsError
from tts.endpoints.base import Generator, Verifier
from tts.endpoints.retry import PATIENCE_S
from tts.endpoints.streaming import Connection

from .routing import Replica, Router, RoutingPolicy

CHECK_S = 0.5
"""Seconds between checks of the servers."""
MOVING_PATIENCE_S = 2.0
"""Seconds for which a request is retried on one of several servers before it goes to another."""
FAILURES = (EndpointUnavailable, EndpointTimeout, ServerError)
"""Errors that mean a broken server rather than a wrong request."""

RETRY_WAIT_S = 0.2
"""Seconds before work goes back to a replica on which it has failed, which may be down."""

T = TypeVar("T")


async def _nothing() -> None:
    """Probes and closes nothing."""


def _nobody() -> Collection[str]:
    return ()


@dataclass(eq=False)
class EnginePair(Replica):
    """One server: both engines of a replica, how to see that they work, and whether they do.

    Its name is its address; for endpoints of a program it is empty.
    """

    generator: Generator
    verifier: Verifier
    connection: Connection | None = None
    """Leads to its engines; None where both are the program's own."""
    check: Callable[[], None] = lambda: None
    """Takes a millisecond; raises ServerError if something of it is known to have died."""
    probe: Callable[[], Awaitable[None]] = _nothing
    """Sends a real request to both engines; raises a TtsError."""
    comes_back: Callable[[], bool] = lambda: False
    """Whether it is gone, and another process is starting it again."""
    close: Callable[[], Awaitable[None]] = _nothing
    is_here: bool = False
    """Whether this machine's own engines are behind it."""
    failure: TtsError | None = field(default=None, init=False)
    """The last failure, unless it has worked since."""
    down: asyncio.Future[TtsError] = field(init=False)
    """The reason, from when it stops working; another future when it works again."""

    @property
    def endpoints(self) -> tuple[Generator, Verifier]:
        """Both engines."""
        return self.generator, self.verifier


class Replicas:
    """Replicas that may be added, drained and removed at any time; an async context manager.

    With one that was there from the beginning (`use`) it only passes requests on: who waits for it
    to come back is the connection, and its failures are the callers'. From the second on, or once
    one was added by its address, what fails on one is repeated on another (`elastic`).
    """

    def __init__(
        self,
        connect: Callable[[str], Awaitable[EnginePair]],
        policy: RoutingPolicy | None = None,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`connect` opens the pair at an address, and raises a TtsError if it does not answer.

        `patience_s`: how long to wait while no replica works and none is being started again.
        """
        self.router: Router[EnginePair] = Router(policy)
        """The state of the replicas; not to be changed by others."""
        self.elastic = False
        """Whether work moves from one replica to another."""
        self._connect = connect
        self._patience_s = patience_s
        self._changed = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._trials: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        tasks = [*self._trials, *([self._watch] if self._watch else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for pair in self.pairs:
            await pair.close()

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def pairs(self) -> Sequence[EnginePair]:
        """All replicas, usable or not, in the order in which they came."""
        return self.router.replicas

    def use(self, pair: EnginePair) -> None:
        """Give work to engines that answer already; ValueError for a name that is taken."""
        self.router.add(pair)
        pair.down = asyncio.get_running_loop().create_future()
        if len(self) > 1:
            self.enable_failover()
        self.wake()

    def enable_failover(self) -> None:
        """From now on what fails on one replica is repeated on another, or waits for one."""
        self.elastic = True
        for pair in self.pairs:
            if pair.connection:
                pair.connection.limit_patience(MOVING_PATIENCE_S)
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._look())

    async def add(self, address: str, group: str = "") -> None:
        """Connect to one more replica and give it work; raises a TtsError, or ValueError."""
        pair = await self._connect(address)
        pair.group = group
        try:
            self.use(pair)
        except ValueError:
            await pair.close()
            raise
        self.enable_failover()

    def drain(self, name: str, draining: bool = True) -> None:
        """Give it no new conversations, or some again; running ones go on. Raises KeyError."""
        self.router[name].draining = draining
        self.enable_failover()
        self.wake()

    async def remove(self, name: str) -> None:
        """Drain a replica, wait until nothing of it is left, and let go of it; KeyError."""
        self.drain(name)
        while self.router[name].outstanding:
            await self._changed.wait()
        pair = self.router.remove(name)
        await pair.close()
        pair.down.cancel()

    def mark_down(self, pair: EnginePair, why: TtsError) -> None:
        """A replica is known not to work: nothing goes there until it answers the watch."""
        pair.failure = why
        self.router.trip(pair, self._now())
        self._notice(pair)

    @asynccontextmanager
    async def lease(
        self,
        key: str = "",
        *,
        avoid: Collection[str] = (),
        busy: Callable[[], Collection[str]] = _nobody,
    ) -> AsyncIterator[EnginePair]:
        """The engines for a piece of work, which are waited for; what the block raises is learned.

        `avoid` names replicas that are used only if there is no other. `busy` names those that take
        nothing new now: they are waited for, but not by work that avoids others. Raises
        EndpointUnavailable when none has worked for too long.
        """
        pair = await self._lease(key, avoid, busy)
        ok: bool | None = None
        try:
            yield pair
            ok = True
        except FAILURES as error:
            ok = False
            pair.failure = error
            raise
        finally:
            # of a single one the circuit stays closed: there is no alternative to asking it
            self.router.end(pair, key, self._now(), ok=ok if self.elastic else None)
            self._notice(pair)
            self.wake()

    async def call(self, request: Callable[[EnginePair], Awaitable[T]], key: str = "") -> T:
        """A repeatable request's result: each replica is asked once, and the last error raised."""
        attempts = Attempts(self, key, most=lambda: max(2, len(self)) if self.elastic else 1)
        while True:
            async with attempts.next() as pair:
                return await request(pair)

    async def _lease(
        self, key: str, avoid: Collection[str], busy: Callable[[], Collection[str]]
    ) -> EnginePair:
        give_up: float | None = None
        while True:
            pair = self.router.lease(self._now(), key, avoid={*avoid, *busy()})
            if pair is None and avoid:
                pair = self.router.lease(self._now(), key)
            if pair is not None:
                return pair
            if self.some_work() or any(each.comes_back() for each in self.pairs):
                give_up = None
            elif give_up is None:
                give_up = self._now() + self._patience_s
            elif self._now() > give_up:
                raise self._none_works()
            await self._changed.wait()

    def some_work(self) -> bool:
        """Whether any replica works, even if it cannot take this work now."""
        return any(not (each.down.done() or each.draining) for each in self.pairs)

    def _none_works(self) -> TtsError:
        """The one replica's own failure, or those of all."""
        failures = [(pair.name, pair.failure) for pair in self.pairs if pair.failure]
        if len(self) == 1 and failures:
            return failures[0][1]
        reasons = [f"{name}: {failure.message}" for name, failure in failures]
        return EndpointUnavailable(
            f"None of {len(self)} servers answers.",
            hint="\n".join([*reasons, "Start one of them again."]),
        )

    async def _look(self) -> None:
        """See what has died, and try what may be back."""
        restarting: set[EnginePair] = set()
        while True:
            for pair in self.pairs:
                if not pair.down.done():
                    try:
                        pair.check()
                    except ServerError as error:
                        self.mark_down(pair, error)
                elif pair.comes_back():
                    restarting.add(pair)
                elif pair in restarting:  # it has just been started again
                    restarting.discard(pair)
                    self._begin_trial(pair)
            for pair in self.router.to_try(self._now()):
                self._begin_trial(pair)
            self.wake()  # those who wait look at the time
            await asyncio.sleep(CHECK_S)

    def _begin_trial(self, pair: EnginePair) -> None:
        trial = asyncio.ensure_future(self._try(pair))
        self._trials.add(trial)
        trial.add_done_callback(self._trials.discard)

    async def _try(self, pair: EnginePair) -> None:
        try:
            await pair.probe()
        except TtsError as error:
            pair.failure = error
            self.router.report(pair, self._now(), ok=False)
        else:
            self.router.report(pair, self._now(), ok=True)
        self._notice(pair)
        self.wake()

    def _notice(self, pair: EnginePair) -> None:
        """Say so if a replica is down, or has come back."""
        if not self.elastic:
            return
        works = pair.circuit.state(self._now()) == "closed"
        if works and pair.down.done():
            pair.down = asyncio.get_running_loop().create_future()
        elif not works and not pair.down.done():
            unknown = EndpointUnavailable(f"The server at {pair.name} does not answer.")
            pair.down.set_result(pair.failure or unknown)
        if works:
            pair.failure = None

    def wake(self) -> None:
        """Wake the callers that wait for a replica."""
        self._changed.set()
        self._changed = asyncio.Event()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


class Attempts:
    """Tries a piece of work on one replica after another, until it is done or fails for good.

    Work moves only here: whatever a search, a sample or a request does when its server is down is
    the next attempt.

        attempts = Attempts(replicas, most=lambda: 3)
        while True:
            async with attempts.next() as pair:
                return await pair.generator.generate(call)
    """

    def __init__(
        self,
        replicas: Replicas,
        key: str = "",
        *,
        most: Callable[[], int],
        busy: Callable[[], Collection[str]] = _nobody,
    ) -> None:
        """`most` attempts may fail in a row; `busy` names replicas that take nothing new now.

        At first a replica that is not busy is waited for; what has failed goes to a busy one, too.
        """
        self._replicas = replicas
        self._key = key
        self._most = most
        self._busy = busy
        self._failed: list[str] = []
        """Replicas on which it has failed, as long as there are others."""
        self._in_a_row = 0
        """Attempts since the last progress."""

    @asynccontextmanager
    async def next(self) -> AsyncIterator[EnginePair]:
        """The engines to try it on, which are waited for.

        A failure that says that they do not work ends the block in silence, as long as another
        attempt may be made; the last one, and everything else, is raised.
        """
        pair: EnginePair | None = None
        self._in_a_row += 1
        try:
            async with self._replicas.lease(self._key, avoid=self._failed, busy=self._busy) as pair:
                if pair.name in self._failed:  # there is no other
                    await asyncio.sleep(RETRY_WAIT_S)
                yield pair
        except FAILURES:
            if pair is None or self._in_a_row >= self._most():
                raise
            self._failed.append(pair.name)
            if len(self._failed) >= len(self._replicas):
                del self._failed[:-1]

    def reset(self) -> None:
        """Progress was made: earlier failures no longer count."""
        self._in_a_row = 0
