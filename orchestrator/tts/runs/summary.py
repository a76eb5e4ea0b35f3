"""A run's summary: what summary.json holds, derived from the run's log and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Annotated, Any, Self, get_args

import msgspec

from tts.base.errors import RunError
from tts.build.spec import Role
from tts.search import Limit
from tts.strategies.strategy import Vote

from .checks import read_summary_fields
from .config import RunConfig
from .events import LoggedCount
from .folder import SUMMARY, Json
from .measures import Measures
from .named_measures import summary_values
from .statistics import quantile, rounded
from .verdicts import alarms

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Number = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Flops = Annotated[float, msgspec.Meta(ge=0, le=1e30)]


class MeanInFlight(msgspec.Struct, frozen=True):
    """Answered requests in flight on each engine, on average over the wall time."""

    generator: Number | None
    verifier: Number | None


class Latency(msgspec.Struct, frozen=True):
    """Seconds from the start of a problem to its result, grading included, over problems."""

    median: Number | None
    p95: Number | None


class SpeculationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Expansions that were sent before their search asked for them, and what became of them."""

    sent: LoggedCount
    answered: LoggedCount = 0
    used: LoggedCount
    """Their search asked for these in the end."""
    cancelled: dict[str, LoggedCount]
    """Cancelled expansions by reason."""
    hit_rate: Share | None
    """Used over sent; None where none was sent."""

    def __post_init__(self) -> None:
        if self.sent and self.hit_rate is None:
            raise ValueError("`hit_rate` is null, although expansions were sent")


class Waste(msgspec.Struct, frozen=True, omit_defaults=True):
    """Generated tokens that no search needed, without those of cancelled requests: the client does
    not see them.
    """

    unused_tokens: LoggedCount
    """Tokens of speculative answers that were never asked for."""
    share: Share | None
    """Their share of all generated tokens; None where there are none."""
    lost_tokens: LoggedCount = 0
    """Tokens of answers for which the budget of their problem had no room; missing if there are
    none."""


class ThinkingCounts(msgspec.Struct, frozen=True):
    """What a generator thought before its answers."""

    tokens: LoggedCount
    """Tokens of the thinking, with the texts that closed it where a budget ended."""
    unclosed: LoggedCount
    """Completions that ended inside their thinking: without an answer, and without a vote."""


class ServerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one of several servers did."""

    generated_tokens: LoggedCount = 0
    generator_requests: LoggedCount = 0
    verifier_requests: LoggedCount = 0


class LevelResults(msgspec.Struct, frozen=True):
    """The judged problems of one level."""

    problems: LoggedCount
    accuracy: Share | None


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The results of a run: summary.json, whose keys are these fields in this order.

    A field with a default is missing where its documentation says so.
    """

    problems: LoggedCount
    """Solved problems."""
    judged: LoggedCount | None = None
    """How many of them have a reference; missing if all have."""
    accuracy: Share | None
    """Share of the judged problems that the run's own vote has right."""
    wall_s: Number
    """Seconds of searching, all sessions together: no server start, no model load."""
    problems_per_s: Number | None
    generated_tokens: LoggedCount
    """Tokens of all answers of the generator."""
    tokens_per_s: Number | None
    """Generated tokens over the wall time."""
    thinking: ThinkingCounts | None = None
    """Missing where the generator did not think."""
    generator_calls: LoggedCount
    """Answered requests to the generator."""
    verifier_calls: LoggedCount
    """Answered requests to the verifier."""
    verifier_cached: LoggedCount
    """Scores that needed no request."""
    verifier_tokens: LoggedCount
    """Prompt tokens of the requests to the verifier."""
    critique_tokens: LoggedCount = 0
    """Tokens of all answers of the verifier; missing where it wrote none."""
    no_verdict: LoggedCount = 0
    """Critiques without a verdict, and candidates on which a command failed; missing where none."""
    compute: Flops | None = None
    """FLOPs of both models, with perfect reuse of prefixes; missing where the size of one is not
    known."""
    mean_in_flight: MeanInFlight
    servers: dict[str, ServerCounts] | None = None
    """The work of each server, by address; missing unless there were several."""
    latency_s: Latency
    idle_s: dict[Role, dict[str, Number]]
    """Seconds in which an engine was idle, by reason; with several servers the mean."""
    speculation: SpeculationCounts
    waste: Waste
    strategy: str
    schedule: str
    seed: int
    n: LoggedCount | None
    """Completions of a problem; None of a program's own search."""
    vote: Vote
    """The rule that chooses the answers."""
    parameters: dict[str, bool | int | float | str | dict[str, Any] | None]
    """The strategy's."""
    context: int | None = None
    """Tokens that the generator's sequences may have."""
    deployment: str
    dataset: str
    accuracy_by_rule: dict[Vote, Share | None]
    pass_at_n: Share | None
    """Share of the judged problems that have a right completion."""
    pass_at_k: dict[str, Share] | None = None
    """How likely one of k completions is right, by k: the unbiased estimator of Chen et al.
    (2021); missing where completions are not independent."""
    accuracy_by_level: dict[str, LevelResults]
    undecided: LoggedCount
    """Comparisons of answers that could not be decided, which count as wrong."""
    introspective_answers: LoggedCount = 0
    """Different answers in code that name `_getframe`, `__eq__`, `gc` or the like, as code that
    deceives its tests does; missing where none does."""
    sessions: LoggedCount
    tree_digest: str
    """One hash over every problem's tree and answers."""
    questions: str
    """One hash over every problem's id and question: only runs in which it is equal can be
    compared."""
    limits: dict[str, int | float] | None = None
    """The limits of each problem; missing in runs without limits."""
    limited: dict[Limit, LoggedCount] | None = None
    """How many searches each limit ended; missing in runs without limits."""
    unanswered: LoggedCount | None = None
    """How many of these have no answer; missing in runs without limits."""
    fitted_to: dict[str, int | float] | None = None
    """The mean cost of a problem to which n was fitted; missing where it was not."""
    mean_completions: float | None = None
    """Completions per problem; missing where every problem has n."""
    verifier: list[str] | None = None
    """What the labels say against the verifier: that its scores were worthless, inverted, constant
    or saturated, in sentences; missing where they say nothing of the kind."""
    unended: LoggedCount = 0
    """Completions that the most steps or tokens of a chain ended; missing where there are none."""

    def __post_init__(self) -> None:
        if len(self.idle_s) < 2:
            raise ValueError("`idle_s` lacks an engine")

    @property
    def completions(self) -> int:
        """Completions of all problems."""
        each = self.n if self.mean_completions is None else self.mean_completions
        return round(self.problems * (each or 0))

    @property
    def search(self) -> tuple[Hashable, ...]:
        """What was asked, and how it was searched: where it is equal, so are the trees."""
        parameters = json.dumps(self.parameters, sort_keys=True)
        limits = tuple(sorted((self.limits or {}).items()))
        return self.questions, self.strategy, self.seed, self.deployment, parameters, limits

    @classmethod
    def of_json(cls, data: Json) -> Self:
        """The summary with these fields, as summary.json has them.

        Raises msgspec.ValidationError, naming what is missing or not as it must be.
        """
        return msgspec.convert(data, cls)

    def to_json(self) -> Json:
        """The fields as plain data, as summary.json has them."""
        data: Json = msgspec.to_builtins(self)
        return data


def read_summary(folder: Path) -> Summary:
    """The summary of a finished run; raises RunError if there is none, or it does not fit."""
    data = read_summary_fields(folder)
    try:
        return Summary.of_json(data)
    except msgspec.ValidationError as error:
        raise RunError(
            f"{folder / SUMMARY} is not the summary of a run: {error}.",
            hint="It was damaged. It is derived from the log: remove it, and the run writes it "
            f"again when it is continued: tts bench --resume {folder}",
        ) from error


