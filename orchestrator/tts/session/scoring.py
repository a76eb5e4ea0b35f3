"""Work outside a search: samples of the generator, and scores of solutions that exist already.

    solutions ─► a request for each step ─┬─ equal to one of the same question ─► its answer
                                          └─ else ─► in flight, as far as the policy goes

Solutions go in order, the steps of each one after the other: what the next dialogue begins with is
in the verifier's prefix cache by then, or is being computed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from tts.base.errors import DatasetError, RequestRefused
from tts.build.tokenizer import Ids, Message
from tts.driver.policy import policy_of
from tts.driver.sharing import common_length
from tts.endpoints.base import GenerateCall, Generator, ScoreCall, Verifier, VerifierResult
from tts.endpoints.together import first_failure, together
from tts.grading import Equality
from tts.grading.votes import judge
from tts.problem import Problem
from tts.prompting import Models
from tts.prompting.chat import chat_prompt, generator_chat
from tts.prompting.context import NO_IDS
from tts.prompting.score_calls import score_calls
from tts.prompting.step_ends import steps_of
from tts.runs.records import CompletionRecord
from tts.search import Aggregation, Calibration, Completion, SearchResult, Tree, node_seed, quantise
from tts.search.thought import aggregate

from .arguments import check_arguments
from .questions import check_question, is_message
from .result import Result, Usage

TEXTS_IN_FLIGHT = 256
"""Chains that a function or a command has at a time, at most: it may take them in batches."""

Solution = tuple[Problem, Sequence[str]]
"""A problem, and the steps of an answer to it."""
Candidate = str | Sequence[str]
"""An answer as one text, or its steps."""


class NoGenerator:
    """Stands for the generator in a session that only scores, so that its engine is not started."""

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator; raises RequestRefused."""
        raise RequestRefused("This session only scores: its generator is not started.")


@dataclass(frozen=True, slots=True)
class SolutionScores:
    """The scores of a solution's steps, and the requests that they took."""

    scores: tuple[float | None, ...]
    """One for each step; a verifier of whole answers scores the last one alone."""
    requests: int
    """Requests to the verifier: fewer than scores where it shares steps with those before it."""
    prompt_tokens: int
    """Tokens of their prompts."""
    new_tokens: int
    """Tokens of these that no prompt before them began with."""
    generated_tokens: int
    """Tokens that the verifier wrote for its scores."""
    no_verdict: int
    """Critiques without a verdict, and candidates on which a command failed."""


