"""The table of measures: name, unit, definition, source and function of every number of a run.

summary.json, pages and `Run.measures` take their numbers from it, and docs/reference/measures.md
shows it: `python -m tests.runs.measures_page` writes it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tts.build.spec import ROLES, Role

from .clustered import Estimate, auroc, expected_error
from .measures import Measures
from .statistics import quantile, rounded, wilson

MeasureValue = float | int | None
MeasureSection = Literal["quality", "throughput", "latency", "engines", "speculation", "machine"]
"""A part of the page that holds the measures."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a run."""

    name: str
    unit: str
    """`share` is within [0, 1]."""
    definition: str
    """A sentence or two in Markdown, with the formula."""
    value: Callable[[Measures], MeasureValue]
    """The function of its value, rounded; None where the run does not say it."""
    source: str = ""
    """Where the definition is from; empty for one of this project."""
    key: str = ""
    """Its place in summary.json, such as `waste.share`; empty where that does not hold it."""


def summary_values(measures: Measures) -> dict[str, Any]:
    """The measures that summary.json holds, at their places in it."""
    data: dict[str, Any] = {}
    for measure in ALL:
        *above, key = measure.key.split(".")
        if key:
            part = data.setdefault(above[0], {}) if above else data
            part[key] = measure.value(measures)
    return data


def _quality() -> Iterator[Measure]:
    yield Measure(
        "problems", "problems", "Solved problems.", lambda run: len(run.problems), key="problems"
    )
    yield Measure(
        "accuracy",
        "share",
        "Judged problems whose answer, by the strategy's vote, equals the reference. A comparison "
        "that the grader cannot decide counts as wrong.",
        lambda run: rounded(run.accuracy(run.config.vote), 4),
        key="accuracy",
    )
    for end, place in (("low", 0), ("high", 1)):
        yield Measure(
            f"accuracy_{end}_95",
            "share",
            "Ends of the 95% interval of accuracy p: (p + z²/2m ∓ z √(p(1-p)/m + z²/4m²)) / "
            "(1 + z²/m), m judged problems, z = 1.96.",
            _accuracy_95(place),
            source="Wilson 1927",
        )
    yield Measure(
        "pass_at_n",
        "share",
        "Judged problems with at least one correct completion.",
        lambda run: rounded(_over(run.any_right, run.judged), 4),
        key="pass_at_n",
    )
    yield Measure(
        "verifier_auroc",
        "share",
        "Probability that a correct completion scores above a wrong one, over all problems; ties "
        "count half.",
        lambda run: _estimated(auroc(run.calibration.observations)),
        source="Hanley and McNeil 1982",
    )
    yield Measure(
        "verifier_calibration_error",
        "share",
        "Expected calibration error: Σ over 10 equal bins of completions' scores of (completions "
        "in the bin / all) · |mean score - share correct|.",
        lambda run: _estimated(expected_error(run.calibration.observations)),
        source="Naeini et al. 2015",
    )


def _throughput() -> Iterator[Measure]:
    yield Measure(
        "wall",
        "s",
        "Time of searching, as defined above.",
        lambda run: rounded(run.wall_s, 3),
        key="wall_s",
    )
    yield Measure(
        "problem_throughput",
        "problems/s",
        "problems / wall.",
        lambda run: rounded(_over(len(run.problems), run.wall_s), 4),
        key="problems_per_s",
    )
    yield Measure(
        "generated_tokens",
        "tokens",
        "Tokens of all generator answers, without cancelled requests.",
        lambda run: run.generated_tokens,
        key="generated_tokens",
    )
    yield Measure(
        "critique_tokens",
        "tokens",
        "Tokens of all verifier answers: of critiques, 0 where it gives labels or a head.",
        lambda run: run.run.work.critique_tokens,
        key="critique_tokens",
    )
    yield Measure(
        "compute",
        "FLOPs",
        "Σ over both models of 2 N · tokens, for solved problems: see [Compute](#compute).",
        lambda run: run.compute,
        source="Kaplan et al. 2020 (arXiv 2001.08361)",
        key="compute",
    )
    yield Measure(
        "token_throughput",
        "tokens/s",
        "generated_tokens / wall.",
        lambda run: rounded(_over(run.generated_tokens, run.wall_s), 2),
        key="tokens_per_s",
    )
    yield Measure(
        "useful_token_throughput",
        "tokens/s",
        "Tokens of the nodes on the paths of solved problems' completions, each node counted once, "
        "/ wall.",
        lambda run: rounded(_over(run.useful_tokens, run.wall_s), 2),
    )
    yield Measure(
        "useful_share",
        "share",
        "The same tokens / generated_tokens. The rest was pruned, speculated without use, or "
        "belongs to unsolved problems.",
        lambda run: rounded(_over(run.useful_tokens, run.generated_tokens), 4),
    )
    yield Measure(
        "precise_goodput",
        "tokens/s",
        "Mean tokens of a completion's path / mean time from its problem's start until it was "
        "generated and scored, of problems solved within one session: the speed of *one* beam.",
        lambda run: rounded(run.goodput, 3),
        source="FastTTS (arXiv 2509.00195), where one problem runs at a time",
    )


