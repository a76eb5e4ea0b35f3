"""A run of the driver over scripted engines, with everything that can be seen of it."""

import asyncio
import random
from dataclasses import replace

from tests.endpoints.scripted import Calls, ScriptedGenerator, ScriptedVerifier

from tts.driver import Driver, policy_of
from tts.fleet.drivers import event_of
from tts.problem import Problem
from tts.prompting import Models
from tts.search import (
    BeamSearchConfig,
    DvtsConfig,
    Fate,
    ParticleConfig,
    RebaseConfig,
    SampleSearchConfig,
    node_seed,
)
from tts.strategies.catalog import new_search

PROBLEMS = [Problem(f"p{i}", f"Compute {i} + {i}.", str(2 * i)) for i in range(4)]


CONFIGS = [
    BeamSearchConfig(n=8, beam_width=4, num_iterations=5),
    BeamSearchConfig(n=4, beam_width=2, num_iterations=4, agg_strategy="prod"),
    SampleSearchConfig(n=4, agg_strategy="min", max_tokens=60),
    SampleSearchConfig(n=1, temperature=0.0, scored=False, max_tokens=60),
    DvtsConfig(n=6, beam_width=2, num_iterations=4),
    RebaseConfig(n=6, num_iterations=4, finish="eos", max_tokens=60),
    ParticleConfig(n=6, num_iterations=4, ess_threshold=1.0),
]


def same_scores(one, other):
    """Where both runs have one; only a pruned node may lack it in one of them."""
    for name, search in one.searches.items():
        for node in search.tree:
            twin = other.searches[name].tree[node.path]
            if node.score != twin.score:
                assert None in (node.score, twin.score)
                assert node.fate is Fate.PRUNED


class Hooked:
    """An engine of which a test says what happens to a request: `hook(call, answer)`."""

    def __init__(self, inner, hook):
        self.inner, self.hook = inner, hook

    async def generate(self, call):
        return await self.hook(call, self.inner.generate)

    async def score(self, call):
        return await self.hook(call, self.inner.score)


class Run:
    """One run and everything that can be seen of it."""

    def __init__(self, deployment, words, config, schedule, *, jitter=None, resumed=None, **policy):
        self.models = Models.load(deployment)
        self.config, self.words = config, words
        self.calls = Calls()
        self.events, self.searches = [], {}
        self.jitter = random.Random(jitter) if jitter is not None else None
        self.policy = replace(policy_of(deployment, schedule), **policy)
        self.generator = ScriptedGenerator(*words, jitter=self.jitter, calls=self.calls)
        self.verifier = ScriptedVerifier(jitter=self.jitter, calls=self.calls)
        self.resumed = resumed or {}

    def new_search(self, problem):
        return new_search(self.config, lambda node: node_seed(1, problem.id, node))

    def new_driver(self, **options):
        engines = self.generator, self.verifier
        self.driver = Driver(self.models, *engines, self.policy, record=self.record, **options)
        return self.driver

    def record(self, record):
        self.events.append(event_of(record))

    def submit(self, problem, **options):
        resumed = self.resumed.get(problem.id)
        return self.driver.submit(
            problem, lambda: self.new_search(problem), resumed=resumed, **options
        )

    async def solve(self, problems=PROBLEMS):
        async with self.new_driver():
            for submission in [self.submit(problem) for problem in problems]:
                await submission
                self.searches[submission.problem.id] = submission.search
        return self

    def go(self, problems=PROBLEMS):
        """The same where no event loop runs."""
        return asyncio.run(self.solve(problems))

    def events_of(self, *types):
        return [event for event in self.events if isinstance(event, types)]

    @property
    def digests(self):
        return {name: search.result().tree.digest() for name, search in self.searches.items()}

    @property
    def completions(self):
        return {name: search.result().completions for name, search in self.searches.items()}
