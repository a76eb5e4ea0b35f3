"""A run's summary: what summary.json holds, derived from the run's log and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from tts.build.errors import RunError
from tts.search import Limit
from tts.strategies.names import strategy_name

from .checks import read_summary_fields
from .config import Limits, RunConfig
from .events import AnyEvent, ProblemSolved
from .folder import SUMMARY, Json
from .records import ENGINES
from .state import WorkCounts
from .statistics import fraction
from .utilization import Utilization

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Number = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Rule = Literal["best", "weighted", "majority"]
"""How the answer is chosen from the completions."""


class InFlight(msgspec.Struct, frozen=True):
    """Answered requests in flight on each engine, on average over the wall time."""

    generator: Number | None
    verifier: Number | None


class Latency(msgspec.Struct, frozen=True):
    """Seconds from the start of a problem to its result, grading included, over problems."""

    median: Number | None
    p95: Number | None


class SpeculationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Expansions that were sent before their search asked for them, and what became of them."""

    sent: Count
    answered: Count = 0
    used: Count
    """Their search asked for these in the end."""
    cancelled: dict[str, Count]
    """By reason."""
    hit_rate: Share | None
    """Used over sent; None where none was sent."""

    def __post_init__(self) -> None:
        if self.sent and self.hit_rate is None:
            raise ValueError("`hit_rate` is null, although expansions were sent")


class Waste(msgspec.Struct, frozen=True, omit_defaults=True):
    """Generated tokens that no search needed."""

    unused_tokens: Count
    """Tokens of speculative answers that were never asked for."""
    cancelled_tokens_estimated: int | Number
    """What cancelled requests had generated, which the client does not see."""
    share: Share | None
    """All of it over all generated tokens; None where there are none."""
    lost_tokens: Count = 0
    """Tokens of answers for which the budget of their problem had no room; missing if there are
    none."""


class ServerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one of several servers did."""

    generated_tokens: Count = 0
    generator_requests: Count = 0
    verifier_requests: Count = 0


class Level(msgspec.Struct, frozen=True):
    """The judged problems of one level."""

    problems: Count
    accuracy: Share | None


_LATER = ("waste", "latency_s", "speculation")
"""Fields that came with one version."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Summary(Mapping[str, Any]):
    """The results of a run: summary.json, whose keys are these fields in this order.

    As a mapping it has the keys of the file, with plain data: `summary["waste"]["share"]` is
    `summary.waste.share`. A field with a default is missing in files of older versions, or where
    its documentation says so.
    """

    problems: Count
    """Solved problems."""
    judged: Count | None = None
    """How many of them have a reference; missing if all have."""
    accuracy: Share | None
    """Share of the judged problems that the run's own vote has right."""
    wall_s: Number
    """Seconds of searching, all sessions together: no server start, no model load."""
    problems_per_s: Number | None
    generated_tokens: Count
    """Tokens of all answers of the generator."""
    tokens_per_s: Number | None
    """Generated tokens over the wall time."""
    generator_calls: Count = 0
    """Answered requests to the generator."""
    verifier_calls: Count
    """Answered requests to the verifier."""
    verifier_cached: Count = 0
    """Scores that needed no request."""
    verifier_tokens: Count = 0
    """Prompt tokens of the requests to the verifier."""
    mean_in_flight: InFlight
    servers: dict[str, ServerCounts] | None = None
    """By address; missing unless there were several."""
    latency_s: Latency | None = None
    idle_s: dict[Literal["generator", "verifier"], dict[str, Number]] | None = None
    """Seconds in which an engine was idle, by reason; with several servers the mean."""
    speculation: SpeculationCounts | None = None
    waste: Waste | None = None
    strategy: str
    schedule: str
    seed: int
    n: Count | None
    """Completions of a problem; None of a program's own search."""
    vote: Rule
    """The rule that chooses the answers."""
    parameters: dict[str, bool | int | float | str | dict[str, Any] | None]
    """The strategy's."""
    context: int | None = None
    """Tokens that the generator's sequences may have."""
    deployment: str
    dataset: str
    accuracy_by_rule: dict[Rule, Share | None]
    pass_at_n: Share | None
    """Share of the judged problems that have a right completion."""
    accuracy_by_level: dict[str, Level]
    undecided: Count
    """Comparisons of answers that could not be decided, which count as wrong."""
    sessions: Count = 0
    tree_digest: str
    """One hash over every problem's tree and answers."""
    questions: str | None = None
    """One hash over every problem's id and question: equal where the same was asked."""
    limits: dict[str, int | float] | None = None
    """The limits of each problem; missing in runs without limits."""
    limited: dict[Limit, Count] | None = None
    """How many searches each limit ended; missing in runs without limits."""
    unanswered: Count | None = None
    """How many of these have no answer; missing in runs without limits."""
    fitted_to: dict[str, int | float] | None = None
    """The mean cost of a problem to which n was fitted; missing where it was not."""
    mean_completions: float | None = None
    """Completions per problem; missing where every problem has n."""
    missing: tuple[str, ...] = field(default=(), metadata={"json": False})
    """The fields that summary.json does not have; not one of its keys."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategy", strategy_name(self.strategy))
        if len({getattr(self, name) is None for name in _LATER}) > 1:
            raise ValueError("one of `waste`, `latency_s` and `speculation` is missing")
        if self.idle_s is not None and len(self.idle_s) < 2:
            raise ValueError("`idle_s` lacks an engine")

    @property
    def asked(self) -> tuple[Hashable, ...]:
        """What was asked. Only runs in which it is equal can be compared."""
        return (self.questions,) if self.questions else (self.dataset, self.seed, self.problems)

    @property
    def search(self) -> tuple[Hashable, ...]:
        """What was asked, and how it was searched: where it is equal, so are the trees."""
        parameters = json.dumps(self.parameters, sort_keys=True)
        limits = tuple(sorted((self.limits or {}).items()))
        return *self.asked, self.strategy, self.seed, self.deployment, parameters, limits

    @classmethod
    def of_json(cls, data: Json) -> Summary:
        """The summary with these fields, as summary.json has them.

        Raises msgspec.ValidationError, naming what is missing or not as it must be.
        """
        missing = tuple(name for name in _KEYS if name not in data)
        return msgspec.convert({**data, "missing": missing}, cls)

    def to_json(self) -> Json:
        """The fields as plain data, as summary.json has them."""
        return dict(self)

    def __getitem__(self, name: str) -> Any:
        if name not in _KEYS or name in self.missing:
            raise KeyError(name)
        return msgspec.to_builtins(getattr(self, name))

    def __iter__(self) -> Iterator[str]:
        return (name for name in _KEYS if name not in self.missing)

    def __len__(self) -> int:
        return len(_KEYS) - len(self.missing)


_KEYS = tuple(each.name for each in fields(Summary) if each.name != "missing")
"""The keys of summary.json, in their order."""


def read_summary(folder: Path) -> Summary:
    """The summary of a finished run; raises RunError if there is none, or it does not fit."""
    found = read_summary_fields(folder)
    try:
        return Summary.of_json(found)
    except msgspec.ValidationError as error:
        raise RunError(
            f"{folder / SUMMARY} is not the summary of a run: {error}.",
            hint="It was damaged. It is derived from the log: remove it, and the run writes it "
            f"again when it is continued: tts bench --resume {folder}",
        ) from error


def summarise(config: RunConfig, events: Iterable[AnyEvent]) -> Summary:
    """The summary of a run that was asked to be `config`, from its log, which is read once.

    Mean in-flight work is the sum of the requests' durations over the wall time (Little's law);
    latency, idle time, speculation and waste are those of `utilization`.
    """
    use = Utilization()
    solved_by_id: dict[str, _Solved] = {}
    for event in events:
        _, problem = use.add(event)
        if problem and problem.solution:
            solved_by_id[problem.id] = _Solved.of(problem.solution, problem.question, config.vote)
    use.finish()
    work, wall = use.run.work, use.run.wall_s
    solved = [solved_by_id[problem] for problem in sorted(solved_by_id)]
    judged = [problem for problem in solved if problem.correct is not None]
    rule = config.vote
    return Summary.of_json(
        {
            "problems": len(solved),
            **({"judged": len(judged)} if len(judged) < len(solved) else {}),
            "accuracy": fraction(problem.right(rule) for problem in judged),
            "wall_s": round(wall, 3),
            "problems_per_s": round(len(solved) / wall, 4) if wall else None,
            **_counts(work, wall),
            "mean_in_flight": {
                engine: round(use.answered_s[engine] / wall, 3) if wall else None
                for engine in ENGINES
            },
            **use.to_json(),
            "strategy": config.strategy,
            "schedule": config.schedule,
            "seed": config.seed,
            "n": config.parameters["n"],
            "vote": rule,
            "parameters": config.parameters,
            "context": config.context,
            "deployment": config.deployment,
            "dataset": config.dataset,
            "accuracy_by_rule": _by_rule(judged),
            "pass_at_n": fraction(problem.any_correct for problem in judged),
            "accuracy_by_level": accuracy_by_level(
                (problem.level, problem.right(rule)) for problem in judged
            ),
            "undecided": sum(problem.undecided for problem in judged),
            "sessions": use.run.sessions,
            "tree_digest": _digest(each.digested for each in solved),
            **_questions(solved),
            **_limits(config.limits, solved),
            **({"fitted_to": msgspec.to_builtins(config.fitted_to)} if config.fitted_to else {}),
            **_completions(config.parameters["n"], solved),
        }
    )


def _counts(work: WorkCounts, wall: float) -> Json:
    return {
        "generated_tokens": work.generated_tokens,
        "tokens_per_s": round(work.generated_tokens / wall, 2) if wall else None,
        "generator_calls": work.generator_calls,
        "verifier_calls": work.verifier_calls,
        "verifier_cached": work.cached_scores,
        "verifier_tokens": work.verifier_tokens,
    }


def _limits(limits: Limits, solved: Iterable[_Solved]) -> Json:
    """What limits a run had, and how many searches each ended; nothing of a run without any."""
    if not limits:
        return {}
    ended = [problem for problem in solved if problem.limit]
    return {
        "limits": msgspec.to_builtins(limits),
        "limited": dict(Counter(problem.limit for problem in ended)),
        "unanswered": sum(not problem.answered for problem in ended),
    }


def _completions(n: int, solved: Sequence[_Solved]) -> Json:
    """How many completions came out on average, if not n of every problem."""
    if all(problem.completions == n for problem in solved):
        return {}
    return {"mean_completions": round(sum(each.completions for each in solved) / len(solved), 3)}


def accuracy_by_level(
    answers: Iterable[tuple[int | str | None, bool]],
) -> dict[str, dict[str, Any]]:
    """Problems and accuracy of each level, from each problem's level and whether it is right."""
    levels: dict[str, list[bool]] = {}
    for level, right in answers:
        if level is not None:
            levels.setdefault(str(level), []).append(right)
    return {
        level: {"problems": len(rights), "accuracy": fraction(rights)}
        for level, rights in sorted(levels.items())
    }


