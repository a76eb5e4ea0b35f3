"""The figures of one run in the order of a page: how right it is, and `work`; warnings about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from tts.build.spec import ROLES
from tts.runs.clustered import auroc
from tts.runs.named_measures import ALL
from tts.runs.run import Run
from tts.runs.statistics import wilson
from tts.runs.summary import Summary
from tts.search.allocation import MIN_PROBLEMS

from . import work
from .charts import (
    ACCURACY,
    ALL_FIELDS,
    BLUE,
    MOST_NAMES,
    PERCENT,
    Figure,
    Spec,
    TableRow,
    bars_height,
    count_of,
    doubling_axis,
    field,
    intervals,
    listed,
    mark,
    number,
    percent,
    spec,
)
from .results import RULE_NAMES, accuracy_cell
from .verifier import reliability, score_histogram

_UNIT: Spec = {"domain": [0, 1], "padding": 10}


def by_level(run: Run) -> Figure | None:
    """Accuracy by level, with 95% intervals; None without levels."""
    problems, right = Counter[str](), Counter[str]()
    for problem in run.totals.judged_problems():
        if problem.level is not None:
            problems[str(problem.level)] += 1
            right[str(problem.level)] += problem.right(run.config.vote)
    if not problems:
        return None
    order = sorted(problems, key=lambda level: (len(level), level))
    rows = [_share_row("level", level, right[level], problems[level]) for level in order]
    shares = ", ".join(f"{_share(row)} at level {row['level']}" for row in (rows[0], rows[-1]))
    return Figure(
        "accuracy-by-level",
        "Accuracy by level",
        f"{percent(run.accuracy)} of {run.totals.judged:,} problems are right, {shares}.",
        rows,
        _shares_spec("level", order),
        notes=["Bars are 95% intervals (Wilson)."],
    )


def by_rule(run: Run) -> Figure | None:
    """Accuracy by each vote over the same completions, and pass@n; None without references."""
    measures, judged = run.totals, run.totals.judged
    right = {
        name: measures.right[rule] for rule, name in RULE_NAMES.items() if rule in measures.right
    }
    if not right:
        return None
    right["any (pass@n)"] = measures.any_right
    rows = [_share_row("rule", name, count, judged) for name, count in right.items()]
    return Figure(
        "accuracy-by-rule",
        "Accuracy by rule",
        f"Chosen by the {RULE_NAMES.get(run.config.vote, '')}, {percent(run.accuracy)} of the "
        f"answers are right; a right one is among the completions of {_share(rows[-1])} of the "
        "problems.",
        rows,
        _shares_spec("rule", [str(row["rule"]) for row in rows]),
        notes=["Bars are 95% intervals (Wilson); all rules choose among the same completions."],
    )


def pass_over_k(run: Run) -> Figure | None:
    """pass@k over k; None unless the completions are two or more independent parts."""
    shares = run.totals.curve.pass_over_k() if run.totals.curve else {}
    if len(shares) < 2:
        return None
    rows: list[TableRow] = [{"k": k, "pass@k": round(share, 4)} for k, share in shares.items()]
    first, last = (
        f"{row['k']} of the completions for {_share(row, 'pass@k')}" for row in (rows[0], rows[-1])
    )
    lines = mark(
        "line",
        {"color": BLUE, "point": True, "tooltip": ALL_FIELDS},
        x=doubling_axis("k", "completions (k)"),
        y=field("pass@k:Q", axis=PERCENT, scale=ACCURACY["scale"]),
    )
    return Figure(
        "pass-at-k",
        "pass@k over k",
        f"A right answer is among {first} of the problems, among {last}.",
        rows,
        spec(lines, 220),
        notes=["Unbiased estimator of Chen et al. (2021)."],
    )


def scores(run: Run) -> Figure | None:
    """Score distributions of right and wrong completions; None unless both were scored."""
    return _with_unscored(run, score_histogram(run.totals.calibration.observations, "completions"))


def calibration(run: Run) -> Figure | None:
    """Share of right completions by score; None unless right and wrong ones were scored."""
    observations = run.totals.calibration.observations
    if auroc(observations) is None:
        return None
    return _with_unscored(run, reliability(observations, "completions"))


def _share_row(column: str, name: str, right: int, problems: int) -> TableRow:
    share = right / problems
    low, high = wilson(share, problems)
    return {
        column: name,
        "accuracy": round(share, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "right": right,
        "problems": problems,
    }


def _shares_spec(column: str, order: list[str]) -> Spec:
    y = field(f"{column}:N", title=column, sort=order)
    dots = intervals("accuracy", y, scale=_UNIT, axis=PERCENT, title="accuracy")
    return spec(dots, bars_height(len(order)))


def _with_unscored(run: Run, figure: Figure | None) -> Figure | None:
    count = run.totals.calibration.without_score
    if figure is None or not count:
        return figure
    note = f"{count:,} completions without a score are left out."
    return replace(figure, notes=[*figure.notes, note])


def _share(row: TableRow, column: str = "accuracy") -> str:
    return percent(float(row[column] or 0.0))


_ALL_WRONG = 10
"""Problems from which on it is remarkable that none is right."""
Make = Callable[[Run], Figure | None]


def right_share(run: Run) -> str:
    """The share of right answers, with its interval and of how many if some have no reference."""
    judged = run.totals.judged
    some = judged < len(run.totals.problems)
    return accuracy_cell(run.accuracy, judged) + f" of the {judged:,} with a reference" * some


def by_text(lines: Iterable[tuple[str, str]], total: int) -> Iterator[tuple[str, str]]:
    """Each text once, with whose it is; given are (name, text) of `total` runs."""
    whose: dict[str, list[str]] = {}
    for name, text in lines:
        whose.setdefault(text, []).append(name)
    for text, names in whose.items():
        few = len(names) <= MOST_NAMES
        yield listed(names) if few else f"{len(names)} of {total} runs", text


def warnings_of(summary: Summary) -> Iterator[str]:
    """What makes a run worthless: no answers, chains without an end, nothing right, no verdicts."""
    if summary.unanswered:
        cut = sum((summary.limited or {}).values())
        advice = " or a smaller --n; without --n, --budget-tokens chooses it"
        if summary.strategy == "auto":  # which takes no n
            few = summary.problems < MIN_PROBLEMS and "tokens" in (summary.limited or {})
            advice = f", or {MIN_PROBLEMS} problems or more, which share the budget" * few
        yield (
            f"warning: a limit cut off {cut:,} of {summary.problems:,} searches, "
            f"{summary.unanswered:,} of them without any answer. Give a larger limit{advice}."
        )
    if 2 * summary.unended > summary.completions:
        limits = [
            f"{name} (now {summary.parameters[name]})"
            for name in ("num_iterations", "max_tokens")
            if name in summary.parameters
        ]
        yield (
            f"warning: {summary.unended:,} of {summary.completions:,} completions did not end: "
            "their chains came to the most steps or tokens, most likely before an answer. Raise "
            + f"{', '.join(limits)} (--set NAME=VALUE) or " * bool(limits)
            + "max_seq_len of the deployment."
        )
    elif summary.accuracy == 0 and (summary.judged or summary.problems) >= _ALL_WRONG:
        yield (
            "warning: no answer is right. The model may not know such problems (the bundled demo "
            "pair knows chains of whole-number operations alone), or it writes its answers "
            "otherwise than the references: read a few trees on the page."
        )
    yield from (f"warning: the verifier: {sentence}" for sentence in summary.verifier or ())
    if 0 < summary.verifier_calls <= summary.no_verdict:
        yield (
            f"warning: {summary.no_verdict:,} critiques for {summary.verifier_calls:,} scores have "
            "no verdict. The page's trees show what the verifier wrote: it may need more "
            "critique.max_tokens, or another verdict or prompt (docs/reference/verifiers.md)."
            if summary.critique_tokens
            else f"warning: the verifier failed on all {summary.no_verdict:,} candidates, which "
            "score 0: the program itself may be wrong."
        )


def key_measures(run: Run) -> Figure | None:
    """Every measure that the run's log gives; None of a run in which nothing has happened."""
    measures = run.totals
    if not measures.wall_s:
        return None
    solved = len(measures.problems)
    right = f", {right_share(run)} right" if measures.judged else ""
    return Figure(
        "measures",
        "Measures",
        f"{count_of(solved, 'problem')} in {number(measures.wall_s)} s{right}: "
        f"{number(solved / measures.wall_s)} problems and "
        f"{number(measures.generated_tokens / measures.wall_s)} generated tokens per second.",
        [
            {"measure": each.name, "value": value, "unit": each.unit}
            for each in ALL
            if (value := each.value(measures)) is not None
        ],
        notes=["docs/reference/measures.md defines each of them."],
    )


_IN_FLIGHT = [partial(work.in_flight, engine=engine) for engine in ROLES]
FIGURES: Sequence[Make] = (
    key_measures,
    by_level,
    by_rule,
    pass_over_k,
    scores,
    calibration,
    work.token_use,
    work.tokens_per_problem,
    work.latency,
    *_IN_FLIGHT,
    work.idle,
    work.requests_by_kind,
    work.speculation,
    *(partial(work.tokens_per_request, engine=engine) for engine in ROLES),
    work.tree_shape,
)
"""Each is None of a run that says nothing about it."""
READ: Sequence[Make] = (
    key_measures,
    work.latency,
    *_IN_FLIGHT,
    work.idle,
    work.token_use,
    work.speculation,
)
"""The figures whose readings a terminal shows."""


def figures_of(run: Run, makes: Sequence[Make] = FIGURES) -> list[Figure]:
    """The figures of a run, finished or not."""
    return [figure for make in makes if (figure := make(run))]
