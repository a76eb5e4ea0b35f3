"""Random runs over faulty engines: a case, its world, one session of it, and the checks."""

import asyncio
import dataclasses
import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from examples.beam_search_in_one_file import on_endpoints
from hypothesis import strategies as st
from tests.amounts import amount
from tests.driver.faulty import (
    LONGEST_RESTART_S,
    RESTARTS,
    Cancelling,
    Faults,
    FaultyEngine,
    FaultyGenerator,
    FaultyVerifier,
)
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.search import driving

from tts.base.errors import EndpointUnavailable
from tts.driver import Driver
from tts.fleet.drivers import event_of
from tts.lab.simulation.scenario import run_virtual
from tts.problem import Problem
from tts.prompting import Context
from tts.runs import events
from tts.runs.folder import EVENTS
from tts.runs.log import ChecksumChain
from tts.runs.resume import read_resume_point, resumed_work
from tts.scheduling import Policy, ScheduleName
from tts.search import Expand, Fate, Generated, Score, Scored, node_seed
from tts.strategies.catalog import STRATEGIES, new_search

SCHEDULES = get_args(ScheduleName)
DRAWN = {
    "greedy": driving.sample_configs,
    "majority-vote": driving.sample_configs,
    "adaptive-vote": driving.adaptive_configs,
    "weighted-adaptive-vote": driving.adaptive_configs,
    "best-of-n": driving.sample_configs,
    "weighted-best-of-n": driving.sample_configs,
    "beam-search": driving.beam_configs,
    "dvts": driving.dvts_configs,
    "rebase": driving.rebase_configs,
    "particle-filtering": driving.particle_configs,
    "mcts": driving.mcts_configs,
}
"""What the parameters of each strategy are drawn from."""

LATE = "answered though cancelled"

EXAMPLES = amount(8, 24)
"""Cases of each strategy, each under all four schedules."""

WORDS = {
    "mixed": ["1", "22", "a", " + ", "", "\\boxed{5}", "\\boxed{7}", "\\boxed{x}"],
    "few": ["1", " ", ""],  # blank steps, and many that are equal
    "agreeing": ["\\boxed{5}", "\\boxed{5}", "\\boxed{5}", "1"],
    "long": ["1 + 22 = 23 and then some more of it, "],  # fills an engine's context
}


@dataclass(frozen=True)
class Case:
    """Everything that is drawn for one run, the schedule apart."""

    strategy: str
    parameters: dict
    words: str
    end: float
    """Share of the steps that end their chain."""
    score_steps: int
    """Scores are multiples of one over this."""
    problems: int
    context: int
    """max_seq_len of the generator."""
    dialogue: int
    """max_seq_len of the verifier."""
    policy: Policy
    """The schedule is replaced by each of them."""
    generator: Faults
    verifier: Faults
    seed: int


policies = st.builds(
    Policy,
    st.just("decoupled"),
    generator_requests=st.sampled_from([8, 1, 2, 5, 64]),
    verifier_limit=st.sampled_from([512, 1, 30, 100, 5000]),
    problems=st.sampled_from([None, 1, 2]),
    speculation=st.sampled_from(["off", "auto", "always"]),
    prefetch=st.booleans(),
    one_device=st.booleans(),
    one_core=st.booleans(),
    verifier_writes=st.booleans(),
    verifier_step_tokens=st.sampled_from([None, 1, 30, 512]),
)


@st.composite
def restarts(draw):
    """Up to two windows in which an engine is down, one after the other."""
    lengths = st.tuples(st.floats(0, 10), st.floats(0.01, LONGEST_RESTART_S))
    windows, free = [], 0.0
    for begin, length in sorted(draw(st.lists(lengths, max_size=RESTARTS))):
        windows.append((free + begin, free + begin + length))
        free = windows[-1][1]
    return tuple(windows)