@dataclass(frozen=True, slots=True)
class _Solved:
    """A solved problem in short: its share of the digest, and how it was graded."""

    digested: bytes
    level: int | str | None
    correct: Mapping[str, bool] | None
    any_correct: bool | None
    undecided: int
    limit: str | None
    completions: int
    asked: bytes | None
    """Its share of the hash of all questions; None where the log has no question."""
    answered: bool

    @classmethod
    def of(cls, solved: ProblemSolved, question: str | None, rule: str) -> _Solved:
        answers = [solved.answers[rule] for rule in get_args(Rule)]
        return cls(
            f"{solved.problem}|{solved.tree_digest}|{answers}\n".encode(),
            solved.level,
            solved.correct,
            solved.any_correct,
            solved.undecided,
            solved.limit,
            len(solved.completions),
            None
            if question is None
            else f"{solved.problem}|{question}\n".encode(errors="backslashreplace"),
            solved.answers.get(rule) is not None,
        )

    def right(self, rule: str) -> bool:
        return bool(self.correct and self.correct.get(rule))


def _by_rule(judged: list[_Solved]) -> dict[str, float | None]:
    rules = {rule for problem in judged for rule in problem.correct or ()}
    return {rule: fraction(each.right(rule) for each in judged) for rule in sorted(rules)}


def _questions(solved: Sequence[_Solved]) -> Json:
    """The hash of what was asked; nothing where a question is not known."""
    asked = [problem.asked for problem in solved if problem.asked is not None]
    return {"questions": _digest(asked)} if asked and len(asked) == len(solved) else {}


def _digest(parts: Iterable[bytes]) -> str:
    """One hash over what each problem adds to it, in order of problem id."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part)
    return sha.hexdigest()
