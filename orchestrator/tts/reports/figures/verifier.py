"""Figures of a verifier's scores with labels: of a measurement, and of completions of a run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tts.lab.scoring.calibrate import MapCheck, VerifierMaps, apply
from tts.lab.scoring.findings import AGGREGATION_NAMES
from tts.lab.scoring.first_error import REFERENCE_LEVEL
from tts.lab.scoring.measurement import Discrimination, Measurement, compare_aggregations
from tts.runs.clustered import (
    Estimate,
    Observations,
    auroc,
    binned,
    expected_error,
    ratio,
    score_bins,
)
from tts.runs.statistics import interval
from tts.runs.verdicts import in_percent
from tts.search.thought import Aggregation

from .charts import (
    ALL_FIELDS,
    BLUE,
    GREEN,
    ON_TOP,
    ORANGE,
    PERCENT,
    VERMILLION,
    Cell,
    Figure,
    Spec,
    TableRow,
    bars_height,
    field,
    intervals,
    layers,
    mark,
    percent,
    spec,
    thinned,
    tint,
)

_UNIT: Spec = {"domain": [0, 1], "padding": 10}
_TENTHS = [tenth / 10 for tenth in range(0, 11, 2)]
_SHARES: Spec = {"format": ".0%", "values": _TENTHS}
_CURVE_POINTS = 60
CLUSTERED = "Intervals of 95% respect that observations of one problem are alike."


def measurement_figures(measurement: Measurement, maps: VerifierMaps | None = None) -> list[Figure]:
    """All figures of a measurement; those without data are left out."""
    main = measurement.main
    if main is None:
        return []
    what = "answers" if main is measurement.final else "steps"
    compared = compare_aggregations(measurement.answers)
    curved = {"last", compared[0] if compared else "last"}
    curves = {
        name: kind.these
        for name, how, kind in _kinds(measurement)
        if kind.auroc and (how is None or how in curved)
    }
    final_map = maps.final if maps and main is measurement.final else None
    figures = [
        discrimination(measurement),
        roc(curves),
        score_histogram(main.these, what),
        reliability(main.these, what, final_map),
        groups(measurement),
        first_errors(measurement),
        probability_maps(maps) if maps else None,
    ]
    return [figure for figure in figures if figure]


def _kinds(measurement: Measurement) -> list[tuple[str, Aggregation | None, Discrimination]]:
    """What is discriminated: its name, how answers are scored, and how well."""
    kinds: list[tuple[str, Aggregation | None, Discrimination]] = [
        (f"answers, by {AGGREGATION_NAMES[how]}", how, kind)
        for how, kind in measurement.answers.items()
    ]
    for name, steps in (("steps", measurement.steps), ("inner steps", measurement.inner)):
        if steps is not None:
            kinds.append((name, None, steps))
    return kinds


def discrimination(measurement: Measurement) -> Figure:
    """The table of how well scores tell right from wrong."""
    rows: list[TableRow] = [
        {
            "of": name,
            "right": kind.right,
            "wrong": kind.wrong,
            "AUROC [95%]": _cell(kind.auroc),
            "within problems [95%]": _cell(kind.within),
            "calibration error [95%]": _cell(kind.expected_error),
            "Brier score [95%]": _cell(kind.brier, 1),
        }
        for name, _, kind in _kinds(measurement)
    ]
    inner = (
        " Inner steps are those before the last, by their own labels or else by whether their "
        "chain's answer is right."
    )
    return Figure(
        "discrimination",
        "Right and wrong, told apart",
        f"{measurement.scores:,} step scores of {measurement.chains:,} chains of "
        f"{measurement.problems:,} problems. AUROC is the chance that a right one is scored above "
        f"a wrong one, 50% a coin's.{inner if measurement.inner else ''}",
        rows,
        notes=[
            CLUSTERED,
            "Within problems only pairs of one problem count, as in a search.",
            "The calibration error is the expected one over 10 bins.",
        ],
    )


def _cell(estimate: Estimate | None, scale: int = 100) -> str:
    if estimate is None:
        return "-"
    if scale == 100:
        return in_percent(estimate)
    return f"{estimate.value:.3f} {interval(*estimate.interval, '.3f')}"


def roc(curves: Mapping[str, Observations]) -> Figure | None:
    """Receiver operating characteristics; None without one."""
    if not curves:
        return None
    rows: list[TableRow] = []
    areas = []
    for name, these in curves.items():
        area = auroc(these)
        assert area is not None
        areas.append(f"{in_percent(area)} of {name}")
        order = np.argsort(-these.scores, kind="stable")
        scores, right = these.scores[order], these.right[order]
        ends = np.flatnonzero(np.diff(scores, append=-np.inf))  # equal scores are one point
        passed = np.cumsum(right)[ends] / right.sum()
        alarms = np.cumsum(~right)[ends] / (~right).sum()
        points = [(0.0, 0.0, None), *zip(alarms, passed, scores[ends], strict=True)]
        for alarm, hit, score in thinned(points, _CURVE_POINTS):
            rows.append(
                {
                    "of": name,
                    "scores from": None if score is None else round(float(score), 6),
                    "wrong ones passed": round(float(alarm), 4),
                    "right ones passed": round(float(hit), 4),
                }
            )
    lines = mark(
        "line",
        {"interpolate": "linear", "tooltip": ALL_FIELDS},
        x=field("wrong ones passed:Q", axis=_SHARES, scale=_UNIT),
        y=field("right ones passed:Q", axis=_SHARES, scale=_UNIT),
        order=field("wrong ones passed:Q"),
        color=tint("of", list(curves)),
    )
    return Figure(
        "roc",
        "Receiver operating characteristic",
        f"The area under the curve is {'; '.join(areas)}.",
        rows,
        spec(layers(_diagonal("wrong ones passed", "right ones passed"), lines), 320),
        notes=["On the dashed line scores tell nothing.", CLUSTERED],
    )


def score_histogram(these: Observations, what: str) -> Figure | None:
    """Score distributions of right and wrong ones; None unless there are both."""
    area = auroc(these)
    if area is None:
        return None
    right, wrong = int(these.right.sum()), int((~these.right).sum())
    rows: list[TableRow] = [
        {
            "from score": part.low,
            "to score": part.high,
            what: kind,
            "count": count,
            "share": round(count / total, 4),
        }
        for part in score_bins(these, 20)
        for kind, count, total in (("right", part.right, right), ("wrong", part.wrong, wrong))
    ]
    hues = {"domain": ["right", "wrong"], "range": [GREEN, VERMILLION]}
    bars = mark(
        "bar",
        {"opacity": 0.6, "tooltip": ALL_FIELDS},
        x=field("from score:Q", bin="binned", title="score"),
        x2={"field": "to score"},
        y=field("share:Q", title="share of its kind", axis=PERCENT, stack=None),
        color=field(f"{what}:N", title=None, scale=hues, legend=ON_TOP),
    )
    return Figure(
        "scores",
        f"Scores of right and wrong {what}",
        f"A right one is scored above a wrong one in {in_percent(area)} of all pairs (AUROC; 50% "
        f"would be chance), over {right:,} right and {wrong:,} wrong {what}.",
        rows,
        spec(bars, 220),
        notes=[CLUSTERED],
    )


def reliability(these: Observations, what: str, check: MapCheck | None = None) -> Figure | None:
    """The share of right ones by score, and what a map makes of the score; None without scores."""
    error = expected_error(these)
    if error is None:
        return None
    rows: list[TableRow] = []
    for part, inside in zip(score_bins(these, 10), binned(these, 10), strict=True):
        share = ratio(inside.sums(inside.right.astype(np.float64)), inside.sums())
        if part.mean_score is None or share is None:
            continue
        low, high = share.interval
        row: TableRow = {
            "scores": f"{part.low:.1f} to {part.high:.1f}",
            "mean score": round(part.mean_score, 4),
            "share right": round(share.value, 4),
            "low": round(low, 4),
            "high": round(high, 4),
            what: part.right + part.wrong,
            "within the noise": low <= part.mean_score <= high,
        }
        if check is not None:
            (mapped,) = apply(check.points, np.array([part.mean_score]))
            row["probability"] = round(float(mapped), 4)
        rows.append(row)
    off = sum(not row["within the noise"] for row in rows)
    line = " The line is the map from scores to probabilities." if check else ""
    return Figure(
        "calibration",
        "Scores as probabilities",
        f"The score is {in_percent(error)} away from the share of {what} that are right (expected "
        f"calibration error over 10 bins); {off} of {len(rows)} bins are off beyond the noise.",
        rows,
        _reliability_spec(what, mapped=check is not None),
        notes=[
            f"On the dashed line a score is the chance of being right; a dot is as large as its "
            f"bin is full.{line}",
            CLUSTERED,
        ],
    )


def _reliability_spec(what: str, *, mapped: bool) -> Spec:
    def y(column: str) -> Spec:
        return field(f"{column}:Q", title="share right", axis=_SHARES, scale=_UNIT)

    x = field("mean score:Q", title="score", scale=_UNIT, axis={"values": _TENTHS})
    scale = {"type": "sqrt", "range": [15, 300]}
    full = field(f"{what}:Q", scale=scale, legend={**ON_TOP, "tickCount": 3})
    dot = {"filled": True, "color": BLUE, "tooltip": ALL_FIELDS}
    pictures = [
        _diagonal("score", "share right"),
        mark("rule", {"color": BLUE}, x=x, y=y("low"), y2={"field": "high"}),
        mark("point", dot, x=x, y=y("share right"), size=full),
    ]
    if mapped:
        pictures.append(mark("line", {"color": ORANGE}, x=x, y=y("probability")))
    return spec(layers(*pictures), 280)


_DASHED: Spec = {"strokeDash": [4, 4], "color": VERMILLION}


def _diagonal(x: str, y: str) -> Spec:
    """A dashed line from corner to corner."""
    end = {"datum": 1}
    begins = {"datum": 0, "title": x}, {"datum": 0, "title": y}
    return mark("rule", _DASHED, x=begins[0], x2=end, y=begins[1], y2=end)


def groups(measurement: Measurement) -> Figure | None:
    """AUROC by depth, length and level; None where nothing has two kinds."""
    kinds = {"answers": measurement.final, "steps": measurement.steps or measurement.inner}
    units = {"depth": "steps deep", "length": measurement.length_unit}
    rows: list[TableRow] = []
    for what, kind in kinds.items():
        for group in kind.groups if kind else ():
            if group.auroc is None or group.expected_error is None:
                continue
            name = (
                f"level {group.name}" if group.by == "level" else f"{group.name} {units[group.by]}"
            )
            low, high = group.auroc.interval
            rows.append(
                {
                    "group": f"{what}, {name}",
                    "by": group.by,
                    "AUROC": round(group.auroc.value, 4),
                    "low": round(low, 4),
                    "high": round(high, 4),
                    "calibration error": round(group.expected_error.value, 4),
                    "right": group.right,
                    "wrong": group.wrong,
                }
            )
    if not rows:
        return None
    least = min(rows, key=lambda row: float(row["AUROC"] or 0))
    spans = intervals(
        "AUROC",
        field("group:N", title=None, sort=None, axis={"labelLimit": 200}),
        scale=_UNIT,
        axis=_SHARES,
        title="AUROC",
    )
    chance = mark("rule", _DASHED, x={"datum": 0.5})
    return Figure(
        "groups",
        "By depth, length and level",
        f"AUROC is lowest for {least['group']}: {percent(float(least['AUROC'] or 0))}.",
        rows,
        spec(layers(spans, chance), bars_height(len(rows))),
        notes=["Depths and lengths are parted into thirds. The dashed line is chance.", CLUSTERED],
    )


def first_errors(measurement: Measurement) -> Figure | None:
    """ProcessBench's figures; None where first errors are not known."""
    first = measurement.first_error
    if first is None:
        return None
    parts = {"all": first.f1, **first.by_level}
    rows: list[TableRow] = [
        {"chains": name, "F1 [95%]": in_percent(f1), "with an error": None, "without one": None}
        for name, f1 in parts.items()
    ]
    rows[0]["with an error"] = in_percent(first.erroneous)
    rows[0]["without one"] = in_percent(first.correct)
    where = "the best on level gsm8k"
    if first.chosen_on != REFERENCE_LEVEL:
        where = "for each fifth of the problems the best on the others"
    return Figure(
        "first-errors",
        "First errors (ProcessBench)",
        f"F1 is {in_percent(first.f1)}: the harmonic mean of the shares of right predictions among "
        "chains with an error and without one.",
        rows,
        notes=[
            f"A step counts as right above {first.threshold:.4g}: {where}. Above 0.5, as label "
            f"models have it, F1 is {in_percent(first.f1_at_half)}.",
            CLUSTERED,
        ],
    )


def probability_maps(maps: VerifierMaps) -> Figure | None:
    """How the maps predict problems that they were not fitted to; None without a map."""
    checks = {"last steps": maps.final, "inner steps": maps.inner}
    rows: list[TableRow] = []
    for name, check in checks.items():
        for loss in check.raw if check else ():
            assert check is not None
            row: dict[str, Cell] = {"of": name, "loss": loss}
            for kind, losses in (("scores", check.raw), ("probabilities", check.mapped)):
                estimate = losses[loss]
                low, high = estimate.interval
                row[f"{kind} [95%]"] = f"{estimate.value:.3f} {interval(low, high, '.3f')}"
            rows.append(row)
    if not rows:
        return None
    return Figure(
        "maps",
        "Probabilities in place of scores",
        maps.verdict,
        rows,
        notes=["Each fifth of the problems is predicted by maps of the others.", CLUSTERED],
    )
