"""From completions to one answer: naive best, weighted vote, majority vote, all three reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .grading import Grader, canonical, extract_answer, group_answers, is_integer
from .search import AnswerForm, Completion, SearchResult


@dataclass(frozen=True, slots=True)
class Answers:
    """The answer by each rule; None where no completion has one or, unscored, no rule applies."""

    best: str | None
    weighted: str | None
    majority: str | None


@dataclass(frozen=True, slots=True)
class Judged:
    """Answers and whether each is right; `correct` is None where there is no reference.

    `any_correct` says whether any completion is right (pass@n); `undecided` counts comparisons
    with the reference that ended without a verdict (they count as wrong).
    """

    answers: Answers
    correct: dict[str, bool] | None
    any_correct: bool | None
    undecided: int

    def to_event(self) -> dict[str, Any]:
        """As plain JSON data."""
        return asdict(self)


async def judge(result: SearchResult, reference: str | None, grader: Grader) -> Judged:
    """Extract, group and vote; compare with the reference if there is one.

    Equal answers are grouped by mathematical equivalence before any vote.
    """
    completions = sorted(result.completions, key=lambda done: done.node)
    extracted = [extract_answer(done.text) for done in completions]
    groups = await group_answers(extracted, grader)
    answers = vote(completions, extracted, groups)
    if reference is None:
        return Judged(answers, None, None, 0)
    right: dict[str, bool] = {}
    undecided = 0
    representatives = {group: extracted[groups.index(group)] for group in set(groups) - {-1}}
    for answer in sorted({*representatives.values(), answers.best}, key=str):
        if answer is not None:
            verdict = await grader.equal(answer, reference)
            right[answer] = verdict.equal
            undecided += verdict.undecided
    correct = {
        rule: answer is not None and right[answer]
        for rule, answer in asdict(answers).items()
        if answer is not None or rule == "majority" or _scored(completions)
    }
    return Judged(answers, correct, any(right.values()), undecided)


def vote(
    completions: Sequence[Completion], extracted: Sequence[str | None], groups: Sequence[int]
) -> Answers:
    """Choose by each rule. `groups[i]` is the group of answer i, -1 for none.

    best: the answer of the best-scored completion, whatever it is. weighted: the group with the
    largest sum of scores. majority: the largest group. Ties go to the group that comes first in
    path order; a group speaks through its first member.
    """
    members: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        if group >= 0:
            members.setdefault(group, []).append(index)

    def speaker(weigh: list[float]) -> str | None:
        if not members:
            return None
        totals = {g: round(sum(weigh[i] for i in who), 9) for g, who in members.items()}
        return extracted[members[max(totals, key=lambda g: (totals[g], -members[g][0]))][0]]

    majority = speaker([1.0] * len(completions))
    if not _scored(completions):
        return Answers(None, None, majority)
    scores = [done.score or 0.0 for done in completions]
    best = max(range(len(completions)), key=lambda i: (scores[i], -i))
    best_group = members.get(groups[best])
    return Answers(extracted[best_group[0]] if best_group else None, speaker(scores), majority)


def answer_form(text: str) -> AnswerForm | None:
    """Normal form of the answer in a completion's text, or None; pure and fast.

    For a search that stops early. Two plain integers that differ are different answers; any other
    two forms may yet turn out equal.
    """
    answer = extract_answer(text)
    if answer is None:
        return None
    form = canonical(answer)
    return AnswerForm(form, is_integer(form))


def _scored(completions: Sequence[Completion]) -> bool:
    return any(done.score is not None for done in completions)
