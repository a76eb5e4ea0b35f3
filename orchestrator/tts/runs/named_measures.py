"""The table of measures: name, unit, definition, source and function of every number of a run.

docs/reference/measures.md shows this table; `python -m tests.runs.measures_page` writes it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .measured_run import MeasuredRun
from .records import ENGINES, Engine
from .statistics import QuantileSketch, quantile, rounded, wilson

Value = float | int | None
Section = Literal["quality", "throughput", "latency", "engines", "speculation", "machine"]
"""A part of the page that holds the measures."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a run."""

    name: str
    unit: str
    """`share` is within [0, 1]."""
    definition: str
    """A sentence or two in Markdown, with the formula."""
    value_of: Callable[[MeasuredRun], Value]
    """Its value, rounded; None where the run does not say it."""
    source: str = ""
    """Where the definition is from; empty for one of this project."""


@dataclass(frozen=True, slots=True)
class NamedValue:
    """The value of a measure for a run; None where the run does not say it."""

    name: str
    value: Value
    unit: str


def named_measures(run: MeasuredRun) -> list[NamedValue]:
    """Every measure of a run, always all of them and in the same order."""
    measures = (each for section in MEASURES.values() for each in section)
    return [NamedValue(each.name, each.value_of(run), each.unit) for each in measures]


def _quality() -> Iterator[Measure]:
    yield Measure(
        "problems",
        "problems",
        "Solved problems.",
        lambda run: len(run.measures.problems),
    )
    yield Measure(
        "accuracy",
        "share",
        "Judged problems whose answer, by the run's own vote, equals the reference; an undecided "
        "comparison is wrong.",
        lambda run: rounded(run.accuracy, 4),
    )
    for end, place in (("low", 0), ("high", 1)):
        yield Measure(
            f"accuracy_{end}_95",
            "share",
            f"The {'lower' if end == 'low' else 'upper'} end of its 95% interval: (p + z²/2m "
            f"{'-' if end == 'low' else '+'} z √(p(1-p)/m + z²/4m²)) / (1 + z²/m), m judged "
            "problems, z = 1.96. Tables have it by level and by rule, too.",
            _accuracy_95(place),
            "Wilson 1927",
        )
    yield Measure(
        "pass_at_n",
        "share",
        "Judged problems of which any completion is right.",
        _pass_at_n,
    )
    yield Measure(
        "verifier_auroc",
        "share",
        "The chance that a right completion is scored above a wrong one of any problem, ties "
        "counting half.",
        lambda run: rounded(run.measures.calibration.auroc, 4),
        "Hanley and McNeil 1982",
    )
    yield Measure(
        "verifier_calibration_error",
        "share",
        r"Σ over 10 equal bins of completions' scores: (completions in the bin / all) · \|mean "
        r"score - share right\|.",
        lambda run: rounded(run.measures.calibration.expected_error, 4),
        "Naeini et al. 2015",
    )


def _throughput() -> Iterator[Measure]:
    yield Measure(
        "wall",
        "s",
        "The time of searching, see above.",
        lambda run: round(run.measures.wall_s, 3),
    )
    yield Measure(
        "problem_throughput",
        "problems/s",
        "problems / wall. summary.json has it as `problems_per_s`.",
        lambda run: rounded(_over(len(run.measures.problems), run.measures.wall_s), 4),
    )
    yield Measure(
        "generated_tokens",
        "tokens",
        "Tokens of all answers of the generator; not of cancelled requests.",
        lambda run: run.measures.generated_tokens,
    )
    yield Measure(
        "token_throughput",
        "tokens/s",
        "generated_tokens / wall. summary.json has it as `tokens_per_s`.",
        lambda run: rounded(_over(run.measures.generated_tokens, run.measures.wall_s), 2),
    )
    yield Measure(
        "useful_token_throughput",
        "tokens/s",
        "Tokens of the nodes on the paths of the completions of solved problems, each node once, "
        "/ wall. Never above token_throughput.",
        lambda run: rounded(_over(run.measures.useful_tokens, run.measures.wall_s), 2),
    )
    yield Measure(
        "useful_share",
        "share",
        "The same over generated_tokens. What is missing was pruned, speculated in vain, or "
        "belongs to unsolved problems: a search has to write it, but nothing of it is in an "
        "answer.",
        lambda run: rounded(_over(run.measures.useful_tokens, run.measures.generated_tokens), 4),
    )
    yield Measure(
        "precise_goodput",
        "tokens/s",
        "Mean tokens of a completion's path / mean time from its problem's start until it was "
        "written and scored, over all completions of problems that one session has solved. It is "
        "the speed at which *one* accepted beam grows; many grow at once, and those of one problem "
        "share beginnings.",
        lambda run: rounded(run.measures.goodput, 3),
        "FastTTS (arXiv 2509.00195), where one problem runs at a time",
    )


