"""The measures of a run by name, as docs/metrics.md defines them: for tables and programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .intervals import wilson
from .measured_run import MeasuredRun
from .measures import EngineRequests, Measures
from .quantiles import QuantileSketch
from .records import ENGINES
from .statistics import quantile

Value = float | int | None


@dataclass(frozen=True, slots=True)
class Measure:
    """One number; None where the run does not say it."""

    name: str
    value: Value
    unit: str
    """`share` is within [0, 1]."""


def named_measures(run: MeasuredRun) -> list[Measure]:
    """Every measure of a run, always all of them and in the same order."""
    measures = run.measures
    parts = (_quality(run), _throughput(measures), _latency(measures), _requests(measures))
    rest = (_speculation(measures), _machine(measures))
    return [measure for part in (*parts, *rest) for measure in part]


def _quality(run: MeasuredRun) -> Iterator[Measure]:
    judged = run.measures.judged()
    yield Measure("problems", len(run.measures.problems), "problems")
    yield Measure("accuracy", _rounded(run.accuracy, 4), "share")
    low, high = (None, None) if run.accuracy is None else wilson(run.accuracy, len(judged))
    yield Measure("accuracy_low_95", _rounded(low, 4), "share")
    yield Measure("accuracy_high_95", _rounded(high, 4), "share")
    any_right = _over(sum(bool(problem.any_correct) for problem in judged), len(judged))
    yield Measure("pass_at_n", _rounded(any_right, 4), "share")
    yield Measure("verifier_auroc", _rounded(run.measures.calibration.auroc, 4), "share")
    error = run.measures.calibration.expected_error
    yield Measure("verifier_calibration_error", _rounded(error, 4), "share")


def _throughput(measures: Measures) -> Iterator[Measure]:
    wall = measures.wall_s
    yield Measure("wall", round(wall, 3), "s")
    yield Measure(
        "problem_throughput", _rounded(_over(len(measures.problems), wall), 4), "problems/s"
    )
    yield Measure("generated_tokens", measures.generated_tokens, "tokens")
    generated = _over(measures.generated_tokens, wall)
    yield Measure("token_throughput", _rounded(generated, 2), "tokens/s")
    useful = _over(measures.useful_tokens, wall)
    yield Measure("useful_token_throughput", _rounded(useful, 2), "tokens/s")
    share = _over(measures.useful_tokens, measures.generated_tokens)
    yield Measure("useful_share", _rounded(share, 4), "share")
    yield Measure("precise_goodput", _rounded(measures.goodput, 3), "tokens/s")


def _latency(measures: Measures) -> Iterator[Measure]:
    problems = measures.problems.values()
    latencies = [p.seconds for p in problems if p.seconds is not None]
    first = [p.tree.first_step_s for p in problems if p.tree.first_step_s is not None]
    for percent in (50, 95, 99):
        yield Measure(f"latency_p{percent}", _quantile(latencies, percent), "s")
    for percent in (50, 95):
        yield Measure(f"time_to_first_step_p{percent}", _quantile(first, percent), "s")
    per_token = measures.requests["generator"].seconds_per_token
    for percent in (50, 95):
        yield Measure(f"time_per_token_p{percent}", _sketched(per_token, percent), "s")


def _requests(measures: Measures) -> Iterator[Measure]:
    for engine in ENGINES:
        requests: EngineRequests = measures.requests[engine]
        yield Measure(f"{engine}_requests", requests.seconds.count, "requests")
        yield Measure(f"{engine}_request_p50", _sketched(requests.seconds, 50), "s")
        yield Measure(f"{engine}_request_p95", _sketched(requests.seconds, 95), "s")
        mean = requests.scheduled_tokens.mean
        yield Measure(f"{engine}_tokens_per_request", _rounded(mean, 1), "tokens")
        load = measures.in_flight.mean(engine, measures.wall_s)
        unit = "requests" if engine == "generator" else "prompt tokens"
        yield Measure(f"{engine}_in_flight", _rounded(load, 3), unit)
        used = measures.batch_utilization(engine)
        yield Measure(f"{engine}_batch_utilization", _rounded(used, 4), "share")
        idle = _over(sum(measures.use.idle_s[engine].values()), measures.wall_s)
        yield Measure(f"{engine}_idle", _rounded(idle, 4), "share")
    yield Measure("score_cache_hit_rate", _rounded(measures.run.work.cache_hit_rate, 4), "share")


def _speculation(measures: Measures) -> Iterator[Measure]:
    ahead = measures.use.speculation
    yield Measure("speculation_sent", ahead.sent, "requests")
    yield Measure("speculation_used", ahead.used, "requests")
    yield Measure("speculation_hit_rate", _rounded(ahead.hit_rate, 4), "share")
    yield Measure("speculation_wasted_tokens", ahead.unused_tokens, "tokens")
    yield Measure("cancelled_tokens_estimated", round(measures.use.cancelled_tokens), "tokens")
    yield Measure("waste", _rounded(measures.use.waste, 4), "share")


def _machine(measures: Measures) -> Iterator[Measure]:
    yield Measure("orchestrator_cpu", _rounded(measures.resources.cpu_s, 3), "s")
    yield Measure("orchestrator_cpu_share", _rounded(measures.resources.cpu_share, 4), "cores")
    energy = measures.resources.energy_j
    yield Measure("gpu_energy", _rounded(energy, 1), "J")
    per_problem = None if energy is None else _over(energy, len(measures.problems))
    yield Measure("gpu_energy_per_problem", _rounded(per_problem, 2), "J")


def _over(value: float, total: float) -> float | None:
    return value / total if total else None


def _quantile(values: Iterable[float], percent: int) -> float | None:
    return _rounded(quantile(values, percent / 100), 4)


def _sketched(sketch: QuantileSketch, percent: int) -> float | None:
    """To three digits, as the sketch is right to 1%."""
    value = sketch.quantile(percent / 100)
    return None if value is None else float(f"{value:.3g}")


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