class _Room:
    """A bound on the cost of what is in flight, granted in the order of asking.

    What costs more than all of it goes alone.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self.granted = 0
        """How many have room now."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._nobody_waits = asyncio.Event()

    @asynccontextmanager
    async def reserve(self, cost: int) -> AsyncIterator[None]:
        """Wait for room, and have it until the block ends."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((cost, turn))
        self._grant()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._used -= cost
                self.granted -= 1
            self._grant()

    async def nobody_waits(self) -> None:
        """Wait until all that has been asked for is granted."""
        await asyncio.sleep(0)  # what was created has its turn to ask, and so has everybody else
        await self._nobody_waits.wait()

    def _grant(self) -> None:
        while self._waiting and (not self._used or self._used + self._waiting[0][0] <= self._limit):
            cost, turn = self._waiting.popleft()
            if not turn.done():  # or it was cancelled
                self._used += cost
                self.granted += 1
                turn.set_result(None)
        (self._nobody_waits.clear if self._waiting else self._nobody_waits.set)()


class Scorer:
    """Scores solutions with one verifier; what is in flight is bounded over all its calls."""

    def __init__(self, models: Models, verifier: Verifier, *, answers_only: bool) -> None:
        """`answers_only`: the verifier scores whole answers, so only last steps are asked for."""
        self._models = models
        self._verifier = verifier
        self._answers_only = answers_only
        policy = policy_of(models.deployment, "decoupled")
        self._room = _Room(TEXTS_IN_FLIGHT if models.takes_text else policy.verifier_limit)
        self._leads = policy.prefetch and models.dialogue is not None and not models.reads_whole
        """Whether a solution's longest dialogue goes ahead: all others are in the cache then of an
        engine that computes what requests side by side begin with once for each."""

    @property
    def in_flight(self) -> int:
        """Requests in flight now."""
        return self._room.granted

    def calls(self, solution: Solution) -> list[ScoreCall]:
        """The request of each score; raises DatasetError for what the verifier cannot read."""
        problem, steps = solution
        calls = score_calls(self._models, problem.full_question, steps, problem.extra)
        return calls[-1:] if self._answers_only else calls

    async def score_all(
        self, solutions: Iterable[Solution], on_scored: Callable[[int, SolutionScores], None]
    ) -> None:
        """Score solutions; `on_scored` is called with the place of each and its scores.

        Those of a question share the scores of what they share, if they stand together. Raises the
        first TtsError, and cancels what is in flight.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for _, same in groupby(enumerate(solutions), lambda each: each[1][0].full_question):
                    answers: _Answers = {}
                    before = NO_IDS
                    for place, solution in same:
                        calls = self.calls(solution)
                        work = self._ask(group, answers, calls, before)
                        waiting = [answers[_key(call)] for call in calls]
                        unscored = len(solution[1]) - len(calls)
                        report = partial(on_scored, place)
                        group.create_task(_report(waiting, unscored, work, report))
                        before = calls[0].input_ids  # both begin with the question
                        await self._room.nobody_waits()
        except BaseExceptionGroup as failures:
            failure = first_failure(failures)
            raise failure from failure.__cause__  # such as an error of the user's own code

    def _ask(
        self,
        group: asyncio.TaskGroup,
        answers: _Answers,
        calls: Sequence[ScoreCall],
        before: Ids,
    ) -> tuple[int, int, int]:
        """Ask for the scores of a solution, but for those in `answers`, and add them there.

        `before` is the dialogue before its first. Returns the number of requests, the tokens of
        their prompts, and those of these that no prompt before them began with.
        """
        earlier, prompt_tokens, new_tokens = len(answers), 0, 0
        leader = None
        if self._leads and _key(calls[-1]) not in answers:
            leader = group.create_task(self._answer(calls[-1], None))
        for call in calls:
            ids = call.input_ids
            if (key := _key(call)) not in answers:
                prompt_tokens += len(ids)
                new_tokens += len(ids) - common_length(before, ids)
                if leader and call is calls[-1]:
                    answers[key] = leader
                else:
                    answers[key] = group.create_task(self._answer(call, leader))
            before = ids
        return len(answers) - earlier, prompt_tokens, new_tokens

    async def score(self, solutions: Sequence[Solution]) -> list[SolutionScores]:
        """The scores of solutions, in order."""
        scored: dict[int, SolutionScores] = {}
        await self.score_all(solutions, scored.__setitem__)
        return [scored[place] for place in range(len(solutions))]

    async def results(self, calls: Sequence[ScoreCall]) -> list[VerifierResult]:
        """The result of each request."""
        results = await together(self._answer(call, None) for call in calls)
        return [replace(result, score=quantise(result.score)) for result in results]

    async def _answer(
        self, call: ScoreCall, leader: asyncio.Task[VerifierResult] | None
    ) -> VerifierResult:
        """The verifier's result, asked for when the leader is answered and there is room."""
        if leader:
            await asyncio.wait({leader})
        async with self._room.reserve(self._cost(call)):
            return await self._verifier.score(call)

    def _cost(self, call: ScoreCall) -> int:
        return 1 if self._models.takes_text else self._models.score_cost(len(call.input_ids))


_Answers = dict[Any, "asyncio.Task[VerifierResult]"]
"""The requests of one question's solutions, by what a score depends on."""


async def _report(
    answers: Sequence[asyncio.Task[VerifierResult]],
    unscored: int,
    work: tuple[int, int, int],
    on_scored: Callable[[SolutionScores], None],
) -> None:
    """Wait for the scores of a solution, and hand them on."""
    results = [await answer for answer in answers]
    scores = SolutionScores(
        (*[None] * unscored, *(quantise(result.score) for result in results)),
        *work,
        sum(result.tokens for result in results),
        sum(result.no_verdict for result in results),
    )
    on_scored(scores)


def _key(call: ScoreCall) -> Any:
    """What a score depends on, among those of one question."""
    return call.input_ids.tobytes() or (call.steps, call.text)