def _latency() -> Iterator[Measure]:
    for percent in (50, 95, 99):
        yield Measure(
            f"latency_p{percent}",
            "s",
            "Per problem, from `problem_started` to `problem_solved`, grading included, in the "
            f"session that solved it: the smallest time that {percent}% are not above.",
            _percentile(
                percent, lambda run: [problem.seconds for problem in run.measures.problems.values()]
            ),
        )
    for percent in (50, 95):
        yield Measure(
            f"time_to_first_step_p{percent}",
            "s",
            "From a problem's start to the generator's first answer; problems of one session only.",
            _percentile(
                percent,
                lambda run: [
                    problem.tree.first_step_s for problem in run.measures.problems.values()
                ],
            ),
        )
    for percent in (50, 95):
        yield Measure(
            f"time_per_token_p{percent}",
            "s",
            "Over generator requests: time in flight / generated tokens. An upper bound of the "
            "engine's time per token, as it holds waiting and the prompt.",
            _sketched(percent, lambda run: run.measures.requests["generator"].seconds_per_token),
        )


def _requests(engine: Engine) -> Iterator[Measure]:
    generates = engine == "generator"
    yield Measure(
        f"{engine}_requests",
        "requests",
        f"Answered requests{', prompts that were sent ahead among them' if generates else ''}.",
        lambda run: run.measures.requests[engine].seconds.count,
    )
    for percent in (50, 95):
        yield Measure(
            f"{engine}_request_p{percent}",
            "s",
            f"Time in flight of answered requests: {percent}% are not above it.",
            _sketched(percent, lambda run: run.measures.requests[engine].seconds),
        )
    yield Measure(
        f"{engine}_tokens_per_request",
        "tokens",
        "Mean prompt and generated tokens of an answered request: what is scheduled for it, if the "
        "engine has nothing of the prompt in its prefix cache."
        if generates
        else "Mean prompt tokens of an answered request.",
        lambda run: rounded(run.measures.requests[engine].scheduled_tokens.mean, 1),
    )
    yield Measure(
        f"{engine}_in_flight",
        "requests" if generates else "prompt tokens",
        "Σ load · time in flight / wall (Little's law): load 1 on the generator, prompt tokens on "
        "the verifier; cancelled requests as long as they were in flight.",
        lambda run: rounded(run.measures.mean_in_flight(engine), 3),
    )
    limit = "in_flight_requests" if generates else "in_flight_tokens"
    beyond = "" if generates else " A request larger than it is sent alone, so this may pass 1."
    yield Measure(
        f"{engine}_batch_utilization",
        "share",
        f"The same over the policy's limit (`{limit}` of the deployment), which the log's "
        f"`session` event holds.{beyond}",
        lambda run: rounded(run.measures.batch_utilization(engine), 4),
    )
    yield Measure(
        f"{engine}_idle",
        "share",
        "Time with nothing in flight / wall; by cause in the [`idle` events](run-log.md#events).",
        lambda run: rounded(
            _over(sum(run.measures.use.idle_s[engine].values()), run.measures.wall_s), 4
        ),
    )


def _engines() -> Iterator[Measure]:
    for engine in ENGINES:
        yield from _requests(engine)
    yield Measure(
        "score_cache_hit_rate",
        "share",
        "Scores that needed no request of their own (an equal step was scored before, or was being "
        "scored) / all scores.",
        lambda run: rounded(run.measures.run.work.cache_hit_rate, 4),
    )


