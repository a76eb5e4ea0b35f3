"""Hugging Face search-and-learn's searches, rule for rule, as strategies of one's own.

    tts bench demo --strategy examples/search_and_learn.py:BEAM_SEARCH --n 16
    tts bench demo --strategy examples/search_and_learn.py:DVTS --n 16 --set strip=true

https://github.com/huggingface/search-and-learn: `_beam_search`, `_dvts`, `best_of_n`,
`aggregate_scores`, and `extract_answer` of qwen_math_parser.py. Beams are a list whose order
matters: completions come out in that order, the kept beams are repeated in it, and of equal scores
beam search keeps the last and DVTS the first.

Its verifier splits a text at the delimiter, so a step that ends in it leaves an empty last piece,
which is scored as a turn of its own: the child -1 of the step. With `strip` it is left out.

Each search is a generator that yields the work of a phase, and goes on once all of it is answered.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from tts.grading import boxed_answer
from tts.search import (
    AnswerOf,
    Completion,
    Expand,
    Fate,
    Generated,
    Node,
    NodePath,
    Score,
    Scored,
    Search,
    SearchConfig,
    SearchResult,
    SeedOf,
    Stop,
    Tree,
    Work,
    quantise,
)
from tts.strategies.strategy import Ballot, Strategy


class SalConfig(SearchConfig):
    """Parameters of all three; `best_of_n` scores last pieces only."""

    agg_strategy: Literal["last", "min", "prod"] = "last"
    """How the scores of a chain's pieces become its own."""
    strip: bool = False
    """Leave out the empty piece behind the last delimiter."""

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return BestOfN(self, seed)


class BeamSearchConfig(SalConfig):
    """Parameters of `_beam_search`."""

    beam_width: int = Field(default=4, ge=1)
    """n/beam_width beams are kept."""
    num_iterations: int = Field(default=40, ge=1)
    """Most iterations; the last one generates to the end of the sequence."""
    filter_duplicates: bool = False
    """Keep only the first of the active beams that have the same text."""
    sort_completed: bool = False
    """Search on until nothing is active, and return the n best."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.beam_width > self.n:
            raise ValueError(f"beam_width ({self.beam_width}) is above n ({self.n})")
        return self

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return BeamSearch(self, seed)


class DvtsConfig(SalConfig):
    """Parameters of `_dvts`."""

    beam_width: int = Field(default=4, ge=1)
    """Candidates of each of the n/beam_width subtrees."""
    num_iterations: int = Field(default=40, ge=1)
    """Most iterations; the last one generates to the end of the sequence."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.n % self.beam_width:
            raise ValueError(f"n is {self.n}, not a multiple of beam_width ({self.beam_width})")
        return self

    def new_search(self, seed: SeedOf, answer_of: AnswerOf) -> Search:
        """See SearchConfig."""
        return Dvts(self, seed)


@dataclass(frozen=True)
class Beam:
    """A chain."""

    end: Node
    text: str
    scores: tuple[float, ...]
    """Of its pieces."""
    goes_on: bool
    """Whether its last step ended at the delimiter."""

    @property
    def path(self) -> NodePath:
        """Where it ends."""
        return self.end.path


Phases = Generator[list[Work], None, list[Beam]]
"""Yields the work of each phase; returns the completions."""


