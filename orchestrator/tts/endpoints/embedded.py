"""The generator and the verifier in processes of the session's own, without a server.

Triton's part is done here: a request is checked against its engine's limits, a score is computed
from the verifier's logits, and an engine that dies is opened again while its requests wait to be
sent again.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import timeout
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from tts.base.errors import (
    EndpointError,
    EndpointTimeout,
    EndpointUnavailable,
    EngineError,
    RequestError,
    ServerError,
)
from tts.build.spec import ANSWER_TIMEOUT_S, Role
from tts.engines import wire
from tts.engines.engine_client import EngineClient
from tts.engines.engine_messages import Open
from tts.engines.generate_request import (
    EngineLimits,
    GenerateRequest,
    Sequences,
    check_request,
    check_stop_words,
    score_request,
)
from tts.engines.responses import Response, failure_of, first_probability
from tts.engines.statistics import Statistics

from .base import REST_S, GenerateCall, ScoreCall, VerifierResult
from .retry import MOST_DEATHS, PATIENCE_S, Heartbeat, retried
from .shaping import refuse_top, shaped
from .streaming import NewTokens, OutputEnds, StreamingGenerator
from .triton_errors import all_reset, error_of_failure
from .triton_requests import HOST_SHAPING

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ENGINE = "the OpenVINO engine"
TakeRest = Callable[[int], None] | None
"""See `GenerateCall.on_rest`."""


class EmbeddedEngine:
    """One engine, through the restarts of its process."""

    def __init__(
        self, model: str, opening: Open, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        """`model` is the name that errors have for it."""
        self.model = model
        self._heartbeat = Heartbeat(f"Model {model}", answer_timeout_s)
        self.limits = opening.limits
        self.patience_s = PATIENCE_S
        """How long a request is sent again once the engine is gone for good."""
        self.listeners: list[Callable[[Statistics], None]] = []
        """They get the statistics of every step."""
        self._opening = opening
        self._client: EngineClient | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._deaths = 0
        """How often it has died since it last answered."""
        self._gone: tuple[str, str | None] | None = None
        """Why it is not opened again, and what to do."""
        self._closing = False

    async def open(self) -> None:
        """Start the process; raises EngineError if the engine cannot be opened."""
        self._client = await EngineClient.open(
            self._opening, on_statistics=self._take_statistics, on_death=self._died
        )

    def kill(self) -> None:
        """End the process at once, and open no other."""
        self._closing = True
        if self._reopening:
            self._reopening.cancel()
        if self._client:
            self._client.kill()

    async def aclose(self) -> None:
        """End the process, and what waits for it."""
        self.kill()
        if self._reopening:
            await asyncio.wait({self._reopening})
        if self._client:
            await self._client.aclose()

    async def answer(
        self, request: GenerateRequest, *, cold: bool = False, on_rest: TakeRest = None
    ) -> Response:
        """The one response to a request that does not stream; sent again if its engine dies.

        Raises EndpointError. A request that is given up, and one whose wait is cancelled, ends on
        the engine.
        """
        self.require(check_request, request)
        deaths = 0

        async def attempt() -> Response:
            nonlocal deaths
            client = await self._open_client()
            try:
                return await self._answer_once(client, request, cold, on_rest)
            except EndpointUnavailable as error:
                if self._gone:
                    raise EndpointUnavailable(*self._gone) from error
                deaths += client is not self._client
                if deaths >= MOST_DEATHS:  # it may be what kills the engine, while others live
                    died = f"Model {self.model} has died {deaths} times with this request: "
                    raise EndpointError(died + error.message) from error
                raise

        return await retried(attempt, self._comes_back, self.patience_s)

    async def stream(
        self, request: GenerateRequest, on_rest: TakeRest = None
    ) -> AsyncGenerator[Response, None]:
        """The responses to a request as they come; never sent again, without a timeout."""
        self.require(check_request, request)
        responses: asyncio.Queue[Response] = asyncio.Queue()
        client = await self._open_client()
        ticket = client.submit(request, responses.put_nowait)
        final = False
        try:
            while not final:
                response = await responses.get()
                final = response.final
                yield self._checked(response)
        finally:
            if not final:
                client.cancel(ticket)
                await _count_rest(responses, on_rest)

    def require(self, check: Callable[[T, EngineLimits], None], what: T) -> None:
        """Raise RequestRefused for what the engine does not take, as the check says."""
        try:
            check(what, self.limits)
        except RequestError as error:
            raise error_of_failure(self.model, wire.Failure.REFUSED, error.message) from None

    async def _answer_once(
        self, client: EngineClient, request: GenerateRequest, cold: bool, on_rest: TakeRest
    ) -> Response:
        responses: asyncio.Queue[Response] = asyncio.Queue()
        ticket = client.submit(request, responses.put_nowait, cold=cold)
        try:
            async with self._heartbeat.limited():
                return self._checked(await responses.get())
        except EndpointTimeout:
            client.cancel(ticket)
            raise
        except asyncio.CancelledError:
            client.cancel(ticket)
            await _count_rest(responses, on_rest)
            raise

    def _checked(self, response: Response) -> Response:
        self._heartbeat.beat()
        if failure := failure_of(response):
            raise error_of_failure(self.model, *failure)
        self._deaths = 0
        return response

    async def _open_client(self) -> EngineClient:
        """The process of the engine, which is waited for while it is started again."""
        while self._client is None:
            if self._gone:
                raise EndpointUnavailable(*self._gone)
            if self._closing or self._reopening is None or self._reopening.done():
                raise EndpointUnavailable(f"Model {self.model} is closed.")
            await asyncio.wait({self._reopening})
        return self._client

    def _take_statistics(self, statistics: Statistics) -> None:
        self._heartbeat.beat()
        for listener in tuple(self.listeners):  # one may be removed by another thread
            listener(statistics)

    def _died(self, how: str, hint: str | None) -> None:
        self._client = None
        if self._closing:
            return
        if self._may_live_again(f"the engine's process {how}.", hint):
            logger.warning("the engine of model %s %s; it is opened again", self.model, how)
            self._reopening = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        while True:
            try:
                await self.open()
                return
            except EngineError as error:
                if not self._may_live_again(error.message, error.hint):
                    return
            except Exception as error:  # no descriptors, no memory for a process
                self._gone = f"Model {self.model} died and cannot be opened again: {error}", None
                return

    def _may_live_again(self, why: str, hint: str | None) -> bool:
        """Count a death; whether it was not the last one."""
        self._deaths += 1
        if self._deaths >= MOST_DEATHS:
            self._gone = (
                f"Model {self.model} has died {self._deaths} times without an answer: {why}",
                hint or "If memory is short, kv_cache.tokens and max_batch_size take less.",
            )
        return self._gone is None

    def check(self) -> None:
        """Raise ServerError if the engine is not opened again."""
        if self._gone:
            raise ServerError(*self._gone)

    def _comes_back(self) -> bool:
        """Whether it is worth waiting for; EndpointUnavailable if it is not opened again."""
        if self._gone:
            raise EndpointUnavailable(*self._gone)
        return self._client is None and not self._closing


async def _count_rest(responses: asyncio.Queue[Response], on_rest: TakeRest) -> None:
    """Count the tokens of a cancelled request that nobody has read."""
    tokens, final = 0, on_rest is None
    with suppress(TimeoutError):
        async with timeout(REST_S):
            while not final:
                response = await responses.get()
                tokens += len(response.token_ids)
                final = response.final
    if on_rest:
        on_rest(tokens)


class EmbeddedConnection:
    """The engines of a session, as `TritonConnection` has those of a server."""

    address = "embedded"

    def __init__(self, engines: Mapping[Role, EmbeddedEngine]) -> None:
        """`engines` are one or both; what asks for another raises KeyError."""
        self._engines = engines

    def limit_patience(self, seconds: float) -> None:
        """See endpoints.Connection."""
        for engine in self._engines.values():
            engine.patience_s = seconds

    def generator(self, ends: OutputEnds, role: Role = "generator") -> EmbeddedGenerator:
        """See endpoints.Connection."""
        return EmbeddedGenerator(self._engine(role), ends)

    def verifier(self) -> EmbeddedVerifier:
        """See endpoints.Connection."""
        return EmbeddedVerifier(self._engine("verifier"))

    def _engine(self, role: Role) -> EmbeddedEngine:
        """The engine of a role; a generator without a verifier beside it has both."""
        return self._engines.get(role) or self._engines["generator"]

    def check(self) -> None:
        """Raise ServerError if an engine has died for good."""
        for engine in self._engines.values():
            engine.check()

    async def aclose(self) -> None:
        """See endpoints.Connection."""
        for engine in self._engines.values():
            engine.kill()  # both, before any wait that may be cancelled
        for engine in self._engines.values():
            await engine.aclose()

    async def reset_prefix_caches(self) -> bool:
        """See endpoints.Connection."""
        prompt = np.zeros(1, np.int64)
        one_token = GenerateRequest(prompt, max_new_tokens=1)
        requests = [
            (engine, one_token if engine.limits.writes else score_request(prompt))
            for engine in self._engines.values()
        ]
        return await all_reset(*(engine.answer(request, cold=True) for engine, request in requests))


class EmbeddedGenerator(StreamingGenerator):
    """The generator; see endpoints.StreamingGenerator."""

    def __init__(self, engine: EmbeddedEngine, ends: OutputEnds) -> None:
        self._engine, self._ends = engine, ends
        self._end_id = None if ends.id == wire.NO_END_ID else ends.id
        self._words = lru_cache(maxsize=256)(self._new_words)

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator; sent again if the engine dies."""
        return (await self._engine.answer(self._request(call), on_rest=call.on_rest)).token_ids

    async def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        """See endpoints.StreamingGenerator."""
        request = replace(
            self._request(call), streaming=call.streaming, return_log_probs=call.log_probs
        )
        responses = self._engine.stream(request, call.on_rest)
        try:
            async for response in responses:
                ids, log_probs = response.token_ids, response.log_probs or []
                # the engine's are those of the whole output so far
                new = log_probs[len(log_probs) - len(ids) :]
                yield NewTokens(ids, new, response.final)
        finally:
            await responses.aclose()

    def _request(self, call: GenerateCall) -> GenerateRequest:
        ids, limits = call.input_ids, self._engine.limits
        greedy = call.temperature == 0
        refuse_top(call.top_log_probs, _ENGINE)
        return GenerateRequest(
            ids.astype(np.int64),
            max(1, min(call.max_new_tokens, limits.max_seq_len - len(ids))),
            None if call.ignore_end else self._end_id,
            self._words(call.stop_at_step, call.stop_words, call.ignore_end),
            # as they would be on the wire, so that both kinds of server draw the same
            1.0 if greedy else float(np.float32(call.temperature)),
            0.0 if greedy else float(np.float32(call.top_p)),
            0 if greedy else call.top_k,
            0 if greedy else call.seed,
            guide=call.guide,
            **shaped(call.shaping, HOST_SHAPING, _ENGINE),
        )

    def _new_words(self, at_step: bool, stop_words: Sequences, ignore_end: bool) -> Sequences:
        words = self._ends.words(at_step, stop_words, ignore_end)
        self._engine.require(check_stop_words, words)
        return words


class EmbeddedVerifier:
    """The verifier; see endpoints.Verifier."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine = engine

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        logits = (await self._engine.answer(score_request(call.input_ids))).label_logits
        assert logits is not None
        try:
            return VerifierResult(first_probability(logits))
        except RequestError as error:
            raise error_of_failure(
                self._engine.model, wire.Failure.REFUSED, error.message
            ) from None
