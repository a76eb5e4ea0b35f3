"""The servers that a session uses side by side: their health, and the routing of work.

`tts.fleet.routing` decides. This module gives it connections, the time, a watch that notices
dead servers, and a real request that shows when they are back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from tts.base.errors import EndpointTimeout, EndpointUnavailable, ServerError, TtsError
from tts.endpoints.base import Connection, Generator, Verifier
from tts.endpoints.retry import PATIENCE_S

from .routing import Breaker, Lease, Router, RoutingPolicy

CHECK_S = 0.5
"""Seconds between checks of the servers."""
MOVING_PATIENCE_S = 2.0
"""Seconds for which a request is retried on one of several servers before it goes to another."""
FAILURES = (EndpointUnavailable, EndpointTimeout, ServerError)
"""Errors that mean a broken server rather than a wrong request."""

RETRY_WAIT_S = 0.2
"""Before work goes back to a replica on which it has failed, which may not be known to be lost."""

T = TypeVar("T")


async def _nothing() -> None:
    """Finds and closes nothing."""


@dataclass(eq=False)
class EnginePair:
    """Both engines of one replica, and how to see that they work."""

    name: str
    """Its address; of the program's own endpoints: empty."""
    generator: Generator
    verifier: Verifier
    connection: Connection | None = None
    """To its engines, unless both are the program's own."""
    check: Callable[[], None] = lambda: None
    """In a millisecond: raises ServerError if something of it is known to have died."""
    probe: Callable[[], Awaitable[None]] = _nothing
    """By a real request to both engines; raises a TtsError."""
    comes_back: Callable[[], bool] = lambda: False
    """Whether it is gone, and another process is starting it again."""
    close: Callable[[], Awaitable[None]] = _nothing

    @property
    def endpoints(self) -> tuple[Generator, Verifier]:
        """Both engines."""
        return self.generator, self.verifier


