"""A run of the driver over scripted engines, with everything that can be seen of it."""

import asyncio
import random
from dataclasses import replace

from tts.driver.driver import Driver
from tts.driver.policy import policy_of
from tts.endpoints.scripted import Calls, ScriptedGenerator, ScriptedVerifier
from tts.problem import Problem
from tts.prompting.context import Context, Models
from tts.search import node_seed
from tts.strategies.catalog import new_search

PROBLEMS = [Problem(f"p{i}", f"Compute {i} + {i}.", str(2 * i)) for i in range(4)]


class Run:
    """One run and everything that can be seen of it."""

    def __init__(
        self, deployment, words, config, schedule, *, jitter=None, replayed=None, **policy
    ):
        self.models = Models.load(deployment)
        self.config, self.words = config, words
        self.calls = Calls()
        self.events, self.searches = [], {}
        self.jitter = random.Random(jitter) if jitter is not None else None
        self.policy = replace(policy_of(deployment, schedule), **policy)
        self.generator = ScriptedGenerator(*words, jitter=self.jitter, calls=self.calls)
        self.verifier = ScriptedVerifier(jitter=self.jitter, calls=self.calls)
        self.replayed = replayed

    def new_search(self, problem):
        return new_search(self.config, lambda node: node_seed(1, problem.id, node))

    async def solved(self, outcome):
        self.searches[outcome.problem.id] = outcome.search

    def go(self, problems=PROBLEMS):
        self.driver = Driver(
            self.models,
            self.new_search,
            self.generator,
            self.verifier,
            self.policy,
            record=self.events.append,
            on_solved=self.solved,
            replayed=self.replayed,
        )
        asyncio.run(self.driver.run([Context.of(self.models, p) for p in problems]))
        return self

    @property
    def digests(self):
        return {name: search.tree.digest() for name, search in self.searches.items()}

    @property
    def completions(self):
        return {name: search.result() for name, search in self.searches.items()}

    @property
    def prefetched(self):
        """Calls that only had a prompt computed: seed 0, which no node has here."""
        return {call for call in self.calls.generated if call[1] == 0}
