"""The results of a program: one for each problem, steps as they are written or scored, counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Self

    from tts.problem import Problem
    from tts.runs.records import CompletionRecord
    from tts.runs.state import WorkCounts
    from tts.search import Limit, NodePath, Tree
    from tts.strategies.strategy import Vote


@dataclass(frozen=True, slots=True)
class Usage:
    """The engines' work for one problem, counted from the driver's events."""

    generator_calls: int = 0
    """Answered requests to the generator, speculative ones included."""
    verifier_calls: int = 0
    """Answered requests to the verifier."""
    generated_tokens: int = 0
    thinking_tokens: int = 0
    """Generated tokens that were thought before answers."""
    completion_tokens: int = 0
    """Generated tokens that are part of a completion."""
    verifier_tokens: int = 0
    """Tokens of the chains that the verifier scored, prompts included."""
    critique_tokens: int = 0
    """Tokens that the verifier generated."""
    no_verdict: int = 0
    """Critiques without a verdict, and candidates on which a command failed."""
    cached_scores: int = 0
    """Scores without a request of their own, because an equal path had been scored."""
    seconds: float = 0.0
    """From the start of the problem to its answer."""

    @property
    def tokens(self) -> int:
        """Generated tokens of both models."""
        return self.generated_tokens + self.critique_tokens

    @classmethod
    def of(cls, work: WorkCounts, completion_tokens: int, seconds: float) -> Self:
        """The usage of a problem for which the engines did this work."""
        own: dict[str, Any] = {"completion_tokens": completion_tokens, "seconds": seconds}
        counts = {name: getattr(work, name) for name in cls.__slots__ if name not in own}
        return cls(**counts, **own)


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """A solved problem."""

    problem: Problem
    answer: str | None
    """Chosen by the strategy's own rule; None if no completion has an answer."""
    correct: bool | None
    """Whether it equals the reference; None where there is no reference."""
    vote: Vote
    """The strategy's own rule."""
    answers: dict[str, str | None]
    """The answer by each rule: best, weighted, majority."""
    completions: tuple[CompletionRecord, ...]
    """In rank order."""
    usage: Usage
    tree_digest: str
    """Equal for equal trees: path, token ids, stop reason and fate of every node."""
    tree: Tree | None = field(compare=False)
    """Every node with its text and score; None for a result read from a log."""
    limit: Limit | None = None
    """The limit that cut the search short: its budget of `tokens`, or its `deadline`; None if it
    finished. The result at a deadline depends on timing."""
    error: str | None = None
    """Why the problem was not asked, with `solve_many(..., skip_overlong=True)`."""

    @classmethod
    def unasked(cls, problem: Problem, vote: Vote, error: str) -> Self:
        """The result of a problem that could not be asked: without any answer."""
        correct = None if problem.answer is None else False
        return cls(problem, None, correct, vote, {}, (), Usage(), "", None, error=error)

    @property
    def chosen(self) -> CompletionRecord | None:
        """The best completion that has the answer; without an answer, the best of all."""
        having = (
            each
            for each in self.completions
            if self.answer is not None and each.answer == self.answer
        )
        return next(having, next(iter(self.completions), None))

    def __repr__(self) -> str:
        correct = "" if self.correct is None else f", correct={self.correct}"
        correct += f", limit={self.limit!r}" if self.limit else ""
        correct += f", error={self.error!r:.80}" if self.error else ""
        return (
            f"Result(problem={self.problem.id!r}, answer={self.answer!r}{correct}, "
            f"completions={len(self.completions)}, "
            f"generated_tokens={self.usage.generated_tokens}, seconds={self.usage.seconds:.2f})"
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A reasoning step: reported once when it has been written, and again with its score."""

    problem: Problem
    node: NodePath
    """Its place in the tree: the child indices from the root."""
    text: str
    score: float | None
    """None when the step has just been written."""
    tree: Tree | None = field(repr=False, compare=False)
    """The tree, which continues to grow; None for a search that shows none."""
    thinking: bool = False
    """Whether it is what a model that thinks has thought before its answer."""

    def __str__(self) -> str:
        score = "      " if self.score is None else f"{self.score:.4f}"
        return f"{score}  {'.'.join(map(str, self.node))}  {' '.join(self.text.split())}"


@dataclass
class RunProgress:
    """Counts of one run, written by the run and read by displays."""

    total: int
    """Problems of the run."""
    done: int = 0
    """Problems solved, those of earlier sessions included."""
    judged: int = 0
    """Solved problems that have a reference answer."""
    right: int = 0
    """Judged problems that were answered correctly by the strategy's own rule."""
    in_flight: tuple[int, int] = (0, 0)
    """Requests in flight now: generator, verifier."""
    began: bool = False
    """Whether the run folder holds anything yet."""

    def count(self, correct: bool | None) -> None:
        """Count a solved problem; `correct` is None if it has no reference answer."""
        self.done += 1
        if correct is not None:
            self.judged += 1
            self.right += correct