def _speculation() -> Iterator[Measure]:
    yield Measure(
        "speculation_sent",
        "requests",
        "Expansions that were sent before their search asked for them.",
        lambda run: run.measures.use.speculation.sent,
    )
    yield Measure(
        "speculation_used",
        "requests",
        "Those that it asked for in the end.",
        lambda run: run.measures.use.speculation.used,
    )
    yield Measure(
        "speculation_hit_rate",
        "share",
        "used / sent.",
        lambda run: rounded(run.measures.use.speculation.hit_rate, 4),
    )
    yield Measure(
        "speculation_wasted_tokens",
        "tokens",
        "Tokens of answered ones that it never asked for.",
        lambda run: run.measures.use.speculation.unused_tokens,
    )
    yield Measure(
        "cancelled_tokens_estimated",
        "tokens",
        "What cancelled generator requests had generated, which the client does not see: at the "
        "speed of the 16 answered ones sent nearest to each.",
        lambda run: round(run.measures.use.cancelled_tokens),
    )
    yield Measure(
        "waste",
        "share",
        "(The last two) / (generated_tokens + cancelled_tokens_estimated).",
        lambda run: rounded(run.measures.use.waste, 4),
    )


def _machine() -> Iterator[Measure]:
    yield Measure(
        "orchestrator_cpu",
        "s",
        "Processor time (user and system, all threads) of the orchestrator's process while the run "
        "was carried out, from the `resources` events; the grader's workers and the server are "
        "processes of their own. Other searches of the same process are in it.",
        lambda run: rounded(run.measures.cpu_s, 3),
    )
    yield Measure(
        "orchestrator_cpu_share",
        "cores",
        "The same over the time of the sessions that say it: near 1.0 the orchestrator itself is "
        "the bottleneck.",
        lambda run: rounded(run.measures.cpu_share, 4),
    )
    yield Measure(
        "gpu_energy",
        "J",
        "What the GPUs of the orchestrator's machine have consumed during the run, by NVML's "
        "energy counter (`nvmlDeviceGetTotalEnergyConsumption`, Volta and later), where the extra "
        "`energy` is installed: `pip install '.[energy]'`. All GPUs of the machine and "
        "whatever runs on them; a server elsewhere is not seen. Tested with a stand-in of NVML: "
        "**it was never run on a GPU**.",
        lambda run: rounded(run.measures.energy_j, 1),
    )
    yield Measure(
        "gpu_energy_per_problem",
        "J",
        "The same over solved problems.",
        lambda run: rounded(_over(run.measures.energy_j, len(run.measures.problems)), 2),
    )


def _accuracy_95(place: int) -> Callable[[MeasuredRun], Value]:
    """The low end (0) or the high end (1) of the accuracy's interval, as a function of the run."""

    def value_of(run: MeasuredRun) -> Value:
        if run.accuracy is None:
            return None
        return round(wilson(run.accuracy, len(run.measures.judged()))[place], 4)

    return value_of


def _pass_at_n(run: MeasuredRun) -> float | None:
    judged = run.measures.judged()
    return rounded(_over(sum(bool(problem.any_correct) for problem in judged), len(judged)), 4)


def _over(value: float | None, total: float) -> float | None:
    return value / total if value is not None and total else None


def _percentile(
    percent: int, values_of: Callable[[MeasuredRun], list[float | None]]
) -> Callable[[MeasuredRun], Value]:
    """A percentile of a run's values, those left out that it does not know."""

    def value_of(run: MeasuredRun) -> Value:
        known = [value for value in values_of(run) if value is not None]
        return rounded(quantile(known, percent / 100), 4)

    return value_of


def _sketched(
    percent: int, sketch_of: Callable[[MeasuredRun], QuantileSketch]
) -> Callable[[MeasuredRun], Value]:
    """The same of a sketch, to three digits, as it is right to 1%."""

    def value_of(run: MeasuredRun) -> Value:
        value = sketch_of(run).quantile(percent / 100)
        return None if value is None else float(f"{value:.3g}")

    return value_of


MEASURES: Mapping[Section, tuple[Measure, ...]] = {
    "quality": tuple(_quality()),
    "throughput": tuple(_throughput()),
    "latency": tuple(_latency()),
    "engines": tuple(_engines()),
    "speculation": tuple(_speculation()),
    "machine": tuple(_machine()),
}
"""Every measure, in the order in which docs/reference/measures.md shows them."""
