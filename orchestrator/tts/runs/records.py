"""A run's problems, completions and requests as plain data, of a live search or from a log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

from tts.build.spec import Role
from tts.search import Completion, Limit, NodePath, Stop, Thought

from .events import LoggedCompletion, LoggedThought

NOT_WRITTEN = Thought((), "", Stop.LENGTH)
"""A node that no request wrote: its prompt had filled the context."""
RequestKind = Literal["main", "eager", "speculative", "prefetch"]


@dataclass(frozen=True, slots=True)
class CompletionRecord:
    """One of a problem's n completions: a path of the tree that reached its end."""

    text: str
    """Its answer, without what was thought before it."""
    steps: tuple[str, ...]
    """The text of each step of the answer, stripped of white space."""
    step_scores: tuple[float | None, ...]
    """The verifier's score of each step; None where none was needed."""
    score: float | None
    """The verifier's score of the whole path: its step scores, aggregated as the strategy says."""
    answer: str | None
    """Its answer, as the first completion with an equal one spells it; None without one."""
    node: NodePath
    thinking: str = ""
    """What a model that thinks has thought before the answer."""
    probability: float | None = None
    """The probability of being right that a calibration makes of the scores; None without one."""

    @property
    def judged(self) -> float | None:
        """Its score, where a verifier has scored any of its steps."""
        return None if all(score is None for score in self.step_scores) else self.score

    @classmethod
    def of(
        cls,
        end: Completion | LoggedCompletion,
        chain: Iterable[tuple[Thought | LoggedThought, float | None]],
        answer: str | None,
    ) -> Self:
        """The completion; `chain` has each thought and its score, first one first."""
        thinking = ""
        texts, scores = [], []
        for thought, step_score in chain:
            if thought.thinking:
                thinking += thought.text
            else:
                texts.append(thought.text)
                scores.append(step_score)
        steps = tuple(text.strip() for text in texts)
        return cls(
            "".join(texts),
            steps,
            tuple(scores),
            end.score,
            answer,
            end.node,
            thinking,
            end.probability,
        )


@dataclass(frozen=True, slots=True)
class ProblemRecord:
    """A solved problem."""

    id: str
    question: str
    level: int | str | None
    reference: str | None
    answer: str | None
    """The answer by the run's own vote."""
    answers: dict[str, str | None]
    """The answers by each vote: best, weighted, majority."""
    correct: bool | None
    """Whether `answer` equals the reference; None without one."""
    completions: tuple[CompletionRecord, ...]
    tree_digest: str
    tokens: int
    """Generated for this problem, whether they were needed or not."""
    seconds: float | None
    """From its start to its result, grading included, in the session that solved it."""
    limit: Limit | None = None
    """What ended its search before its own end; None if nothing did."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request as the client saw it. Times are seconds since the run's first session began."""

    engine: Role
    kind: RequestKind
    """`prefetch`: a prompt that was sent ahead of the requests that begin with it."""
    problem: str
    node: NodePath
    sent: float
    done: float
    prompt_tokens: int
    tokens: int | None
    """Generated tokens; None if it was cancelled."""
    in_flight: tuple[int, int]
    """Requests on the generator and the verifier when it was sent, itself included."""
    cancelled: str | None = None
    """Why it was cancelled; None if it was answered."""

    @property
    def seconds(self) -> float:
        """How long it was in flight."""
        return self.done - self.sent

    @property
    def load(self) -> int:
        """What it counts while in flight: 1 on the generator, its prompt tokens on the verifier."""
        return 1 if self.engine == "generator" else self.prompt_tokens