class Listed(Search):
    """What the searches share: phases, how chains grow, and which pieces are scored."""

    tree: Tree

    def __init__(self, config: SalConfig, seed: SeedOf) -> None:
        """`seed` maps a node to the seed of its sample."""
        self.config, self._seed, self.tree = config, seed, Tree()
        self._scores: dict[NodePath, float] = {}
        self._phases = self._search()
        self._result: SearchResult | None = None
        self._asks: list[Work] = []
        self._awaited: dict[NodePath, Work] = {}
        self._next_phase()

    @abstractmethod
    def _search(self) -> Phases:
        """The algorithm."""

    def ask(self) -> list[Work]:
        """The work of the phase that has begun."""
        asks, self._asks = self._asks, []
        return asks

    def tell(self, result: Generated | Scored) -> None:
        """Take in an answer; late, unknown and duplicate ones change nothing."""
        asked = self._awaited.get(result.node)
        if isinstance(result, Generated) and isinstance(asked, Expand):
            path = result.node
            for thought in result.thoughts[: None if asked.whole else 1]:
                node = self.tree.get(path) or self.tree.add(path)
                node.thought, node.fate = thought, Fate.EXPANDED
                path = (*path, 0)
        elif isinstance(result, Scored) and isinstance(asked, Score):
            self._scores[result.node] = quantise(result.score)
            self.tree.lock_score(result.node, result.score)
        else:
            return
        del self._awaited[result.node]
        if not self._awaited:
            self._next_phase()

    def result(self) -> SearchResult | None:
        """The completions in the order of their list."""
        return self._result

    def _next_phase(self) -> None:
        try:
            self._asks = next(self._phases)
            self._awaited = {work.node: work for work in self._asks}
            for work in self._asks:
                if isinstance(work, Expand):
                    self.tree.add(work.node)
        except StopIteration as end:
            for beam in end.value:
                beam.end.fate = Fate.COMPLETED
            self._result = SearchResult(
                tuple(Completion(beam.path, beam.text, beam.scores[-1]) for beam in end.value),
                self.tree,
            )

    def _extend(self, starts: list[NodePath], *, last: bool) -> Phases:
        """Grow a chain from each start: generate, then score."""
        yield [Expand(path, self._seed(path), self.config.sampling, last) for path in starts]
        ends = [self._end(path) for path in starts]
        yield [
            work
            for start, end in zip(starts, ends, strict=True)
            for work in self._pieces(len(start), end)
        ]
        return [self._beam(end, last=last) for end in ends]

    def _end(self, path: NodePath) -> Node:
        while (*path, 0) in self.tree:
            path = (*path, 0)
        return self.tree[path]

    def _pieces(self, start: int, end: Node) -> list[Work]:
        """The scores of a chain's new pieces, or only of the last where no other counts."""
        path = end.path
        asks = [Score(path[:depth]) for depth in range(start, len(path) + 1)]
        if not self.config.strip:
            if self._ends_in_delimiter(end):
                asks.append(Score((*path, -1), own_turn=True))
            elif len(path) > 1 and not _text(end):
                asks[-1] = Score(path, own_turn=True)
        return list(asks[-1:] if self.config.agg_strategy == "last" else asks)

    def _beam(self, end: Node, *, last: bool) -> Beam:
        paths = [end.path[:depth] for depth in range(1, len(end.path) + 1)]
        if (*end.path, -1) in self._scores:
            paths.append((*end.path, -1))
        elif self.config.strip and len(paths) > 1 and not _text(end):
            paths.pop() if self.config.agg_strategy != "last" else None
        if self.config.agg_strategy == "last":
            paths = paths[-1:]
        scores = tuple(self._scores[path] for path in paths)
        goes_on = not last and self._ends_in_delimiter(end)
        return Beam(end, self.tree.text(end.path), scores, goes_on)

    def _ends_in_delimiter(self, end: Node) -> bool:
        return end.thought is not None and end.thought.stop is Stop.STEP

    def _worth(self, beam: Beam) -> float:
        how = self.config.agg_strategy
        if how == "last":
            return beam.scores[-1]
        return min(beam.scores) if how == "min" else math.prod(beam.scores)


class BestOfN(Listed):
    """`best_of_n`: chains in the order of their list."""

    def _search(self) -> Phases:
        return (yield from self._extend([(chain,) for chain in range(self.config.n)], last=True))


