"""Random worlds and parameters for the searches: what engines might say, edges first."""

import random
from dataclasses import dataclass

from hypothesis import strategies as st
from tests.search.reference_run import Params

from tts.search.thought import NodePath, Stop, Thought

PLAIN = ["so ", "so ", "thus ", "then "]
BLANK = [" ", "\n\n", ""]
ANSWERS = {"5": True, "7": True, "11": True, "\\frac{1}{2}": False, "x": False}
"""Answer: whether its form is exact."""
BOXES = [f"\\boxed{{{answer}}}" for answer in ANSWERS]
# An answer that is spread over two steps, and one that is never finished.
PIECES = ["\\box", "ed{5}", "\\boxed{"]

SCORES = {
    "saturated": [0.0, 1.0, 1.0, 1.0, 0.99999, 0.00001],
    "tied": [0.0, 0.5, 0.5, 0.5, 0.50001, 0.49999, 1.0],
    "sure": [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    "near": [0.5, 0.50001, 0.5001, 0.50005, 0.4999],
    "spread": [],
}
"""What the scores of a world are drawn from; from all of [0, 1] if empty."""

TAIL = 5
"""Steps of a whole rest of a chain at most; a token limit ends it there."""


@dataclass(frozen=True)
class RandomWorld:
    """Answers that depend on the seed of the world and the path alone."""

    seed: int
    scores: str
    ends: float
    """Share of the steps that end their chain."""
    blanks: float
    """Share of the steps that are only white space."""
    boxes: float
    """Share of the steps that hold an answer or a piece of one."""
    agreement: float
    """Share of these that are the same answer."""

    def rng(self, kind: str, path: NodePath) -> random.Random:
        return random.Random(f"{self.seed}/{kind}/{path}")

    def thought(self, path: NodePath) -> Thought:
        rng = self.rng("thought", path)
        if rng.random() < self.blanks:
            text = rng.choice(BLANK)
        elif rng.random() < self.boxes:
            same = rng.random() < self.agreement
            text = BOXES[self.seed % len(BOXES)] if same else rng.choice(BOXES + PIECES)
        else:
            text = rng.choice(PLAIN)
        token_ids = tuple(rng.randrange(5) for _ in range(rng.randrange(4)))
        stop = Stop.STEP
        if rng.random() < self.ends:
            stop = rng.choice([Stop.END, Stop.END, Stop.LENGTH])
        return Thought(token_ids, text, stop)

    def generate(
        self, path: NodePath, seed: int, temperature: float, whole: bool
    ) -> tuple[Thought, ...]:
        thoughts = [self.thought(path)]
        while whole and thoughts[-1].stop is Stop.STEP:
            path = (*path, 0)
            thought = self.thought(path)
            if len(thoughts) == TAIL - 1 and thought.stop is Stop.STEP:
                thought = Thought(thought.token_ids, thought.text, Stop.LENGTH)
            thoughts.append(thought)
        return tuple(thoughts)

    def score(self, path: NodePath) -> float:
        rng = self.rng("score", path)
        return rng.choice(SCORES[self.scores]) if SCORES[self.scores] else rng.random()

    def answer_form(self, text: str) -> tuple[str, bool] | None:
        _, found, rest = text.rpartition("\\boxed{")
        for answer, exact in ANSWERS.items():
            if found and rest.startswith(answer + "}"):
                return answer, exact
        return None


def worlds() -> st.SearchStrategy[RandomWorld]:
    return st.builds(
        RandomWorld,
        seed=st.integers(0, 2**32 - 1),
        scores=st.sampled_from(sorted(SCORES)),
        ends=st.sampled_from([0.3, 0.1, 0.6, 0.0]),
        blanks=st.sampled_from([0.1, 0.0]),
        boxes=st.sampled_from([0.1, 0.9, 0.1, 0.4]),
        agreement=st.sampled_from([0.95, 0.5, 0.0]),
    )


def agreeing_worlds() -> st.SearchStrategy[RandomWorld]:
    """Worlds in which most chains end soon, with the same answer."""
    return st.builds(
        RandomWorld,
        seed=st.integers(0, 2**32 - 1),
        scores=st.just("sure"),
        ends=st.sampled_from([0.6, 0.4]),
        blanks=st.just(0.0),
        boxes=st.just(0.95),
        agreement=st.sampled_from([0.95, 0.7]),
    )


STRATEGIES = [
    "sample",
    "adaptive_vote",
    "beam_search",
    "dvts",
    "rebase",
    "particle_filtering",
    "mcts",
]


@st.composite
def params(draw: st.DrawFn, strategy: str) -> Params:
    """Parameters of one strategy; those of the others are left as they are."""
    n = draw(st.sampled_from([8, 6, 4, 3, 2, 1]))
    drawn = {
        "n": n,
        "temperature": draw(st.sampled_from([0.0, 0.8])),
        "top_p": draw(st.sampled_from([0.9, 1.0])),
        "max_tokens": draw(st.sampled_from([1, 64])),
        "agg_strategy": draw(st.sampled_from(["last", "min", "prod", "mean"])),
    }
    if strategy in ("sample", "adaptive_vote"):
        drawn["scored"] = draw(st.booleans())
    else:
        drawn["num_iterations"] = draw(st.sampled_from([4, 3, 2, 1, 6]))
        drawn["finish"] = draw(st.sampled_from(["eos", "depth"]))
    if strategy in ("beam_search", "dvts"):
        drawn["beam_width"] = draw(st.sampled_from([m for m in (2, 4, 3, 1, 6, 8) if n % m == 0]))
    if strategy == "beam_search":
        drawn["filter_duplicates"] = draw(st.booleans())
        drawn["sort_completed"] = draw(st.booleans())
    if strategy == "rebase":
        drawn["softmax_temperature"] = draw(st.sampled_from([0.001, 0.2, 1.0, 100.0]))
    if strategy == "mcts":
        drawn["width"] = draw(st.sampled_from([2, 1, 3]))
        drawn["exploration"] = draw(st.sampled_from([1.0, 0.0, 0.3, 5.0]))
    if strategy == "adaptive_vote":
        drawn["batch"] = draw(st.sampled_from([2, 1, 3, 10]))
        drawn["threshold"] = draw(st.sampled_from([0.95, 0.5, 0.75, 0.8125, 1.0]))
    if strategy == "mcts":
        drawn["parallel"] = draw(st.sampled_from([2, 1, 3, 10]))
    if strategy == "particle_filtering":
        drawn["weight_temperature"] = draw(st.sampled_from([0.05, 1.0, 5.0]))
        drawn["ess_threshold"] = draw(st.sampled_from([0.25, 0.5, 0.9, 1.0]))
    return Params(**drawn)


@st.composite
def cases(draw: st.DrawFn, strategy: str) -> tuple[Params, RandomWorld]:
    drawn = draw(params(strategy))
    likely = st.one_of(agreeing_worlds(), worlds()) if strategy == "adaptive_vote" else worlds()
    return drawn, draw(likely)