faults = st.builds(
    Faults,
    seed=st.integers(0, 10**9),
    latency_s=st.sampled_from([0.05, 0.0, 0.001, 1.0]),
    heavy=st.booleans(),
    lost=st.sampled_from([0.0, 0.05, 0.3]),
    late=st.sampled_from([0.0, 0.05, 0.3]),
    timed_out=st.sampled_from([0.0, 0.05]),
    restarts=restarts(),
    cancelling=st.sampled_from(get_args(Cancelling)),
)


@st.composite
def parameters(draw, strategy):
    given = draw(DRAWN[strategy]).model_dump(exclude={"answer_regex", "answer_schema"})
    given["temperature"] = draw(st.sampled_from([0.0, 0.8]))
    given["max_tokens"] = draw(st.sampled_from([64, 64, 64, 10, 1]))  # rarely the end of a chain
    return given | STRATEGIES[strategy].fixed


def cases(strategy):
    return st.builds(
        Case,
        strategy=st.just(strategy),
        parameters=parameters(strategy),
        words=st.sampled_from(list(WORDS)),
        end=st.sampled_from([0.25, 0.1, 0.6, 0.0]),
        score_steps=st.sampled_from([5, 1, 2, 10**6]),
        problems=st.integers(1, 4),
        context=st.sampled_from([320, 320, 320, 64]),
        dialogue=st.sampled_from([320, 320, 320, 40]),
        policy=policies,
        generator=faults,
        verifier=faults,
        seed=st.integers(0, 10**9),
    )


class World:
    """What a case's engines answer: for the driver by request, for a plain client by path."""

    def __init__(self, models, case):
        limits = {"generator": case.context, "verifier": case.dialogue}
        deployment = models.deployment.model_copy(
            update={
                role: getattr(models.deployment, role).model_copy(update={"max_seq_len": limit})
                for role, limit in limits.items()
            }
        )
        self.models = dataclasses.replace(models, deployment=deployment)
        self.case = case
        self.config = STRATEGIES[case.strategy].configure(case.parameters, context=case.context)
        self.problems = [
            Problem(f"p{index}", f"Compute {index} + 1.", "1") for index in range(case.problems)
        ]
        encode = models.generator.encode
        words = [encode(word) for word in WORDS[case.words]]
        self.generator = ScriptedGenerator(words, encode("\n\n"), end=case.end)
        self.verifier = ScriptedVerifier(case.score_steps)

    def seed(self, problem):
        return functools.partial(node_seed, self.case.seed, problem.id)

    @functools.cached_property
    def expected(self):
        """Each problem's search, asked and answered by a plain client: one thing at a time."""
        return {problem.id: _Plain(self, problem) for problem in self.problems}

    @property
    def calls_expected(self):
        """How often the plain client asked each engine."""
        calls = [type(work) for plain in self.expected.values() for work in plain.asked]
        return {"generator": calls.count(Expand), "verifier": calls.count(Score)}


class _Plain:
    """One problem's search, asked and answered without a driver."""

    def __init__(self, world, problem):
        context, seed = Context.of(world.models, problem), world.seed(problem)
        engines = world.generator, world.verifier
        write, judge = on_endpoints(world.config, seed, context, engines)
        self.search, self.asked = new_search(world.config, seed), []
        waiting = []
        while not self.search.done:
            waiting += self.search.ask()
            self.asked.append(work := waiting.pop(0))
            if isinstance(work, Expand):
                thoughts = at_once(write(work.node, work.whole))
                self.search.tell(Generated(work.node, tuple(thoughts)))
            else:
                self.search.tell(Scored(work.node, at_once(judge(work.node))))


def at_once(coroutine):
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


