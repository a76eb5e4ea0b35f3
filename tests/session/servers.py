"""Servers of scripted engines on virtual time, each down when a test wants it to be."""

import asyncio
import random
from dataclasses import dataclass, field

from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier

from tts.base.errors import EndpointUnavailable
from tts.fleet.replicas import EnginePair


@dataclass
class FakeServer:
    """Both endpoints of a server that answers after a while, unless it is down meanwhile."""

    name: str
    words: tuple
    outages: list = field(default_factory=list)
    """Pairs of virtual times: from when on, until when."""
    slowness_s: float = 0.1
    answered: int = 0
    restarts: bool = False

    def __post_init__(self):
        self.generator = ScriptedGenerator(*self.words)
        self.verifier = ScriptedVerifier()
        self.random = random.Random(self.name)

    def is_down(self, since=None):
        now = asyncio.get_running_loop().time()
        since = now if since is None else since
        return any(begin <= now and since < end for begin, end in self.outages)

    async def answer(self, ask, call):
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(self.slowness_s * (0.5 + self.random.random()))
        if self.is_down(began):
            raise EndpointUnavailable(f"{self.name} is gone")
        self.answered += 1
        return await ask(call)

    async def generate(self, call):
        return await self.answer(self.generator.generate, call)

    async def score(self, call):
        return await self.answer(self.verifier.score, call)

    async def probe(self):
        await asyncio.sleep(0.01)
        if self.is_down():
            raise EndpointUnavailable(f"{self.name} does not answer")

    def pair(self):
        return EnginePair(
            self.name,
            self,
            self,
            probe=self.probe,
            comes_back=lambda: self.restarts and self.is_down(),
        )