class BeamSearch(Listed):
    """`_beam_search`: one list of n beams."""

    config: BeamSearchConfig

    def _search(self) -> Phases:
        config, completed = self.config, list[Beam]()
        starts: list[NodePath] = [(child,) for child in range(config.n)]
        for iteration in range(1, config.num_iterations + 1):
            grown = yield from self._extend(starts, last=iteration == config.num_iterations)
            completed += [beam for beam in grown if not beam.goes_on]
            active = [beam for beam in grown if beam.goes_on]
            enough = len(completed) >= config.n and not config.sort_completed
            kept = self._kept(active) if active and not enough else []
            for beam in active:
                beam.end.fate = Fate.EXPANDED if beam in kept else Fate.PRUNED
            if not kept:
                break
            starts = [(*kept[i % len(kept)].path, i // len(kept)) for i in range(config.n)]
        if config.sort_completed:
            completed.sort(key=self._worth, reverse=True)
        for beam in completed[config.n :]:
            beam.end.fate = Fate.SURPLUS
        return completed[: config.n]

    def _kept(self, active: list[Beam]) -> list[Beam]:
        """The beams with the best scores, in the order of the list; of equal ones the later."""
        if self.config.filter_duplicates:
            first: dict[str, Beam] = {}
            for beam in active:
                first.setdefault(beam.text, beam)
            active = list(first.values())
        places = sorted(range(len(active)), key=lambda place: self._worth(active[place]))
        top = places[-(self.config.n // self.config.beam_width) :]
        return [active[place] for place in sorted(top)]


class Dvts(Listed):
    """`_dvts`: a list of subtrees, each with beam_width candidates."""

    config: DvtsConfig

    def _search(self) -> Phases:
        width = self.config.beam_width
        starts: dict[int, list[tuple[int, ...]]] = {
            tree: [(tree * width + child,) for child in range(width)]
            for tree in range(self.config.n // width)
        }
        finished: dict[int, list[Beam]] = {}
        for iteration in range(1, self.config.num_iterations + 1):
            every = [path for paths in starts.values() for path in paths]
            grown = yield from self._extend(every, last=iteration == self.config.num_iterations)
            for place, tree in enumerate(list(starts)):
                beams = grown[place * width : (place + 1) * width]
                best = max(beams, key=self._worth)
                if best.goes_on and "boxed{" not in best.text:
                    for beam in beams:
                        beam.end.fate = Fate.PRUNED
                    best.end.fate = Fate.EXPANDED
                    starts[tree] = [(*best.path, child) for child in range(width)]
                else:
                    finished[tree] = beams
                    del starts[tree]
            if not starts:
                break
        return [beam for tree in sorted(finished) for beam in finished[tree]]


def _text(node: Node) -> str:
    return node.thought.text if node.thought else ""


_PHRASES = ("he answer is", "final answer is")
_NUMBER = re.compile(r"-?\d*\.?\d+")


def extract_answer(text: str) -> str | None:
    r"""The answer by its rules: most texts without a box have one, too.

    In this order: what stands in `final answer is $...$. I hope`, a box, what follows `he answer
    is`, what follows `final answer is`, the last number. None where its answer would be empty.
    """
    _, quoted, after = text.partition("final answer is $")
    if quoted and "$. I hope" in after:
        found: str | None = after.partition("$. I hope")[0]
    elif "boxed" in text:
        found = boxed_answer(text)
    elif phrase := next((each for each in _PHRASES if each in text), None):
        found = text.rpartition(phrase)[2]
    else:
        found = next(iter(_NUMBER.findall(text.replace(",", ""))[-1:]), None)
    return (found or "").strip().rstrip(".").strip() or None


def _ballot(config: SearchConfig) -> Ballot:
    return Ballot(extract_answer, as_listed=True)


BEAM_SEARCH = Strategy(
    "sal-beam-search",
    "search-and-learn's beam search",
    BeamSearchConfig,
    "weighted",
    ballot=_ballot,
)
DVTS = Strategy("sal-dvts", "search-and-learn's dvts", DvtsConfig, "weighted", ballot=_ballot)
BEST_OF_N = Strategy(
    "sal-best-of-n", "search-and-learn's best of n", SalConfig, "best", ballot=_ballot
)
