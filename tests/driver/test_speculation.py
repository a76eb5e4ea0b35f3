"""What is sent ahead: some of it, within the budget, and only what may still be wanted."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.driver.scripted_run import PROBLEMS, Hooked, Run

from tts.driver import Submission
from tts.driver.problem_run import ProblemRun
from tts.driver.speculation import Trust
from tts.prompting import Context, Models
from tts.runs import events
from tts.scheduling import Job, WorkKind
from tts.scheduling.load_curve import LoadCurve
from tts.search import (
    BeamSearchConfig,
    DvtsConfig,
    Expand,
    Guess,
    Hints,
    ResumedWork,
    Sampling,
    Stop,
    Thought,
)

CONFIGS = [
    BeamSearchConfig(n=8, beam_width=4, num_iterations=5),
    BeamSearchConfig(n=4, beam_width=2, num_iterations=6, agg_strategy="prod"),
    DvtsConfig(n=6, beam_width=2, num_iterations=4),
]
THOUGHT = (Thought((1,), "a", Stop.STEP),)


def speculative(run):
    return [event for event in run.events_of(events.StepGenerated) if event.kind == "speculative"]


@pytest.mark.parametrize("schedule", ["alternating", "decoupled"])
@pytest.mark.parametrize("config", CONFIGS)
def test_guesses_are_sent_and_some_are_used(tiny_deployment, words, config, schedule):
    policy = {"jitter": 2, "speculation": "always", "generator_requests": 24}
    policy["verifier_limit"] = 100  # so little that a turn leaves scores for the next one
    run = Run(tiny_deployment, words, config, schedule, **policy).go()
    used = {(event.problem, event.node) for event in run.events_of(events.Used)}
    assert used
    sent = {(event.problem, event.node) for event in speculative(run)}
    lost = [e for e in run.events_of(events.Cancelled) if e.kind == "speculative"]
    assert used & sent or lost
    for problem, node in used:
        assert node in run.searches[problem].tree, "used, but not in the tree"
    if (config, schedule) == (CONFIGS[0], "decoupled"):
        assert "pruned" in {event.why for event in lost}


@settings(
    max_examples=amount(5, 20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(jitter=st.integers(0, 10**6), requests=st.sampled_from([1, 3, 8]))
def test_guesses_stay_within_the_budget(tiny_deployment, words, jitter, requests):
    policy = {"jitter": jitter, "speculation": "always", "generator_requests": requests}
    run = Run(tiny_deployment, words, CONFIGS[0], "decoupled", **policy)
    loads = [0]

    async def count(call, answer):
        loads.append(loads[-1] + 1)
        try:
            return await answer(call)
        finally:
            loads.append(loads[-1] - 1)

    run.generator = Hooked(run.generator, count)
    run.go()
    assert max(loads) == requests
    assert all(event.in_flight[0] <= requests for event in speculative(run))


@pytest.mark.parametrize("speculation", ["always", "auto"])
def test_auto_stops_when_guesses_do_not_pay_and_always_does_not(
    tiny_deployment, words, monkeypatch, speculation
):
    monkeypatch.setattr(LoadCurve, "share", lambda curve, load: 0.01)  # slots cost little
    monkeypatch.setattr(Trust, "factor", property(lambda trust: 0.01))
    policy = {"jitter": 2, "speculation": speculation, "generator_requests": 24}
    run = Run(tiny_deployment, words, CONFIGS[0], "decoupled", **policy).go()
    assert bool(speculative(run)) == (speculation == "always")
    monkeypatch.setattr(Trust, "factor", property(lambda trust: 1.0))
    assert speculative(Run(tiny_deployment, words, CONFIGS[0], "decoupled", **policy).go())


class _Guesses(Hints):
    """A search that guesses these nodes, and can expand those."""

    def __init__(self, nodes=(), expandable=()):
        self.nodes, self.able = nodes, expandable
        self.hints, self.done = self, False

    def guess(self, answered):
        for node in self.nodes:
            if node not in answered:
                yield Guess(Expand(node, 1, Sampling(0.8, 1.0, 10)), 1, 0.5)

    def expandable(self):
        return self.able

    def tell(self, result):
        pass

    def ask(self):
        return []


class _Lone:
    """The run of one problem, with what it has promoted, cancelled and recorded."""

    def __init__(self, models, search, thoughts=None, trust=None):
        self.promoted, self.cancelled = [], []
        self.trust = trust or Trust()
        scheduler = SimpleNamespace(
            spare_slots=SimpleNamespace(promote=self.promoted.append),
            policy=SimpleNamespace(prefetch=False),
        )
        dispatcher = SimpleNamespace(
            record=lambda record: None,
            clock=lambda: 0.0,
            cancel=lambda job, why: self.cancelled.append(job),
        )
        resumed = ResumedWork(thoughts=thoughts or {})
        self.run = ProblemRun(
            Submission(0, PROBLEMS[0], None, 0, resumed, None, None),
            Context.of(models, PROBLEMS[0]),
            search,
            scheduler,
            dispatcher,
            self.trust,
        )
        self.speculation = self.run.speculation

    def jobs(self):
        return list(self.speculation.guesses())

    def guessed(self):
        return [job.work.node for job in self.jobs()]

    def ask(self, node):
        """Its search asks for a node that was sent ahead."""
        self.run._advance([Expand(node, 1, Sampling(0.8, 1.0, 10))], WorkKind.MAIN)

    def decide(self, chance, outcomes):
        """Guesses of which a search says the chance, each asked for or not."""
        for number, used in enumerate(outcomes):
            job = job_of((number, 0), chance * self.trust.factor)
            self.speculation.add(job)
            if used:
                self.ask((number, 0))
                assert self.promoted.pop() is job
            else:
                self.run._advance([], WorkKind.MAIN)
                assert self.cancelled.pop() is job


@pytest.fixture(scope="module")
def models(tiny_deployment):
    return Models.load(tiny_deployment)


@pytest.mark.parametrize(("room", "guessed"), [(0, False), (1, True)])
def test_a_guess_needs_room_for_one_token_below_its_parent(tiny_deployment, models, room, guessed):
    prompt = len(Context.of(models, PROBLEMS[0]).generator_ids(()))
    generator = tiny_deployment.generator.model_copy(
        update={"max_seq_len": prompt + len(THOUGHT[0].token_ids) + room}
    )
    tight = Models.load(tiny_deployment.model_copy(update={"generator": generator}))
    lone = _Lone(tight, _Guesses([(0, 0)]), {(0,): THOUGHT})
    assert [job.tokens for job in lone.jobs()] == [prompt + 1] * guessed


def test_a_guess_continues_every_thought_above_it(models):
    """None of which the search has asked for yet: a run that is resumed knows them."""
    thoughts = {(0,) * depth: (Thought((depth,), "a", Stop.STEP),) for depth in (1, 2, 3)}
    lone = _Lone(models, _Guesses([(0, 0, 0, 0)]), thoughts)
    (job,) = lone.jobs()
    prompt = Context.of(models, PROBLEMS[0]).generator_ids(()).tolist()
    assert lone.run.context.generator_ids((0, 0, 0)).tolist() == [*prompt, 1, 2, 3]
    assert job.tokens == len(prompt) + 3


def job_of(node, chance=1.0):
    work = Expand(node, 1, Sampling(0.8, 1.0, 10))
    return Job(0, work, 5, WorkKind.SPECULATIVE, chance=chance)


def test_what_is_in_flight_or_answered_is_not_guessed_again(models):
    search = _Guesses([(0, 0), (0, 1), (1, 0)], expandable={(0,), (1,)})
    lone = _Lone(models, search, {(0,): THOUGHT, (1,): THOUGHT, (1, 0): THOUGHT})
    assert lone.guessed() == [(0, 0), (0, 1)]
    flying = job_of((0, 0))
    lone.speculation.add(flying)
    assert lone.guessed() == [(0, 1)]
    lone.run.take_in(flying, THOUGHT)
    assert lone.guessed() == [(0, 1)]
    lone.ask((0,))
    lone.ask((0, 0))
    assert lone.promoted == lone.cancelled == [], "its answer was told"
    assert lone.trust._asked_for == 2


@settings(max_examples=amount(25, 100), deadline=None)
@given(chance=st.floats(0.05, 1), outcomes=st.lists(st.booleans(), max_size=60))
def test_trust_is_what_was_asked_for_over_what_was_expected(models, chance, outcomes):
    lone = _Lone(models, _Guesses())
    lone.decide(chance, outcomes)
    expected = (1 + sum(outcomes)) / (1 + chance * len(outcomes))
    assert lone.trust.factor == pytest.approx(min(1.0, expected))


def test_what_one_problem_shows_the_next_one_of_the_same_search_knows(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIGS[0], "decoupled", speculation="always").go()
    ((kind, trust),) = run.driver._trust.items()
    assert {kind} == {type(search) for search in run.searches.values()}
    assert trust._expected > 1


@settings(max_examples=amount(50, 200), deadline=None)
@given(seed=st.integers(0, 10**9))
def test_every_guess_is_used_lost_or_given_up_once(models, seed):
    rng = random.Random(seed)
    search = _Guesses(expandable={(0,), (1,), (2,)})
    lone = _Lone(models, search, {(root,): THOUGHT for root in range(3)})
    for root in range(3):
        lone.ask((root,))
    jobs, answered, ends = {}, set(), Counter()
    for number in range(30):
        node = (number % 3, number)
        jobs[node] = job_of(node)
        lone.speculation.add(jobs[node])
        if rng.random() < 0.5:
            lone.run.take_in(jobs[node], THOUGHT)
            answered.add(node)
        draw = rng.random()
        if draw < 0.3:
            lone.ask(node)
            assert lone.promoted == ([] if node in answered else [jobs[node]])
            lone.promoted.clear()
            ends[node] += 1
        elif draw < 0.4 and node not in answered:
            lone.speculation.give_up(jobs[node])
            ends[node] += 1
    search.able = {(0,)}
    left = {node for node in jobs if not ends[node]}
    lone.run._advance([], WorkKind.MAIN)
    lost = {node for node in left - answered if node[0] != 0}
    assert {job.work.node for job in lone.cancelled} == lost
    assert set(lone.speculation.ahead) == {node for node in left if node[0] == 0}
    assert {node for node in lone.run._answers if len(node) == 2} == {
        node for node in left & answered if node[0] == 0
    }