def solutions_of(
    problem: Problem, candidates: Sequence[Candidate], delimiter: str
) -> list[Solution]:
    """A problem's candidates in steps; raises DatasetError for what is no candidate."""
    if isinstance(candidates, str) or not isinstance(candidates, Sequence) or not candidates:
        raise DatasetError(
            f"The candidates are {candidates!r:.200}; they must be a list of answers.",
            hint="Each is a text, or a list of steps. One answer in steps: [[step, step]].",
        )
    solutions = []
    for number, candidate in enumerate(candidates, start=1):
        what = f"Candidate {number}"
        if isinstance(candidate, str):
            check_question(candidate, what)
            candidate = steps_of(candidate, delimiter)
        if not isinstance(candidate, Sequence) or not candidate:
            raise DatasetError(f"{what} is {candidate!r:.200}; it must be a text, or a list.")
        for place, step in enumerate(candidate, start=1):
            check_question(step, f"Step {place} of candidate {number}")
        solutions.append((problem, candidate))
    return solutions


async def ranked(
    solutions: Sequence[Solution],
    scores: Sequence[SolutionScores],
    how: Aggregation,
    delimiter: str,
    grader: Equality,
    calibration: Calibration | None,
) -> Result:
    """The candidates of one problem, best first, and the answers that they vote for.

    With a calibration they rank, and vote, by the probabilities that it makes of their scores. A
    candidate's node is its place among them, by which ties go.
    """
    problem = solutions[0][0]
    completions = [
        Completion(
            (place,),
            delimiter.join(steps),
            aggregate([score for score in each.scores if score is not None], how),
            _probability(each.scores, how, calibration),
        )
        for place, ((_, steps), each) in enumerate(zip(solutions, scores, strict=True))
    ]
    completions.sort(key=lambda each: (-each.weight, -(each.score or 0.0)))
    judged = await judge(SearchResult(tuple(completions), Tree()), problem.answer, grader)
    answers, groups = judged.answers, judged.groups
    records = (
        CompletionRecord(
            each.text,
            tuple(step.strip() for step in solutions[each.node[0]][1]),
            scores[each.node[0]].scores,
            each.score,
            groups[group].answer if group >= 0 else None,
            each.node,
            probability=each.probability,
        )
        for each, group in zip(completions, judged.group_of, strict=True)
    )
    return Result(
        problem,
        answers.best,
        None if judged.correct is None else judged.correct["best"],
        "best",
        asdict(answers),
        tuple(records),
        Usage(
            verifier_calls=sum(each.requests for each in scores),
            verifier_tokens=sum(each.prompt_tokens for each in scores),
            critique_tokens=sum(each.generated_tokens for each in scores),
            no_verdict=sum(each.no_verdict for each in scores),
        ),
        "",
        None,
    )


def _probability(
    scores: Sequence[float | None], how: Aggregation, calibration: Calibration | None
) -> float | None:
    if calibration is None:
        return None
    final = len(scores) - 1
    probabilities = [
        calibration.probability(score, final=place == final)
        for place, score in enumerate(scores)
        if score is not None
    ]
    return aggregate(probabilities, how)


async def generate(
    models: Models,
    generator: Generator,
    prompt: str | Sequence[Message],
    *,
    n: int = 1,
    max_tokens: int = 256,
    temperature: float = 0.8,
    top_p: float = 1.0,
    seed: int = 0,
) -> list[str]:
    """Texts of n samples; raises DatasetError if the prompt leaves no room for output."""
    check_arguments(n=n, max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        check_question(prompt, "The prompt")
    elif not (prompt and all(map(is_message, prompt))):
        raise DatasetError(
            f"The prompt is {prompt!r:.200}, which is no chat.",
            hint='Give a list of messages: [{"role": "user", "content": "..."}].',
        )
    spec = models.deployment.generator
    chat = generator_chat(spec, prompt) if isinstance(prompt, str) else prompt
    ids = chat_prompt(models.generator, chat)
    limit = min(max_tokens, spec.max_seq_len - len(ids))
    if limit < 1:
        raise DatasetError(
            f"The prompt is {len(ids)} tokens long; the generator's context holds "
            f"{spec.max_seq_len}, prompt and output together (generator.max_seq_len).",
            hint="Shorten the prompt, or raise generator.max_seq_len in the deployment.",
        )
    consecutive = models.deployment.consecutive_seeds
    seeds = (node_seed(seed, "generate", (at,), consecutive=consecutive) for at in range(n))
    calls = (GenerateCall(ids, limit, each, temperature, top_p, False) for each in seeds)
    samples = await together(generator.generate(call) for call in calls)
    return [
        "".join(thought.text for thought in models.thoughts(sample, truncated=False, whole=True))
        for sample in samples
    ]
