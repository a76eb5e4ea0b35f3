"""Engines that run already: servers that a deployment names by URL, each probed before use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING

from tts.build.errors import (
    ConfigError,
    EndpointTimeout,
    EndpointUnavailable,
    ServerError,
    TtsError,
)
from tts.build.spec import Deployment, FunctionVerifier, RemoteGenerator, RemoteSpec, Role
from tts.build.tokenizer import Tokenizer
from tts.endpoints.base import (
    Connection,
    GenerateCall,
    NewTokens,
    ScoreCall,
    StreamingGenerator,
    Verifier,
    VerifierResult,
)
from tts.engines import wire
from tts.prompting import Models
from tts.runs.config import NOT_REPRODUCIBLE, RemoteEngine

if TYPE_CHECKING:
    from tts.endpoints.openai.capabilities import Capabilities

PROBE_PATIENCE_S = 2.0
"""Seconds that a server may be unavailable while it is probed."""


def key_of(spec: RemoteSpec, role: Role) -> str | None:
    """The key of a server, from the environment; raises ConfigError if it is not there."""
    if spec.api_key_env is None:
        return None
    key = os.environ.get(spec.api_key_env)
    if not key:
        raise ConfigError(
            f"{role}.api_key_env names {spec.api_key_env}, which is not in the environment.",
            hint=f"Set it: export {spec.api_key_env}=...",
        )
    return key


class RemoteServer:
    """A server of one of the engines; it is probed before anything else."""

    def __init__(self, models: Models, role: Role, spec: RemoteSpec, url: str) -> None:
        """Nothing is sent yet; raises ConfigError for a key that is not there."""
        # here: its HTTP library takes 0.2 s, which sessions without such engines need not wait for
        from tts.endpoints.openai.server import OpenAIServer

        self.role: Role = role
        self.url = url
        self.capabilities: Capabilities | None = None
        """Its reported capabilities; None until it has answered."""
        self._models = models
        self._spec = spec
        self._server = OpenAIServer(
            url,
            model=spec.model,
            api_key=key_of(spec, role),
            answer_timeout_s=models.deployment.answer_timeout_s,
        )

    @property
    def patience_s(self) -> float:
        """How long a request is sent again; less where another server can take it."""
        return self._server.patience_s

    @patience_s.setter
    def patience_s(self, seconds: float) -> None:
        self._server.patience_s = seconds

    @property
    def one_at_a_time(self) -> bool:
        """Whether it is sent one request after the other."""
        return isinstance(self._spec, RemoteGenerator) and self._spec.in_flight_requests == 1

    async def probe(self) -> None:
        """Probe the server, and refuse one that cannot work.

        Raises EndpointUnavailable if it does not answer, ServerError if it lacks a capability.
        """
        patience_s, self.patience_s = self.patience_s, PROBE_PATIENCE_S
        try:
            found = await self._server.probe()
        except ServerError as error:
            if isinstance(error.__cause__, (EndpointUnavailable, EndpointTimeout)):
                raise EndpointUnavailable(error.message, error.hint) from error
            raise
        finally:
            self.patience_s = patience_s
        self._require(found)
        self.capabilities = found

    def generator(
        self,
        end_id: int,
        step_stop_words: Sequence[tuple[int, ...]],
        end_stop_words: Sequence[tuple[int, ...]] = (),
    ) -> StreamingGenerator:
        """Its generator, once it has answered; see endpoints.Connection. Raises ServerError."""
        return self._server.generator(
            tokenizer=self._models.generator,
            end_id=end_id,
            step_stop_words=step_stop_words,
            end_stop_words=end_stop_words,
            step_delimiter=self._models.step_delimiter,
        )

    def verifier(self) -> Verifier:
        """Its verifier, once it has answered. Raises ServerError, CheckpointError."""
        spec = self._models.deployment.verifier_model
        return self._server.verifier(tokenizer=Tokenizer(spec.tokenizer_folder), spec=spec)

    async def aclose(self) -> None:
        """End what runs on it."""
        await self._server.aclose()

    def __str__(self) -> str:
        """One line with its address and its reported capabilities."""
        said = self.capabilities.describe() if self.capabilities else "does not answer"
        return f"{self.role} at {self.url}: {said}"

    def _require(self, found: Capabilities) -> None:
        """Raise ServerError if the server cannot do what the deployment needs."""
        most, wanted = found.context, self._spec.max_seq_len
        if most is not None and most < wanted:
            raise ServerError(
                f"The server at {self.url} has a context of {most} tokens, and "
                f"{self.role}.max_seq_len is {wanted}.",
                hint=f"Set {self.role}.max_seq_len to at most {most}, or start the server with a "
                "longer context.",
            )
        guided = isinstance(self._spec, RemoteGenerator) and self._spec.guided_decoding
        if guided and not found.grammar:
            raise ServerError(
                f"The server at {self.url} takes no grammars, and generator.guided_decoding is "
                "true.",
                hint="Remove guided_decoding; searches then cannot ask for a form of answer.",
            )
        if self.role == "generator":
            self.generator(wire.NO_END_ID, ())
        else:
            self.verifier()


class RemoteConnection:
    """Leads to engines on servers of their own, and beside one to where the other is served.

    See endpoints.Connection. Its endpoints can be used once the servers have answered.
    """

    def __init__(self, servers: Sequence[RemoteServer], beside: Connection | None = None) -> None:
        """`servers` are of different roles; `beside` leads to the compiled engine."""
        self._servers: Mapping[Role, RemoteServer] = {each.role: each for each in servers}
        self._beside = beside

    @property
    def address(self) -> str:
        """Where the compiled engine is served; else where the first server is."""
        return self._beside.address if self._beside else next(iter(self._servers.values())).url

    @property
    def patience_s(self) -> float:
        """How long a request is sent again; less where another server can take it."""
        return min(each.patience_s for each in self._servers.values())

    @patience_s.setter
    def patience_s(self, seconds: float) -> None:
        for each in self._servers.values():
            each.patience_s = seconds
        if self._beside:
            self._beside.patience_s = seconds

    @property
    def silent(self) -> Sequence[RemoteServer]:
        """Servers that have not answered yet."""
        return [each for each in self._servers.values() if each.capabilities is None]

    async def probe(self) -> None:
        """Ask the servers what they are; raises EndpointUnavailable, ServerError."""
        await asyncio.gather(*(each.probe() for each in self._servers.values()))

    def generator(
        self,
        *,
        end_id: int,
        step_stop_words: Sequence[tuple[int, ...]],
        end_stop_words: Sequence[tuple[int, ...]] = (),
    ) -> StreamingGenerator:
        """The generator; see Connection."""
        if server := self._servers.get("generator"):
            making = partial(server.generator, end_id, step_stop_words, end_stop_words)
            return _LateGenerator(making)
        assert self._beside is not None
        return self._beside.generator(
            end_id=end_id, step_stop_words=step_stop_words, end_stop_words=end_stop_words
        )

    def verifier(self) -> Verifier:
        """The verifier."""
        if server := self._servers.get("verifier"):
            return _LateVerifier(server.verifier)
        assert self._beside is not None
        return self._beside.verifier()

    async def reset_prefix_caches(self) -> bool:
        """False: a server that others use is left as it is."""
        return False

    async def aclose(self) -> None:
        """End what runs on the connection beside; the servers are closed by the session."""
        if self._beside:
            await self._beside.aclose()


class _LateGenerator(StreamingGenerator):
    """A generator that is made when it is first asked: by then it is known how."""

    def __init__(self, make: Callable[[], StreamingGenerator]) -> None:
        self._made = cache(make)

    def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        return self._made().stream(call)

    async def generate(self, call: GenerateCall) -> list[int]:
        return await self._made().generate(call)


class _LateVerifier:
    """A verifier that is made when it is first asked."""

    def __init__(self, make: Callable[[], Verifier]) -> None:
        self._made = cache(make)

    async def score(self, call: ScoreCall) -> VerifierResult:
        return await self._made().score(call)


class Remotes:
    """The servers of a deployment's remote engines, for as long as a session is open."""

    def __init__(self, models: Models, roles: Collection[Role]) -> None:
        """`roles` are those that are needed; raises ConfigError for keys that are not there."""
        self._servers: Mapping[Role, Sequence[RemoteServer]] = {
            role: [RemoteServer(models, role, spec, url) for url in spec.url]
            for role, spec in models.deployment.remotes().items()
            if role in roles
        }

    def __len__(self) -> int:
        """How many replicas they make: as many as the engine with the most servers has."""
        return max(map(len, self._servers.values()), default=0)

    async def probe(self, say: Callable[[str], None]) -> None:
        """Ask every server what it is; `say` gets a line for each.

        Raises ServerError for one that answers and cannot be used, and where none of them answers.
        """
        failures = await asyncio.gather(*(_failure(each) for each in self.servers))
        for each in self.servers:
            say(f"Using the {each}" if each.capabilities else f"The {each}")
        for record in self.found().values():
            if record.reproducible is False:
                say(NOT_REPRODUCIBLE)
        for role, servers in self._servers.items():
            if not any(each.capabilities for each in servers):
                why = next(error for error in failures if error)
                raise ServerError(
                    f"The {role} does not answer at {', '.join(each.url for each in servers)}.",
                    hint=why.hint or "Start it, or correct its url.",
                )

    @property
    def servers(self) -> Sequence[RemoteServer]:
        """Every server, the generator's first."""
        return [each for servers in self._servers.values() for each in servers]

    def connection(self, number: int, beside: Connection | None = None) -> RemoteConnection:
        """To the servers of a replica, counted from 0: where there are fewer they take turns."""
        servers = [each[number % len(each)] for each in self._servers.values()]
        return RemoteConnection(servers, beside)

    def name(self, number: int) -> str:
        """The name of a replica: a URL of the engine that has more of them."""
        most = max(self._servers.values(), key=len)
        return most[number % len(most)].url

    def found(self) -> dict[str, RemoteEngine]:
        """The facts about them, as run.json keeps them."""
        return {role: _record(role, servers) for role, servers in self._servers.items()}

    async def aclose(self) -> None:
        """End what runs on them."""
        for each in self.servers:
            await each.aclose()


