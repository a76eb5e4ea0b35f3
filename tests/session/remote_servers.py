"""Servers that run already, in this process: what a test wants them to be, and to do."""

import asyncio

from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier

from tts.base.errors import EndpointUnavailable, ServerError
from tts.build.spec import Deployment
from tts.endpoints.openai.probing import Capabilities


class FakeServers:
    """What answers by URL, in the place of OpenAIServer; `keys` are those that were sent."""

    def __init__(self, words):
        self.words = words
        self.known = {}
        self.down = set()
        self.keys = {}
        self.asked = {}
        """Requests by URL."""
        self.closed = set()

    def serve(self, url, **fields):
        said = {
            "kind": "vllm",
            "model": "qwen",
            "context": 4096,
            "seeds": True,
            "seeds_beside_others": True,
        } | fields
        self.known[url] = Capabilities(**said)

    def __call__(self, url, *, model=None, api_key=None, answer_timeout_s=None):
        self.keys[url] = api_key
        return FakeServer(self, url, model)


class FakeServer:
    def __init__(self, servers, url, model):
        self.servers, self.url, self.model = servers, url, model
        self.capabilities = None

    def limit_patience(self, seconds):
        pass

    async def probe(self, patience_s=None):
        known = self.servers.known.get(self.url)
        if known is None or self.url in self.servers.down:
            raise EndpointUnavailable(f"Nothing answers at {self.url}.", "Start it.")
        if self.model not in (None, known.model):
            raise ServerError(f"{self.url} does not serve {self.model}.")
        self.capabilities = known
        return known

    def reset_prefix_cache(self):
        return False

    def generator(self):
        return FakeEndpoint(self, ScriptedGenerator(*self.servers.words))

    def verifier(self):
        return FakeEndpoint(self, ScriptedVerifier())

    async def aclose(self):
        self.servers.closed.add(self.url)


class FakeEndpoint:
    def __init__(self, server, inner):
        self.server, self.inner = server, inner

    async def _asked(self):
        await asyncio.sleep(0)
        url, servers = self.server.url, self.server.servers
        if url in servers.down:
            raise EndpointUnavailable(f"Nothing answers at {url}.")
        servers.asked[url] = servers.asked.get(url, 0) + 1

    async def generate(self, call):
        await self._asked()
        return await self.inner.generate(call)

    async def score(self, call):
        await self._asked()
        return await self.inner.score(call)


def remote(tiny, *, generator=("http://gen",), verifier=("http://ver",), **changes):
    """The tiny deployment with engines at these addresses; none: the compiled one."""
    common = {"tokenizer": tiny.generator.checkpoint, "max_seq_len": 320}
    data = tiny.model_dump() | {"name": "far"}
    if generator:
        data["generator"] = {**common, "url": generator, "in_flight_requests": 8, **changes}
    if verifier:
        data["verifier"] = {**common, "url": verifier, "in_flight_tokens": 512}
    if generator and verifier:
        data["target"] = "openai"
    return Deployment.model_validate(data)