def summarise(config: RunConfig, measures: Measures) -> Summary:
    """The summary of a run that was asked to be `config`, from what its log adds up to.

    Mean in-flight work is the sum of the requests' durations over the wall time (Little's law).
    """
    work, rule, problems = measures.run.work, config.vote, measures.problems
    n = config.parameters["n"]
    warnings = alarms(measures.calibration.observations, "completion")
    trees, questions = hashlib.sha256(), hashlib.sha256()  # in order of problem id
    limited, completions = Counter[str](), Counter[int]()
    undecided = introspective = unanswered = 0
    for name in sorted(problems):
        each = problems[name]
        answers = [each.answers[vote] for vote in get_args(Vote)]
        trees.update(f"{name}|{each.tree_digest}|{answers}\n".encode())
        questions.update(f"{name}|{each.question}\n".encode())
        completions[each.completions] += 1
        if each.correct is not None:
            undecided += each.undecided
            introspective += each.introspective
        if each.limit:
            limited[each.limit] += 1
            unanswered += each.answers.get(rule) is None
    limits = {
        "limits": msgspec.to_builtins(config.limits),
        "limited": dict(limited),
        "unanswered": unanswered,
    }
    mean = sum(size * count for size, count in completions.items()) / max(1, len(problems))
    shares = measures.curve.pass_over_k() if measures.curve else {}
    return Summary.of_json(
        {
            **_measured(measures),
            **({"judged": measures.judged} if measures.judged < len(problems) else {}),
            "generator_calls": work.generator_calls,
            "verifier_calls": work.verifier_calls,
            "verifier_cached": work.cached_scores,
            "verifier_tokens": work.verifier_tokens,
            **_engine_use(measures),
            "strategy": config.strategy,
            "schedule": config.schedule,
            "seed": config.seed,
            "n": n,
            "vote": rule,
            "parameters": config.parameters,
            "context": config.context,
            "deployment": config.deployment,
            "dataset": config.dataset,
            "accuracy_by_rule": {
                each: rounded(measures.accuracy(each), 4) for each in sorted(measures.right)
            },
            **({"pass_at_k": {str(k): round(v, 4) for k, v in shares.items()}} if shares else {}),
            "accuracy_by_level": accuracy_by_level(
                (problem.level, problem.right(rule)) for problem in measures.judged_problems()
            ),
            "undecided": undecided,
            "introspective_answers": introspective,
            "sessions": measures.run.sessions,
            "tree_digest": trees.hexdigest(),
            "questions": questions.hexdigest(),
            **(limits if config.limits else {}),
            **({"fitted_to": msgspec.to_builtins(config.fitted_to)} if config.fitted_to else {}),
            **({"mean_completions": round(mean, 3)} if completions.keys() - {n} else {}),
            **({"verifier": warnings} if warnings else {}),
        }
    )


def _measured(measures: Measures) -> Json:
    """The parts that the table of measures gives, and what else there is in them."""
    data = summary_values(measures)
    ahead = measures.speculation
    data["speculation"] |= {
        "answered": ahead.answered,
        "cancelled": dict(sorted(ahead.cancelled.items())),
    }
    if not data["thinking"]["tokens"]:
        del data["thinking"]
    return data


def _engine_use(measures: Measures) -> Json:
    """The parts on time and engines."""
    wall_s, latencies_s = measures.wall_s, measures.latencies_s
    servers = {
        name: {
            "generated_tokens": work.generated_tokens,
            "generator_requests": work.generator_calls,
            "verifier_requests": work.verifier_calls + work.cached_scores,
        }
        for name, work in sorted(measures.servers.items())
    }
    return {
        "mean_in_flight": {
            engine: rounded(requests.busy_s / wall_s if wall_s else None, 3)
            for engine, requests in measures.requests.items()
        },
        **({"servers": servers} if servers else {}),
        "latency_s": {
            "median": rounded(quantile(latencies_s, 0.5), 3),
            "p95": rounded(quantile(latencies_s, 0.95), 3),
        },
        "idle_s": {
            engine: {why: round(seconds, 3) for why, seconds in by_why.items()}
            for engine, by_why in measures.idle_s.items()
        },
    }


def accuracy_by_level(
    answers: Iterable[tuple[int | str | None, bool]],
) -> dict[str, dict[str, Any]]:
    """Problems and accuracy of each level, from each problem's level and whether it is right."""
    levels: dict[str, list[bool]] = {}
    for level, right in answers:
        if level is not None:
            levels.setdefault(str(level), []).append(right)
    return {
        level: {"problems": len(rights), "accuracy": round(sum(rights) / len(rights), 4)}
        for level, rights in sorted(levels.items())
    }
