"""search-and-learn's rules once more, on lists as in its code, beside those of our searches."""

import math
import random
from dataclasses import dataclass, field

import pytest
from examples.search_and_learn import BeamSearchConfig, DvtsConfig, SalConfig, extract_answer
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.amounts import amount

from tts.search import Fate, Generated, Score, Scored, Stop, Thought, node_seed
from tts.strategies.catalog import new_search

DELIMITER = "\n\n"


class Engines:
    """What both engines say: the step of a node, and the score of a list of pieces."""

    def __init__(self, world):
        self.world = world

    def step(self, path):
        rng = random.Random(f"{self.world}/step/{path}")
        stop = rng.choices([Stop.STEP, Stop.END, Stop.LENGTH], [6, 2, 1])[0]
        text = rng.choice(["a", "b", "c", r"\boxed{5}", ""])
        if stop is Stop.STEP:
            text = (text or "d") + DELIMITER
        return Thought((len(text),), text, stop)

    def whole(self, path):
        steps = [self.step(path)]
        while steps[-1].stop is Stop.STEP:
            path = (*path, 0)
            steps.append(self.step(path) if len(steps) < 5 else Thought((), "", Stop.END))
        return steps

    def score(self, pieces):
        rng = random.Random(f"{self.world}/score/{pieces}")
        return rng.choice([0.1, 0.4, 0.4, 0.5, 0.9])


@dataclass
class Beam:
    path: tuple = ()
    text: str = ""
    scores: list = field(default_factory=list)


