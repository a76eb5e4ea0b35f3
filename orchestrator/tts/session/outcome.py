"""From a finished search to its result and its event: answers, votes, records, doubts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace

from tts.base import paths
from tts.build.spec import Deployment, VerifierRole
from tts.datasets.demo import why_outside
from tts.grading import Equality, Verdict, canonical
from tts.grading.votes import Judgement, judge
from tts.problem import Problem
from tts.runs.events import LoggedAnswer, LoggedCompletion, ProblemSolved, logged_fates
from tts.runs.records import CompletionRecord
from tts.search import NodePath, SearchResult
from tts.strategies.strategy import Vote

from .functions import AnswerFunction
from .plan import Plan, calibration_of
from .result import Result, Usage


@dataclass(frozen=True)
class JudgedResult:
    """A search's result with its answers, compared."""

    problem: Problem
    search: SearchResult
    judged: Judgement
    vote: Vote
    digest: str

    @property
    def correct(self) -> bool | None:
        """Whether the answer by the strategy's own rule is right; None without a reference."""
        return None if self.judged.correct is None else self.judged.correct.get(self.vote, False)

    @property
    def completion_tokens(self) -> int:
        """Tokens of the thoughts that are part of a completion, each counted once."""
        tree = self.search.tree
        nodes: set[NodePath] = set()
        for each in self.search.completions:
            nodes.update(each.node[:depth] for depth in range(1, len(each.node) + 1))
        thoughts = [tree[node].thought for node in nodes]
        return sum(len(thought.token_ids) for thought in thoughts if thought)

    def event(self, now: float) -> ProblemSolved:
        """The event of the log."""
        judged = self.judged
        return ProblemSolved(
            t=now,
            problem=self.problem.id,
            level=self.problem.level,
            reference=self.problem.answer,
            answers=asdict(judged.answers),
            correct=judged.correct,
            any_correct=judged.any_correct,
            undecided=judged.undecided,
            completions=tuple(
                LoggedCompletion(each.node, each.score, group, each.probability)
                for each, group in zip(self.search.completions, judged.group_of, strict=True)
            ),
            groups=tuple(LoggedAnswer(group.answer, group.correct) for group in judged.groups),
            fates=logged_fates(self.search),
            nodes=len(self.search.tree),
            tree_digest=self.digest,
            limit=self.search.limit,
            lost_tokens=self.search.lost_tokens,
            decision=self.search.decision,
        )

    def result(self, usage: Usage) -> Result:
        """The result that the program gets."""
        answers = asdict(self.judged.answers)
        return Result(
            self.problem,
            answers[self.vote],
            self.correct,
            self.vote,
            answers,
            self._completions(),
            usage,
            self.digest,
            self.search.tree,
            self.search.limit,
        )

    def _completions(self) -> tuple[CompletionRecord, ...]:
        groups = self.judged.groups
        records = []
        for each, group in zip(self.search.completions, self.judged.group_of, strict=True):
            chain = [
                (node.thought, node.score)
                for node in self.search.tree.chain(each.node)
                if node.thought
            ]
            answer = groups[group].answer if group >= 0 else None
            records.append(CompletionRecord.of(each, chain, answer))
        return tuple(records)


async def judged_outcome(
    plan: Plan,
    problem: Problem,
    result: SearchResult,
    equality: Equality,
    answer_of: AnswerFunction,
    passes: Callable[[str], Awaitable[Verdict]] | None = None,
) -> JudgedResult:
    """Extract, compare and vote; `passes` runs the tests of a code problem.

    The vote among completions without scores is a majority where a limit came before any score,
    and for searches that need not score: a program's own, and those that decide how by themselves.
    """
    strategy, vote = plan.strategy, plan.strategy.vote
    judged = await judge(
        result,
        problem.answer,
        equality,
        answer_of=answer_of,
        form=str if plan.equal or passes else canonical,
        as_listed=strategy.ballot.as_listed,
        passes=passes,
    )
    unscored = all(each.score is None for each in result.completions)
    if unscored and (strategy.factory or result.decision or result.limit):
        answers = replace(judged.answers, **{vote: judged.answers.majority})
        correct = judged.correct and {**judged.correct, vote: judged.correct["majority"]}
        judged = replace(judged, answers=answers, correct=correct)
    return JudgedResult(problem, result, judged, vote, result.tree.digest())


DOUBTFUL = 0.5
"""The probability below which an answer is wrong rather than right."""


def is_demo_pair(deployment: Deployment) -> bool:
    """Whether the generator is a bundled one, which knows one kind of question."""
    bundled = (paths.deployments_dir().parent / "checkpoints").resolve()
    folder = deployment.generator.tokenizer_folder.resolve()
    return folder in (bundled / "demo-generator", bundled / "demo-thinking")


def doubt_of_question(deployment: Deployment, question: str) -> str | None:
    """A warning of a question that the model cannot be expected to answer; None if it can."""
    if is_demo_pair(deployment) and (why := why_outside(question)):
        return f"{why} The answer may well be wrong."
    return None


def doubt_of_answer(
    deployment: Deployment, score: float | None, probability: float | None
) -> str | None:
    """A warning of an answer that is probably wrong; a likelihood alone is no probability."""
    if score is None or (score if probability is None else probability) >= DOUBTFUL:
        return None
    if probability is None:
        judge = deployment.verifier
        if isinstance(judge, VerifierRole) and judge.facts.output == "likelihood":
            return None
        return f"The verifier's score is only {score:.4f}. The answer may well be wrong."
    return (
        f"The verifier's score of {score:.4f} stands for a probability of being right of only "
        f"{probability:.0%} (verifier.calibration). The answer may well be wrong."
    )


def probability_of(deployment: Deployment, score: float) -> float | None:
    """The probability that an answer's score stands for; None without a calibration."""
    measured = calibration_of(deployment)
    return measured.final(score) if measured else None


def doubts(
    deployment: Deployment, question: str, score: float | None, probability: float | None
) -> list[str]:
    """All warnings of an answer."""
    warnings = (
        doubt_of_question(deployment, question),
        doubt_of_answer(deployment, score, probability),
    )
    return [warning for warning in warnings if warning]
