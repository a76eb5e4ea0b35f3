"""Engines that are asked by HTTP, probed before use: named by URL, or started for a deployment."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tts.base.errors import EndpointUnavailable, ServerError, TtsError
from tts.build.spec import (
    Deployment,
    GeneratorRole,
    RemoteSpec,
    Role,
    StartedSpec,
    StartedVerifier,
    TextVerifier,
)
from tts.build.spec.served import key_in
from tts.build.started.command import command_of
from tts.build.tokenizer import Tokenizer
from tts.checks.findings import Observation
from tts.endpoints.base import Verifier
from tts.endpoints.streaming import Connection, OutputEnds, StreamingGenerator
from tts.engines import wire
from tts.prompting import Models
from tts.runs.config import NOT_REPRODUCIBLE, RemoteEngine
from tts.serving.server.started import Engine

from .server import Server

if TYPE_CHECKING:
    from tts.endpoints.openai.probing import Capabilities
    from tts.endpoints.openai.server import OpenAIServer

_NO_REUSE = (
    "It does not seem to reuse prefixes, so each step of a search pays for all the text before it. "
    "vLLM and SGLang reuse them by default, but not for every hybrid model."
)
PROBE_PATIENCE_S = 2.0
"""Seconds that a server may be unavailable while it is probed."""


class RemoteConnection:
    """Leads to engines on servers of their own, and beside one to where the other is served.

    See endpoints.Connection. Its endpoints can be used once the servers have answered.
    """

    def __init__(
        self,
        remotes: Remotes,
        servers: Mapping[Role, OpenAIServer],
        beside: Connection | None = None,
    ) -> None:
        """`servers` are one of each role; `beside` leads to the compiled engine."""
        self._remotes = remotes
        self._servers = servers
        self._beside = beside

    @property
    def address(self) -> str:
        """Where the compiled engine is served; else where the first server is."""
        return self._beside.address if self._beside else next(iter(self._servers.values())).url

    def limit_patience(self, seconds: float) -> None:
        """See Connection."""
        for each in (*self._servers.values(), self._beside):
            if each:
                each.limit_patience(seconds)

    @property
    def silent(self) -> Sequence[str]:
        """The servers that have not answered yet, as errors name them."""
        return [
            self._remotes.describe(role, server)
            for role, server in self._servers.items()
            if server.capabilities is None
        ]

    async def probe(self) -> None:
        """Ask the servers what they are; raises EndpointUnavailable, ServerError."""
        await asyncio.gather(*(self._remotes.ask(*each) for each in self._servers.items()))

    def generator(self, ends: OutputEnds, role: Role = "generator") -> StreamingGenerator:
        """The generator, or a verifier that writes; see Connection."""
        if server := self._servers.get(role):
            return self._remotes.generator(server, role, ends)
        assert self._beside is not None
        return self._beside.generator(ends, role)

    def verifier(self) -> Verifier:
        """The verifier."""
        if server := self._servers.get("verifier"):
            return self._remotes.verifier(server)
        assert self._beside is not None
        return self._beside.verifier()

    async def reset_prefix_caches(self) -> bool:
        """False where a server cannot keep earlier prefixes from later requests."""
        servers = self._servers.values()
        return self._beside is None and all(each.reset_prefix_cache() for each in servers)

    async def aclose(self) -> None:
        """End what runs on the connection beside; the servers are closed by the session."""
        if self._beside:
            await self._beside.aclose()


class Remotes:
    """The servers of engines that are asked by HTTP, for as long as a session is open."""

    def __init__(self, models: Models, roles: Collection[Role]) -> None:
        """`roles` are those that are needed; raises ConfigError for keys that are not there.

        Those with a URL are known at once, those that are started from `add` on.
        """
        self._models = models
        self.specs: Mapping[Role, RemoteSpec | StartedSpec] = {
            role: spec
            for role, spec in models.deployment.roles().items()
            if role in roles and isinstance(spec, RemoteSpec | StartedSpec)
        }
        self.servers: dict[Role, Sequence[OpenAIServer]] = {
            role: _servers(models.deployment, role, spec)
            for role, spec in self.specs.items()
            if isinstance(spec, RemoteSpec)
        }

    @property
    def started(self) -> Collection[Role]:
        """The engines that have to be started; one for both roles is the generator's."""
        needed = {
            "generator" if isinstance(spec, StartedVerifier) and spec.same_as else role
            for role, spec in self.specs.items()
            if isinstance(spec, StartedSpec)
        }
        return [role for role in self._models.deployment.started() if role in needed]

    async def add(self, service: Engine, server: Server, say: Callable[[str], None]) -> None:
        """Probe and use a started engine's server, in each of its roles; raises as `probe`."""
        from tts.endpoints.openai.server import OpenAIServer

        roles = [role for role in service.roles if role in self.specs]
        for role in roles:
            self.servers[role] = [
                OpenAIServer(
                    server.addresses.url,
                    api_key=server.addresses.api_key or None,
                    answer_timeout_s=self._models.deployment.answer_timeout_s,
                    comes_back=server.comes_back,
                )
            ]
        await self.probe(roles, say)

    def __len__(self) -> int:
        """How many replicas they make: as many as the engine with the most servers has."""
        return max(map(len, self.servers.values()), default=0)

    def __iter__(self) -> Iterator[tuple[Role, OpenAIServer]]:
        """Every server with its role, the generator's first."""
        return ((role, each) for role, servers in self.servers.items() for each in servers)

    async def probe(self, roles: Collection[Role], say: Callable[[str], None]) -> None:
        """Ask every server of these roles what it is; `say` gets a line for each.

        Raises ServerError for one that answers and cannot be used, and where none of them answers.
        """
        roles_of = {each: role for role in roles for each in self.servers[role]}
        answers = await asyncio.gather(*(self._failure(r, each) for each, r in roles_of.items()))
        failures = dict(zip(roles_of, answers, strict=True))
        for each, role in roles_of.items():
            say(f"{'Using the' if each.capabilities else 'The'} {self.describe(role, each)}")
        records = self.engine_records()
        if any(records[role].reproducible is False for role in roles):
            say(NOT_REPRODUCIBLE)
        for role in roles:
            if not any(each.capabilities for each in self.servers[role]):
                why = next(error for each in self.servers[role] if (error := failures[each]))
                raise ServerError(
                    f"The {role} does not answer at "
                    f"{', '.join(each.url for each in self.servers[role])}.",
                    hint=why.hint or "Start it, or correct its url.",
                )

    def connection(self, number: int, beside: Connection | None = None) -> RemoteConnection:
        """To the servers of a replica, counted from 0: where there are fewer they take turns."""
        servers = {role: each[number % len(each)] for role, each in self.servers.items()}
        return RemoteConnection(self, servers, beside)

    async def ask(self, role: Role, server: OpenAIServer) -> None:
        """Ask a server what it is, and refuse one that cannot work.

        Raises EndpointUnavailable if it does not answer, ServerError if it lacks a capability.
        """
        capabilities = await server.probe(PROBE_PATIENCE_S)
        try:
            self._require(role, server, capabilities)
        except ServerError:
            server.capabilities = None
            raise

    def generator(self, server: OpenAIServer, role: Role, ends: OutputEnds) -> StreamingGenerator:
        """The generator of a server; see endpoints.Connection. Raises ServerError."""
        from tts.endpoints.openai.generator import OpenAIGenerator

        critic = self._models.critic
        return OpenAIGenerator(
            server,
            tokenizer=critic.tokenizer if role == "verifier" and critic else self._models.generator,
            ends=ends,
            step_delimiter=self._models.step_delimiter,
        )

    def verifier(self, server: OpenAIServer) -> Verifier:
        """The verifier of a server. Raises ServerError, CheckpointError."""
        from tts.endpoints.openai.verifier import OpenAIVerifier

        spec = self._models.deployment.verifier_model
        critic = self._models.critic
        labels = critic.asks.labels if critic and critic.asks else None
        return OpenAIVerifier(server, Tokenizer(spec.tokenizer_folder), spec, labels)

    @staticmethod
    def describe(role: Role, server: OpenAIServer) -> str:
        """One line with a server's address and its reported capabilities."""
        words = server.capabilities.describe() if server.capabilities else "does not answer"
        return f"{role} at {server.url}: {words}"

    def name(self, number: int) -> str:
        """The name of a replica: a URL of the engine that has more of them."""
        most = max(self.servers.values(), key=len)
        return most[number % len(most)].url

    def engine_records(self) -> dict[str, RemoteEngine]:
        """The facts about them, as run.json keeps them."""
        return {role: self._record(role, servers) for role, servers in self.servers.items()}

    async def aclose(self) -> None:
        """End what runs on them."""
        for _, each in self:
            await each.aclose()

    async def _failure(self, role: Role, server: OpenAIServer) -> TtsError | None:
        """Why a server does not answer, if it does not."""
        try:
            await self.ask(role, server)
        except EndpointUnavailable as error:
            return error
        return None

    def _require(self, role: Role, server: OpenAIServer, capabilities: Capabilities) -> None:
        """Raise ServerError if the server cannot do what the deployment needs."""
        spec = self.specs[role]
        context, needed = capabilities.context, spec.max_seq_len
        if context is not None and context < needed:
            raise ServerError(
                f"The server at {server.url} has a context of {context} tokens, and "
                f"{role}.max_seq_len is {needed}.",
                hint=f"Set {role}.max_seq_len to at most {context}, or start the server with a "
                "longer context.",
            )
        if isinstance(spec, GeneratorRole) and spec.guided_decoding and not capabilities.grammar:
            raise ServerError(
                f"The server at {server.url} takes no grammars, and generator.guided_decoding is "
                "true.",
                hint="Remove guided_decoding; searches then cannot ask for a form of answer.",
            )
        critic = self._models.critic
        if role == "generator" or critic:
            self.generator(server, role, OutputEnds(wire.NO_END_ID))
        if role == "verifier" and not (critic and critic.asks is None):
            self.verifier(server)

    def _record(self, role: Role, servers: Sequence[OpenAIServer]) -> RemoteEngine:
        spec, capabilities = self.specs[role], [each.capabilities for each in servers]
        answers = [each for each in capabilities if each]
        reproducible: bool | None = None
        if isinstance(spec, GeneratorRole) and answers:  # of a verifier nothing is drawn
            one_at_a_time = spec.in_flight_requests == 1
            reproducible = all(
                each.seeds if one_at_a_time else each.seeds_beside_others for each in answers
            )
        started: dict[str, Any] = {}
        if isinstance(spec, StartedSpec):
            deployment = self._models.deployment
            words = command_of(deployment, role if role in deployment.started() else "generator", 0)
            started = {"started": shlex.join(words.argv), "deterministic": deployment.deterministic}
        return RemoteEngine(
            url=[each.url for each in servers],
            model=answers[0].model if answers else None,
            servers=[each.describe() for each in answers],
            reproducible=reproducible,
            **started,
        )