class Replicas:
    """Replicas that may be added, drained and removed at any time; an async context manager.

    With one that was there from the beginning (`use`) it only passes requests on: who waits for it
    to come back is the connection, and its failures are the callers'. From the second on, or once
    one was added by its address, what fails on one is repeated on another.
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
        self.router = Router(policy, Breaker())
        """The state of the replicas; not to be changed by others."""
        self.elastic = False
        """Whether work moves from one replica to another."""
        self._connect = connect
        self._patience_s = patience_s
        self._pairs: dict[str, EnginePair] = {}
        self._lost: dict[str, asyncio.Future[TtsError]] = {}
        """A future for each replica, which is done while the replica is not usable."""
        self._why: dict[str, TtsError] = {}
        """The last failure of each replica that has not worked since."""
        self._changed = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._trials: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        tasks = [*self._trials, *([self._watch] if self._watch else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for pair in self._pairs.values():
            await pair.close()

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def pairs(self) -> Sequence[EnginePair]:
        """All replicas, usable or not, in the order in which they came."""
        return tuple(self._pairs.values())

    def use(self, pair: EnginePair, group: str = "") -> None:
        """Give work to engines that answer already; ValueError for a name that is taken."""
        self.router.add(pair.name, group)
        self._pairs[pair.name] = pair
        self._lost[pair.name] = asyncio.get_running_loop().create_future()
        if len(self._pairs) > 1:
            self.be_elastic()
        self.wake()

    def be_elastic(self) -> None:
        """From now on what fails on one replica is repeated on another, or waits for one."""
        self.elastic = True
        for pair in self._pairs.values():
            if pair.connection:
                pair.connection.patience_s = MOVING_PATIENCE_S
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._look())

    async def add(self, address: str, group: str = "") -> None:
        """Connect to one more replica and give it work; raises a TtsError, or ValueError."""
        pair = await self._connect(address)
        try:
            self.use(pair, group)
        except ValueError:
            await pair.close()
            raise
        self.be_elastic()

    def drain(self, name: str, draining: bool = True) -> None:
        """Give it no new conversations, or some again; running ones go on. Raises KeyError."""
        self.router.drain(name, draining)
        self.be_elastic()
        self.wake()

    async def remove(self, name: str) -> None:
        """Drain a replica, wait until nothing of it is left, and let go of it; KeyError."""
        self.drain(name)
        while self.router[name].outstanding:
            await self._change()
        self.router.remove(name)
        await self._pairs.pop(name).close()
        self._lost.pop(name).cancel()
        self._why.pop(name, None)

    def lose(self, pair: EnginePair, why: TtsError) -> None:
        """A replica is known not to work: nothing goes there until it answers the watch."""
        self._why[pair.name] = why
        self.router.trip(pair.name, self._now())
        self._notice(pair.name)

    def lost(self, pair: EnginePair) -> asyncio.Future[TtsError]:
        """Done when a replica stops working, with the reason; another one when it works again."""
        return self._lost[pair.name]

    @asynccontextmanager
    async def lease(
        self,
        key: str = "",
        *,
        avoid: Collection[str] = (),
        strictly: bool = False,
    ) -> AsyncIterator[EnginePair]:
        """The engines for a piece of work, which are waited for; what the block raises is learned.

        `avoid` names replicas that are used only if there is no other, or with `strictly` never.
        Raises EndpointUnavailable when none has worked for too long.
        """
        lease = await self._leased(key, avoid, strictly=strictly)
        ok: bool | None = None
        try:
            yield self._pairs[lease.replica.name]
            ok = True
        except FAILURES as error:
            ok = False
            self._why[lease.replica.name] = error
            raise
        finally:
            # of a single one the circuit stays closed: there is no alternative to asking it
            self.router.end(lease, self._now(), ok=ok if self.elastic else None)
            self._notice(lease.replica.name)
            self.wake()

    async def call(self, request: Callable[[EnginePair], Awaitable[T]], key: str = "") -> T:
        """The result of a repeatable request, which moves to another replica when one fails.

        Each is asked once. Raises what the last of them has raised.
        """
        attempts = Attempts(self, key, most=lambda: max(2, len(self)) if self.elastic else 1)
        while True:
            async with attempts.next() as pair:
                return await request(pair)

    async def _leased(self, key: str, avoid: Collection[str], *, strictly: bool) -> Lease:
        give_up: float | None = None
        while True:
            lease = self.router.lease(self._now(), key, avoid=avoid)
            if lease is None and avoid and not strictly:
                lease = self.router.lease(self._now(), key)
            if lease is not None:
                return lease
            if self.some_work() or any(pair.comes_back() for pair in self.pairs):
                give_up = None
            elif give_up is None:
                give_up = self._now() + self._patience_s
            elif self._now() > give_up:
                raise self._none_works()
            await self._change()

    def some_work(self) -> bool:
        """Whether any replica works, even if it cannot take this work now."""
        return any(
            not (self._lost[each.name].done() or each.draining) for each in self.router.replicas
        )

    def _none_works(self) -> TtsError:
        """The one replica's own failure, or those of all."""
        why = [error for name, error in self._why.items() if name in self._pairs]
        if len(self._pairs) == 1 and why:
            return why[0]
        reasons = [f"{name}: {error.message}" for name, error in self._why.items()]
        return EndpointUnavailable(
            f"None of {len(self._pairs)} servers answers.",
            hint="\n".join([*reasons, "Start one of them again."]),
        )

    async def _look(self) -> None:
        """See what has died, and try what may be back."""
        restarting: set[EnginePair] = set()
        while True:
            for pair in self.pairs:
                if not self._lost[pair.name].done():
                    try:
                        pair.check()
                    except ServerError as error:
                        self.lose(pair, error)
                elif pair.comes_back():
                    restarting.add(pair)
                elif pair in restarting:  # it has just been started again
                    restarting.discard(pair)
                    self._begin_trial(pair)
            for replica in self.router.to_try(self._now()):
                self._begin_trial(self._pairs[replica.name])
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
            ok = False
            self._why[pair.name] = error
        else:
            ok = True
        if pair.name in self._pairs:
            self.router.report(pair.name, self._now(), ok=ok)
            self._notice(pair.name)
            self.wake()

    def _notice(self, name: str) -> None:
        """Say so if a replica has been lost, or has come back."""
        lost = self._lost.get(name)
        if lost is None or not self.elastic:
            return
        works = self.router[name].circuit.state(self._now()) == "closed"
        if works and lost.done():
            self._lost[name] = asyncio.get_running_loop().create_future()
        elif not works and not lost.done():
            unknown = EndpointUnavailable(f"The server at {name} does not answer.")
            lost.set_result(self._why.get(name, unknown))
        if works:
            self._why.pop(name, None)

    def wake(self) -> None:
        """Wake the callers that wait for a replica."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        await self._changed.wait()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


class Attempts:
    """Tries a piece of work on one replica after another, until it is done or fails for good.

    Work moves only here: whatever a search, a sample or a request does when its server is lost is
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
        busy: Collection[str] = (),
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
        self._in_vain = 0

    @asynccontextmanager
    async def next(self) -> AsyncIterator[EnginePair]:
        """The engines to try it on, which are waited for.

        A failure that says that they do not work ends the block in silence, as long as another
        attempt may be made; the last one, and everything else, is raised.
        """
        pair: EnginePair | None = None
        self._in_vain += 1
        try:
            async with self._replicas.lease(
                self._key,
                # while it waits for one that is not busy, `busy` itself may change
                avoid={*self._failed, *self._busy} if self._failed else self._busy,
                strictly=not self._failed,
            ) as pair:
                if pair.name in self._failed:  # there is no other
                    await asyncio.sleep(RETRY_WAIT_S)
                yield pair
        except FAILURES:
            if pair is None or self._in_vain >= self._most():
                raise
            self._failed.append(pair.name)
            if len(self._failed) >= len(self._replicas):
                del self._failed[:-1]

    def count_anew(self) -> None:
        """Progress was made: earlier failures no longer count."""
        self._in_vain = 0
