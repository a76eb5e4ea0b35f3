"""What the reference strategies have in common: parameters, calls, and a tree that grows."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context
from typing import Protocol

from tts.search.thought import Fate, NodePath, Stop, Thought, quantise


@dataclass(frozen=True)
class Params:
    """The parameters of all strategies; each reads its own."""

    n: int = 4
    temperature: float = 0.8
    top_p: float = 1.0
    max_tokens: int = 64
    agg_strategy: str = "last"
    scored: bool = True
    num_iterations: int = 40
    finish: str = "depth"
    beam_width: int = 2
    filter_duplicates: bool = False
    sort_completed: bool = False
    softmax_temperature: float = 0.2
    weight_temperature: float = 1.0
    ess_threshold: float = 0.5
    width: int = 16
    exploration: float = 0.2
    parallel: int = 4
    batch: int = 4
    threshold: float = 0.95


class World(Protocol):
    """What the engines and the grader would say."""

    def generate(
        self, path: NodePath, seed: int, temperature: float, whole: bool
    ) -> tuple[Thought, ...]:
        """The thought at `path`; with `whole` the rest of the chain from there, one per step."""

    def score(self, path: NodePath) -> float:
        """The verifier's score of the last step of `path`."""

    def answer_form(self, text: str) -> tuple[str, bool] | None:
        """Normal form of the answer in `text`, and whether it differs from every other exact one.

        None without an answer.
        """


Seed = Callable[[NodePath], int]


@dataclass(frozen=True)
class GenerateCall:
    path: NodePath
    seed: int
    temperature: float
    top_p: float
    max_tokens: int
    whole: bool

    def __post_init__(self) -> None:
        # A greedy request leaves top_p without a meaning: any two of them are the same request.
        if self.temperature == 0:
            object.__setattr__(self, "top_p", 1.0)


@dataclass(frozen=True)
class ScoreCall:
    path: NodePath


Call = GenerateCall | ScoreCall


@dataclass
class Node:
    thought: Thought
    score: float | None = None
    fate: str = Fate.OPEN


@dataclass(frozen=True)
class Completion:
    path: NodePath
    text: str
    score: float | None


def twelve_digits(value: float) -> float:
    return float(Context(prec=12).create_decimal_from_float(value))


@dataclass
class Outcome:
    """The tree, the completions in rank order, and every call in the order it was made."""

    nodes: dict[NodePath, Node]
    completions: list[Completion]
    calls: list[Call]


@dataclass
class Run:
    """The tree of one search while it grows, and what the strategies have in common."""

    params: Params
    seed: Seed
    world: World
    nodes: dict[NodePath, Node] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def generate(self, path: NodePath, temperature: float, whole: bool) -> list[NodePath]:
        """One request; the paths of the steps that it gave."""
        params, seed = self.params, self.seed(path)
        self.calls.append(
            GenerateCall(path, seed, temperature, params.top_p, params.max_tokens, whole)
        )
        steps = []
        for thought in self.world.generate(path, seed, temperature, whole):
            self.nodes[path] = Node(thought)
            steps.append(path)
            path = (*path, 0)
        return steps

    def score(self, path: NodePath) -> float:
        self.calls.append(ScoreCall(path))
        return quantise(self.world.score(path))

    def chain(self, path: NodePath) -> list[Node]:
        return [self.nodes[path[:depth]] for depth in range(1, len(path) + 1)]

    def text(self, path: NodePath) -> str:
        return "".join(node.thought.text for node in self.chain(path))

    def path_score(self, path: NodePath) -> float:
        chain = self.chain(path)
        if self.params.agg_strategy == "last":
            return [node.score for node in chain if node.score is not None][-1]
        # One score for everything different that the chain said on its way: the first.
        said: tuple[str, ...] = ()
        score_of: dict[tuple[str, ...], float] = {}
        for node in chain:
            if node.thought.text.strip():
                said = (*said, node.thought.text)
            if node.score is not None:
                score_of.setdefault(said, node.score)
        if len(score_of) > 1:
            score_of.pop((), None)
        scores = list(score_of.values())
        if self.params.agg_strategy == "min":
            return sorted(scores)[0]
        if self.params.agg_strategy == "mean":
            return twelve_digits(math.fsum(scores) / len(scores))
        product = 1.0
        for score in scores:
            product *= score
        return twelve_digits(product)

    def ranked(self, paths: list[NodePath]) -> list[NodePath]:
        """Best path score first, then best score of the last step, then smallest path."""
        by_path = sorted(paths)
        by_last = sorted(by_path, key=lambda path: self.nodes[path].score, reverse=True)
        return sorted(by_last, key=self.path_score, reverse=True)

    def ended(self, path: NodePath) -> bool:
        thought = self.nodes[path].thought
        return thought.stop in (Stop.END, Stop.LENGTH) or thought.text.strip() == ""

    def set_fates(self, paths: list[NodePath], fate: str) -> None:
        for path in paths:
            self.nodes[path].fate = fate

    def grow_whole(self, first: NodePath, scored: bool) -> NodePath:
        """The rest of a chain in one request; its last step."""
        steps = self.generate(first, self.params.temperature, whole=True)
        self.set_fates(steps[:-1], Fate.EXPANDED)
        if scored:
            for step in steps if self.params.agg_strategy != "last" else steps[-1:]:
                self.nodes[step].score = self.score(step)
        return steps[-1]

    def grow_candidate(self, first: NodePath, iteration: int) -> NodePath:
        """A candidate of a tree strategy, scored; its last step."""
        params = self.params
        last_iteration = iteration == params.num_iterations
        if last_iteration and params.finish == "eos":
            return self.grow_whole(first, scored=True)

        self.generate(first, params.temperature, whole=False)
        self.nodes[first].score = self.score(first)
        return first

    def grow(self, firsts: list[NodePath], iteration: int) -> list[NodePath]:
        return [self.grow_candidate(first, iteration) for first in firsts]

    def first_and_second(self, completed: list[NodePath], scored: bool) -> tuple[float, float]:
        """The weights of the leading answer and of its rivals."""
        weights: dict[tuple[str, bool], float] = {}
        for path in completed:
            form = self.world.answer_form(self.text(path))
            if form is not None:
                weight = self.path_score(path) if scored else 1.0
                weights[form] = weights.get(form, 0.0) + weight
        if not weights:
            return 0.0, 0.0
        leader = max(weights, key=lambda form: weights[form])
        others = [form for form in weights if form != leader]
        # Two exact forms never count as one answer; any other form could be the same as any.
        rivals = max([weights[form] for form in others if form[1]], default=0.0)
        rivals += sum(weights[form] for form in others if not form[1])
        return weights[leader], rivals

    def outcome(self, completed: list[NodePath], scored: bool = True) -> Outcome:
        """The end of the search: `completed` are what comes out, in any order."""
        self.set_fates(completed, Fate.COMPLETED)
        completions = []
        for path in self.ranked(completed) if scored else sorted(completed):
            score = self.path_score(path) if scored else None
            completions.append(Completion(path, self.text(path), score))
        return Outcome(self.nodes, completions, self.calls)