class Theirs:
    """Their rules. A beam's path is kept only to ask for the same step as the search does."""

    def __init__(self, config, world):
        self.config, self.engines = config, Engines(world)

    def all_scores(self, text):
        pieces = text.split(DELIMITER)
        if self.config.strip and len(pieces) > 1:
            pieces = pieces if pieces[-1] else pieces[:-1]
        return [self.engines.score(tuple(pieces[: i + 1])) for i in range(len(pieces))]

    def aggregate(self, scores):
        how = self.config.agg_strategy
        return scores[-1] if how == "last" else min(scores) if how == "min" else math.prod(scores)

    def extend(self, beam, child, last):
        path = (*beam.path, child)
        steps = self.engines.whole(path) if last else [self.engines.step(path)]
        text = beam.text + "".join(step.text for step in steps)
        end = path + (0,) * (len(steps) - 1)
        stop, said = steps[-1].stop, "".join(step.text for step in steps)
        return Beam(end, text, self.all_scores(text)), stop is not Stop.STEP or said == ""

    def beam_search(self):
        n, width = self.config.n, self.config.beam_width
        active, completed = [Beam() for _ in range(n)], []
        for iteration in range(self.config.num_iterations):
            repeated = (active * (n // len(active) + 1))[:n]
            children = {}
            grown, last = [], iteration == self.config.num_iterations - 1
            for beam in repeated:
                child = children[beam.path] = children.get(beam.path, -1) + 1
                grown.append(self.extend(beam, child, last))
            completed += [beam for beam, ended in grown if ended or last]
            active = [beam for beam, ended in grown if not (ended or last)]
            if not active:
                break
            if self.config.filter_duplicates:
                unique = {}
                for beam in active:
                    unique.setdefault(beam.text, beam)
                active = list(unique.values())
            by_score = sorted(range(len(active)), key=lambda i: self.aggregate(active[i].scores))
            kept = by_score[-(n // width) :]
            active = [beam for place, beam in enumerate(active) if place in kept]
        if self.config.sort_completed:
            completed.sort(key=lambda beam: self.aggregate(beam.scores), reverse=True)
        return completed[:n]

    def dvts(self):
        width, output = self.config.beam_width, []
        for subtree in range(self.config.n // width):
            beam, first = Beam(), subtree * width
            for iteration in range(self.config.num_iterations):
                last = iteration == self.config.num_iterations - 1
                grown = [self.extend(beam, first + child, last) for child in range(width)]
                scores = [self.aggregate(grown_beam.scores) for grown_beam, _ in grown]
                beam, ended = grown[scores.index(max(scores))]
                first = 0
                if ended or "boxed{" in beam.text:
                    break
            output += [grown_beam for grown_beam, _ in grown]
        return output

    def best_of_n(self):
        return [self.extend(Beam(), chain, last=True)[0] for chain in range(self.config.n)]


def run(config, world, order=None):
    """The search, answered by the same engines; in any order it hears results again, too."""
    engines = Engines(world)
    search = new_search(config, lambda node: node_seed(7, "p", node))
    pending, told = [], []
    while not search.done:
        pending += search.ask()
        work = pending.pop(order.randrange(len(pending)) if order else 0)
        for result in told[-3:] if order else ():
            search.tell(result)
        if isinstance(work, Score):
            path = work.node[:-1] if work.node[-1] < 0 else work.node
            texts = [node.thought.text for node in search.tree.chain(path)]
            texts += [""] if path != work.node else []
            pieces = [text.removesuffix(DELIMITER) for text in texts]
            if not pieces[-1] and len(pieces) > 1 and not work.own_turn:
                pieces.pop()  # a step without text adds nothing
            told.append(Scored(work.node, engines.score(tuple(pieces))))
        else:
            steps = engines.whole(work.node) if work.whole else [engines.step(work.node)]
            told.append(Generated(work.node, tuple(steps)))
        search.tell(told[-1])
    return search


common = {
    "strip": st.booleans(),
    "num_iterations": st.integers(1, 5),
    "agg_strategy": st.sampled_from(["last", "last", "min", "prod"]),
}
beams = st.integers(1, 9).flatmap(
    lambda n: st.builds(
        BeamSearchConfig,
        n=st.just(n),
        beam_width=st.integers(1, n),
        filter_duplicates=st.booleans(),
        sort_completed=st.booleans(),
        **common,
    )
)
subtrees = st.integers(1, 4).flatmap(
    lambda width: st.builds(
        DvtsConfig,
        n=st.integers(1, 3).map(lambda keep: keep * width),
        beam_width=st.just(width),
        **common,
    )
)
chains = st.builds(
    SalConfig, strip=st.booleans(), n=st.integers(1, 6), agg_strategy=common["agg_strategy"]
)


def their_completions(config, world):
    theirs = Theirs(config, world)
    if isinstance(config, BeamSearchConfig):
        return theirs.beam_search()
    return theirs.dvts() if isinstance(config, DvtsConfig) else theirs.best_of_n()


@settings(max_examples=amount(100, 1500), deadline=None)
@given(st.one_of(beams, subtrees, chains), st.integers(0, 10**6), st.integers(0, 10**6))
def test_completions_their_order_and_their_weights_are_search_and_learns(config, world, shuffle):
    """In any order of events; a completion weighs its last score, whatever chose the beams."""
    search, plain = run(config, world, random.Random(shuffle)), run(config, world)
    ours = [(done.node, done.text, done.score) for done in search.result().completions]
    assert ours == [
        (beam.path, beam.text, pytest.approx(beam.scores[-1]))
        for beam in their_completions(config, world)
    ]
    assert search.tree.digest() == plain.tree.digest()
    assert search.result().completions == plain.result().completions
    assert not any(node.fate is Fate.OPEN for node in search.tree)


def test_what_search_and_learn_does_not_have_is_refused():
    for kind, parameters, complaint in (
        (BeamSearchConfig, {"agg_strategy": "mean"}, "agg_strategy"),
        (BeamSearchConfig, {"beam_width": 17}, "beam_width"),
        (DvtsConfig, {"n": 7, "beam_width": 4}, "multiple"),
    ):
        with pytest.raises(ValidationError, match=complaint):
            kind(**parameters)
    assert BeamSearchConfig(n=7, beam_width=4).n == 7, "beam search takes any n"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Therefore, the final answer is: $\\boxed{8}$. I hope it is correct.", "8"),
        ("the final answer is $12$. I hope it is correct", "12"),
        ("first \\boxed{3}, the answer is 4", "3"),
        ("So the answer is 42.", "42"),
        ("final answer is x + 1", "x + 1"),
        ("2 apples and 3,500 pears", "3500"),
        ("it falls by -0.5", "-0.5"),
        ("no number at all", None),
        ("an empty \\boxed{}", None),
    ],
)
def test_a_text_without_a_box_has_an_answer_too(text, answer):
    assert extract_answer(text) == answer