def _latency() -> Iterator[Measure]:
    yield from _percentiles(
        "latency",
        "the time per problem, grading included, in the session that solved it",
        lambda run: run.latencies_s,
        (50, 95, 99),
    )
    yield from _percentiles(
        "time_to_first_step",
        "the time from a problem's start to the generator's first answer, of problems solved "
        "within one session",
        lambda run: run.first_steps_s,
    )
    yield from _percentiles(
        "time_per_token",
        "time in flight / generated tokens of a generator request, with its queueing and prefill",
        lambda run: run.requests["generator"].seconds_per_token,
        digits=6,
    )


def _requests(engine: Role) -> Iterator[Measure]:
    generates = engine == "generator"
    yield Measure(
        f"{engine}_requests",
        "requests",
        f"Answered requests{', including prefetched prompts' if generates else ''}.",
        lambda run: run.requests[engine].count,
    )
    yield from _percentiles(
        f"{engine}_request",
        "the time in flight of answered requests",
        lambda run: run.requests[engine].seconds,
    )
    yield Measure(
        f"{engine}_tokens_per_request",
        "tokens",
        "Mean prompt and generated tokens of an answered request, cached prefixes included.",
        lambda run: rounded(
            _over(run.requests[engine].total_tokens, run.requests[engine].count), 1
        ),
    )
    yield Measure(
        f"{engine}_in_flight",
        "requests" if generates else "prompt tokens",
        f"Mean {'requests' if generates else 'prompt tokens'} in flight: Σ "
        f"{'' if generates else 'prompt tokens · '}time in flight / wall (Little's law), cancelled "
        f"requests included.{'' if generates else ' Of a verifier that writes: critiques.'}",
        lambda run: rounded(run.mean_in_flight(engine), 3),
    )
    limit = "in_flight_requests" if generates else "in_flight_tokens` or `in_flight_requests"
    beyond = "" if generates else " Can exceed 1, as a larger request is sent alone."
    yield Measure(
        f"{engine}_batch_utilization",
        "share",
        f"{engine}_in_flight / `{limit}` of the deployment.{beyond}",
        lambda run: rounded(run.batch_utilization(engine), 4),
    )
    yield Measure(
        f"{engine}_idle",
        "share",
        "Time with nothing in flight / wall; for reasons see [`idle` events](run-log.md#events).",
        lambda run: rounded(_over(sum(run.idle_s[engine].values()), run.wall_s), 4),
    )


def _engines() -> Iterator[Measure]:
    for engine in ROLES:
        yield from _requests(engine)
    yield Measure(
        "score_cache_hit_rate",
        "share",
        "Scores taken from an equal dialogue that was scored before or is being scored / all "
        "scores.",
        lambda run: rounded(run.run.work.cache_hit_rate, 4),
    )


