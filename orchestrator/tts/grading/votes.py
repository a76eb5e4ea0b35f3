"""One answer from many completions: naive best, weighted vote and majority vote, all reported."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat

from tts.search import AnswerForm, Completion, SearchResult, significant

from .canonical import canonical, is_integer
from .extract import extract_answer
from .grader import Equality, Grader, group_answers
from .problem_grader import Verdict


@dataclass(frozen=True, slots=True)
class Answers:
    """The answer by each rule; None where no completion has one or, unscored, no rule applies."""

    best: str | None
    weighted: str | None
    majority: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """Equal answers: the first of them in path order, and whether it is right (None: unknown)."""

    answer: str
    correct: bool | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Answers and whether each is right; `correct` is None where there is no reference.

    `any_correct` says whether any completion is right (pass@n); `undecided` counts comparisons
    with the reference that ended without a verdict (they count as wrong). `group_of` has for each
    completion, in the search's order, its place in `groups`, or -1 if it has no answer.
    """

    answers: Answers
    correct: dict[str, bool] | None
    any_correct: bool | None
    undecided: int
    groups: tuple[Group, ...]
    group_of: tuple[int, ...]


async def judge(
    result: SearchResult,
    reference: str | None,
    grader: Equality,
    *,
    answer_of: Callable[[str], str | None] = extract_answer,
    form: Callable[[str], str] = canonical,
    as_listed: bool = False,
    passes: Callable[[str], Awaitable[Verdict]] | None = None,
) -> Judgement:
    """Extract, group and vote; compare with the reference if there is one.

    Equal answers are grouped before any vote, by mathematical equivalence unless `grader` is a
    function of the user's own; answers of one `form` are equal without asking it. `answer_of`
    takes the answer out of a completion's text; `passes` says whether one is right in place of the
    reference. Ties go by path, or with `as_listed` by the order of the completions.
    """
    completions = list(result.completions)
    if not as_listed:
        completions.sort(key=lambda each: each.node)
    extracted = [answer_of(each.text) for each in completions]
    if isinstance(grader, Grader):
        grader = grader.problem()
        texts = [answer for answer in extracted if answer is not None and answer.strip()]
        await grader.read(texts if reference is None else [*texts, reference])
    group_of = await group_answers(extracted, grader, form)
    firsts: dict[int, str] = {}
    for answer, group in zip(extracted, group_of, strict=True):
        if answer is not None and group >= 0:
            firsts.setdefault(group, answer)
    verdicts: list[Verdict] | None = None
    if passes is not None:
        verdicts = await asyncio.gather(*map(passes, firsts.values()))
    elif reference is not None:  # in turn: they share a budget
        verdicts = [await grader.equal(answer, reference) for answer in firsts.values()]
    rights = [verdict.equal for verdict in verdicts] if verdicts is not None else repeat(None)
    groups = list(map(Group, firsts.values(), rights))
    answers = vote(completions, extracted, group_of)
    by_node = dict(zip((each.node for each in completions), group_of, strict=True))
    return Judgement(
        answers,
        right_by_rule(completions, group_of, groups) if verdicts is not None else None,
        any(group.correct for group in groups) if verdicts is not None else None,
        sum(verdict.undecided for verdict in verdicts or ()),
        tuple(groups),
        tuple(by_node[each.node] for each in result.completions),
    )


def right_by_rule(
    completions: Sequence[Completion], group_of: Sequence[int], groups: Sequence[Group]
) -> dict[str, bool]:
    """Whether what each rule chooses is right; unscored completions have the majority rule only.

    The completions may be some of those that were grouped; they are in path order, as for `vote`.
    """
    answers = vote(completions, [groups[g].answer if g >= 0 else None for g in group_of], group_of)
    right = {group.answer for group in groups if group.correct}
    return {
        rule: answer in right
        for rule, answer in asdict(answers).items()
        if rule == "majority" or _scored(completions)
    }


def vote(
    completions: Sequence[Completion], extracted: Sequence[str | None], groups: Sequence[int]
) -> Answers:
    """Choose by each rule. `groups[i]` is the group of answer i, -1 for none.

    best: the answer of the best completion, whatever it is: by its weight (`Completion.weight`),
    then by its score. weighted: the group with the largest sum of weights; the largest group where
    all weights are 0. majority: the largest group. Ties go to the group that comes first in path
    order; a group speaks through its first member.
    """
    members: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        if group >= 0:
            members.setdefault(group, []).append(index)

    def speaker(weigh: list[float]) -> str | None:
        if not members:
            return None
        totals = {g: significant(math.fsum(weigh[i] for i in who)) for g, who in members.items()}
        return extracted[members[max(totals, key=lambda g: (totals[g], -members[g][0]))][0]]

    majority = speaker([1.0] * len(completions))
    if not _scored(completions):
        return Answers(None, None, majority)
    weights = [each.weight for each in completions]
    best = max(range(len(completions)), key=lambda i: (weights[i], completions[i].score or 0.0, -i))
    best_group = members.get(groups[best])
    weighted = speaker(weights) if any(weights) else majority
    return Answers(extracted[best_group[0]] if best_group else None, weighted, majority)


def answer_form_of(
    answer_of: Callable[[str], str | None], *, by_text: bool = False
) -> Callable[[str], AnswerForm | None]:
    """The normal form of the answer in a completion's text, for a search that stops early.

    Two plain integers that differ are different answers; any other two forms may yet turn out
    equal. `by_text`, as with a user's `equal`: only identical texts are known to be the same
    answer, and no two answers are known to differ.
    """

    def form(text: str) -> AnswerForm | None:
        answer = answer_of(text)
        if answer is None:
            return None
        if by_text:
            return AnswerForm(answer, False)
        plain = canonical(answer)
        return AnswerForm(plain, is_integer(plain))

    return form


answer_form = answer_form_of(extract_answer)
"""The normal form of what a completion's text states as its answer; pure and fast."""


def _scored(completions: Sequence[Completion]) -> bool:
    return any(each.score is not None for each in completions)