async def ask(deployment: Deployment) -> list[tuple[Role, str, str | TtsError]]:
    """What each server of a deployment says of itself, in one line, or why it cannot be used.

    Raises ConfigError for keys that are not there, CheckpointError for tokenizers.
    """
    by_function = isinstance(deployment.verifier, FunctionVerifier)
    remotes = Remotes(Models.load(deployment, text_verifier=by_function), deployment.remotes())

    async def one(server: RemoteServer) -> str | TtsError:
        try:
            await server.probe()
        except TtsError as error:
            return error
        assert server.capabilities is not None  # it has answered
        return server.capabilities.describe()

    try:
        said = await asyncio.gather(*map(one, remotes.servers))
    finally:
        await remotes.aclose()
    return [(each.role, each.url, line) for each, line in zip(remotes.servers, said, strict=True)]


async def _failure(server: RemoteServer) -> TtsError | None:
    """Why a server does not answer, if it does not."""
    try:
        await server.probe()
    except EndpointUnavailable as error:
        return error
    return None


def _record(role: Role, servers: Sequence[RemoteServer]) -> RemoteEngine:
    found = [each.capabilities for each in servers if each.capabilities]
    drawn = role == "generator"  # of the other nothing is drawn
    repeats = attrgetter("seeds" if servers[0].one_at_a_time else "seeds_beside_others")
    return RemoteEngine(
        url=[each.url for each in servers],
        model=found[0].model if found else None,
        servers=[each.describe() for each in found],
        reproducible=all(map(repeats, found)) if drawn and found else None,
    )