def _speculation() -> Iterator[Measure]:
    yield Measure(
        "speculation_sent",
        "requests",
        "Expansions sent before their search asked for them.",
        lambda run: run.speculation.sent,
        key="speculation.sent",
    )
    yield Measure(
        "speculation_used",
        "requests",
        "Speculative expansions that their search asked for later.",
        lambda run: run.speculation.used,
        key="speculation.used",
    )
    yield Measure(
        "speculation_hit_rate",
        "share",
        "speculation_used / speculation_sent.",
        lambda run: rounded(run.speculation.hit_rate, 4),
        key="speculation.hit_rate",
    )
    yield Measure(
        "speculation_wasted_tokens",
        "tokens",
        "Tokens of answered speculative expansions that were never used.",
        lambda run: run.speculation.unused_tokens,
        key="waste.unused_tokens",
    )
    yield Measure(
        "thinking_tokens",
        "tokens",
        "Tokens of the thinking before answers, with the texts that closed it at a budget.",
        lambda run: run.run.work.thinking_tokens,
        key="thinking.tokens",
    )
    yield Measure(
        "unclosed",
        "completions",
        "Completions that ended inside their thinking: without an answer, and without a vote.",
        lambda run: run.unclosed,
        key="thinking.unclosed",
    )
    yield Measure(
        "unended",
        "completions",
        "Completions whose chains came to the most steps or tokens, without searches that a budget "
        "or deadline cut off.",
        lambda run: run.unended,
        key="unended",
    )
    yield Measure(
        "no_verdict",
        "critiques",
        "Critiques from which no verdict can be read, and candidates on which a command failed.",
        lambda run: run.run.work.no_verdict,
        key="no_verdict",
    )
    yield Measure(
        "lost_tokens",
        "tokens",
        "Tokens of answers for which the budget of their problem had no room.",
        lambda run: run.lost_tokens,
        key="waste.lost_tokens",
    )
    yield Measure(
        "waste",
        "share",
        "(speculation_wasted_tokens + lost_tokens) / generated_tokens, without those of cancelled "
        "requests, which the client does not see.",
        lambda run: rounded(
            _over(run.speculation.unused_tokens + run.lost_tokens, run.generated_tokens), 4
        ),
        key="waste.share",
    )


def _machine() -> Iterator[Measure]:
    yield Measure(
        "orchestrator_cpu",
        "s",
        "CPU time of the orchestrator's process during the run, without the grader's workers and "
        "the server; other searches in the process count.",
        lambda run: rounded(run.cpu_s, 3),
    )
    yield Measure(
        "orchestrator_cpu_share",
        "cores",
        "orchestrator_cpu / time of the sessions. Near 1.0 the orchestrator is the bottleneck.",
        lambda run: rounded(run.cpu_share, 4),
    )
    yield Measure(
        "gpu_energy",
        "J",
        "Energy used by all GPUs of the orchestrator's machine during the run, by whichever "
        "program, from NVML's energy counter (Volta and later; extra `energy`). Tested with a "
        "stand-in, **never on a GPU**.",
        lambda run: rounded(run.energy_j, 1),
    )
    yield Measure(
        "gpu_energy_per_problem",
        "J",
        "gpu_energy / solved problems.",
        lambda run: rounded(_over(run.energy_j, len(run.problems)), 2),
    )


def _accuracy_95(place: int) -> Callable[[Measures], MeasureValue]:
    """The low end (0) or the high end (1) of the accuracy's interval."""

    def value_of(measures: Measures) -> MeasureValue:
        accuracy = measures.accuracy(measures.config.vote)
        return None if accuracy is None else round(wilson(accuracy, measures.judged)[place], 4)

    return value_of


def _estimated(estimate: Estimate | None) -> float | None:
    return round(estimate.value, 4) if estimate else None


def _over(value: float | None, total: float) -> float | None:
    return value / total if value is not None and total else None


def _percentiles(
    name: str,
    of: str,
    values_of: Callable[[Measures], Iterable[float]],
    percents: Iterable[int] = (50, 95),
    digits: int = 4,
) -> Iterator[Measure]:
    """Percentiles of a run's times, a measure each."""
    for percent in percents:
        value = partial(_percentile, values_of=values_of, percent=percent, digits=digits)
        yield Measure(f"{name}_p{percent}", "s", f"Percentiles of {of}.", value)


def _percentile(
    run: Measures, values_of: Callable[[Measures], Iterable[float]], percent: int, digits: int
) -> float | None:
    return rounded(quantile(values_of(run), percent / 100), digits)


MEASURES: Mapping[MeasureSection, tuple[Measure, ...]] = {
    "quality": tuple(_quality()),
    "throughput": tuple(_throughput()),
    "latency": tuple(_latency()),
    "engines": tuple(_engines()),
    "speculation": tuple(_speculation()),
    "machine": tuple(_machine()),
}
"""Every measure, in the order in which docs/reference/measures.md shows them."""
ALL = tuple(measure for section in MEASURES.values() for measure in section)