def _servers(deployment: Deployment, role: Role, spec: RemoteSpec) -> Sequence[OpenAIServer]:
    """Nothing is sent to them yet; raises ConfigError for a key that is not there."""
    # here: sessions without such engines need not wait for its import
    from tts.endpoints.openai.server import OpenAIServer

    key = spec.api_key_env and key_in(spec.api_key_env, f"{role}.api_key_env")
    timeout_s = deployment.answer_timeout_s
    return [
        OpenAIServer(url, model=spec.model, api_key=key, answer_timeout_s=timeout_s)
        for url in spec.url
    ]


async def ask(deployment: Deployment) -> list[Observation]:
    """What each server of a deployment says of itself, or why it cannot be used.

    Raises ConfigError for keys that are not there, CheckpointError for tokenizers.
    """
    reads_text = isinstance(deployment.verifier, TextVerifier)
    remotes = Remotes(Models.load(deployment, text_verifier=reads_text), deployment.remotes())
    try:
        observations = await asyncio.gather(*(_observe(remotes, *each) for each in remotes))
    finally:
        await remotes.aclose()
    return [each for server in observations for each in server]


async def _observe(remotes: Remotes, role: Role, server: OpenAIServer) -> list[Observation]:
    from tts.endpoints.openai.server import PrefixReuse, prefix_reuse

    name = f"{role} at {server.url}"
    try:
        await remotes.ask(role, server)
        observations = [Observation(name, "ok", server.abilities.describe())]
        if server.abilities.generates:
            try:
                reuse = await prefix_reuse(server, remotes.specs[role].max_seq_len)
            except TtsError as error:
                reuse = PrefixReuse(False, f"this could not be seen: {error.message}")
            observations.append(
                Observation(f"prefixes at {server.url}", "ok", reuse.why)
                if reuse.reused
                else Observation(f"prefixes at {server.url}", "note", reuse.why, _NO_REUSE)
            )
    except TtsError as error:
        return [Observation(name, "missing", error.message, error.hint or "")]
    return observations