class Session:
    """One run of a case on its engines, until it ends or an engine is lost for good."""

    def __init__(self, world, schedule, *, generator=None, verifier=None, saved=None):
        self.world, self.case, self.schedule = world, world.case, schedule
        self.generator = FaultyEngine(generator or self.case.generator)
        self.verifier = FaultyEngine(verifier or self.case.verifier)
        self.saved = saved
        self.events, self.submitted, self.begun, self.searches = [], {}, {}, {}
        self.lost = None
        run_virtual(self._run())

    async def _run(self):
        solved = self.saved.solved if self.saved else {}
        left = [problem for problem in self.world.problems if problem.id not in solved]
        driver = Driver(
            self.world.models,
            FaultyGenerator(self.world.generator, self.generator),
            FaultyVerifier(self.world.verifier, self.verifier),
            dataclasses.replace(self.case.policy, schedule=self.schedule),
            record=self._record,
            clock=asyncio.get_running_loop().time,
        )
        try:
            async with driver, asyncio.TaskGroup() as graders:
                for problem in left:
                    graders.create_task(self._solved(self._submit(driver, problem)))
        except BaseExceptionGroup as errors:
            lost, others = errors.split(EndpointUnavailable)
            if others:
                raise others from None
            self.lost = lost.exceptions[0]
        assert driver.in_flight == (0, 0)
        assert self.generator.in_flight == self.verifier.in_flight == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something was left behind"

    def _submit(self, driver, problem):
        begun = self.saved and self.saved.unfinished.get(problem.id)
        resumed = resumed_work(begun) if begun else None
        new_search = functools.partial(self._new_search, problem)
        submission = driver.submit(problem, new_search, resumed=resumed)
        self.submitted[problem.id] = submission
        return submission

    def _new_search(self, problem):
        running = sum(not self.submitted[name].done for name in self.begun)
        assert running < (self.case.policy.problems or len(self.world.problems))
        self.begun[problem.id] = new_search(self.world.config, self.world.seed(problem))
        return self.begun[problem.id]

    def _record(self, record):
        event = event_of(record)
        engine = {events.StepGenerated: self.generator, events.StepScored: self.verifier}.get(
            type(event)
        )
        cached = isinstance(event, events.StepScored) and event.cached
        if engine and not cached and engine.faults.cancelling != "never":
            assert not self.begun[event.problem].done, "not cancelled when its search ended"
        self.events.append(event)

    def events_of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    async def _solved(self, submission):
        await submission
        self.searches[submission.problem.id] = submission.search
        self.events.append(
            events.ProblemSolved(
                **{"t": 0.0, "problem": submission.problem.id, "tree_digest": "", "groups": ()},
                **{"answers": {}, "correct": None, "any_correct": None},
            )
        )

    def save(self, *, most=None):
        """What the log holds after a session, read as a resumed run reads it."""
        with tempfile.TemporaryDirectory() as folder:
            chain = ChecksumChain()
            lines = [chain.seal(events.encode(event)) for event in self.events[:most]]
            Path(folder, EVENTS).write_bytes(b"".join(lines))
            return read_resume_point(Path(folder), "best")


def check(session):
    """The session ended well, and its trees are those of the plain client."""
    assert session.lost is None
    check_searches(session.world, session.searches)
    if session.case.policy.speculation == "off":
        assert not session.events_of(events.Used)
        for event in session.events_of(events.StepGenerated):
            assert event.kind != "speculative"
            asked = session.world.expected[event.problem].asked
            assert any(isinstance(work, Expand) and work.node == event.node for work in asked)


def check_searches(world, searches):
    """Trees, scores and completions are those of the plain client."""
    for name, search in searches.items():
        expected = world.expected[name].search
        assert search.tree.digest() == expected.tree.digest()
        for theirs in expected.tree:
            scores = search.tree[theirs.path].score, theirs.score
            if theirs.fate is Fate.PRUNED and None in scores:
                continue  # pruned before its score was needed
            assert scores[0] == scores[1], theirs.path
        assert search.result().completions == expected.result().completions


def known(session):
    """Keys of the answers that arrived: of the generator, without prompts alone; of the verifier.

    A prompt is computed with seed 0, which no node has here.
    """
    generated = {key for key in session.generator.answered if key[1] != 0}
    return generated, set(session.verifier.answered)
