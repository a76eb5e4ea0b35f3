"""Searches with twelve verifiers of the demo generator: raw, and calibrated on other problems.

    scripts/run bench.verifiers --out /tmp/verifiers

Each verifier is a function that knows whether the steps so far are right, and says it with noise,
on a scale of its own. It is calibrated on 200 problems, 8 chains each, and tried on 300 others. Two
tables come out: accuracies, and paired differences with 95% intervals. What is there already in
the folder is not computed again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from scripts.bench.common import machine, table_of
from scripts.training.solutions import first_wrong_step
from tts.build.spec import Deployment, VerifierCalibration, VerifierFunction, load_deployment
from tts.datasets.demo import demo_problems, read_question
from tts.lab.scoring.calibrate import calibrate, calibration_fields
from tts.lab.scoring.chains import Chain, ScoredChain
from tts.lab.scoring.measurement import measure
from tts.problem import Problem
from tts.session import Session

SEPARATION = 2.1
"""Standard deviations between the evidence for right and for wrong steps: an AUROC of 0.93."""
NORMAL = statistics.NormalDist()
USABLE = (
    "calibrated",
    "squeezed",
    "sixth_power",
    "five_levels",
    "two_domains",
    "falls_with_depth",
    "length_biased",
    "final_higher",
    "oracle_of_the_end",
)
USELESS = ("constant", "hashed", "inverted")
STRATEGIES: Mapping[str, dict[str, Any]] = {
    "mcts": {"strategy": "mcts", "n": 8},
    "rebase": {"strategy": "rebase", "n": 8},
    "weighted best-of-n": {"strategy": "weighted-best-of-n", "n": 8},
    "auto": {"strategy": "auto", "budget_tokens": 480},
}
VOTE: dict[str, Any] = {"strategy": "majority-vote", "n": 8}
Outcome = dict[str, tuple[bool, int]]
"""Whether each problem is right, and its tokens."""


def uniform(*parts: str) -> float:
    """A number in [0, 1) that depends on texts alone."""
    digest = hashlib.blake2b("\x1f".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def is_right(question: str, steps: list[str]) -> bool:
    """Whether all steps so far are right."""
    chain = read_question(question)
    assert chain is not None
    return first_wrong_step(chain, steps) is None


def is_final(steps: list[str]) -> bool:
    """Whether the last step gives the answer."""
    return "final answer" in steps[-1]


def calibrated(question: str, steps: list[str]) -> float:
    """The probability of being right, by noisy evidence."""
    noise = NORMAL.inv_cdf(min(max(uniform(question, *steps), 1e-9), 1 - 1e-9))
    evidence = (SEPARATION / 2 if is_right(question, steps) else -SEPARATION / 2) + noise
    return 1 / (1 + math.exp(-SEPARATION * evidence))


def squeezed(question: str, steps: list[str]) -> float:
    """From 0.4 to 0.6."""
    return 0.4 + 0.2 * calibrated(question, steps)


def sixth_power(question: str, steps: list[str]) -> float:
    """Near 0 for most."""
    return float(calibrated(question, steps) ** 6)


def five_levels(question: str, steps: list[str]) -> float:
    """One of five scores."""
    return round(4 * calibrated(question, steps)) / 4


def two_domains(question: str, steps: list[str]) -> float:
    """From 0.01 to 0.41 for one half of the problems, from 0.80 to 0.99 for the other."""
    score = calibrated(question, steps)
    return 0.01 + 0.4 * score if uniform(question) < 0.5 else 0.8 + 0.19 * score


def falls_with_depth(question: str, steps: list[str]) -> float:
    """Lower by a fifth with each step."""
    return calibrated(question, steps) * 0.8 ** (len(steps) - 1)


def length_biased(question: str, steps: list[str]) -> float:
    """One half is the length of the step."""
    return 0.5 * calibrated(question, steps) + 0.5 * min(1.0, len(steps[-1]) / 60)


def final_higher(question: str, steps: list[str]) -> float:
    """Final steps score above all others."""
    return 0.5 * calibrated(question, steps) + 0.5 * is_final(steps)


def oracle_of_the_end(question: str, steps: list[str]) -> float:
    """Knows the answer, and nothing of the steps before it."""
    return float(is_right(question, steps)) if is_final(steps) else 0.5


def constant(question: str, steps: list[str]) -> float:
    """Says nothing."""
    return 0.5


def hashed(question: str, steps: list[str]) -> float:
    """Says something that means nothing."""
    return uniform("hash", question, *steps)


def inverted(question: str, steps: list[str]) -> float:
    """Says the opposite."""
    return 1 - calibrated(question, steps)


def main() -> None:
    """Solve what is missing in the folder, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of the outcomes")
    parser.add_argument("--problems", type=int, default=300, help="problems of the test")
    parser.add_argument("--labelled", type=int, default=200, help="problems to calibrate on")
    parser.add_argument("--verifiers", nargs="+", default=[*USABLE, *USELESS])
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    problems = demo_problems(arguments.problems + arguments.labelled, seed=77)
    tested, labelled = problems[: arguments.problems], problems[arguments.problems :]
    console = Console()
    accuracies = table_of(
        "right, in percent", "verifier", "vote", *_columns(), left_aligned=["verifier"]
    )
    differences = table_of(
        "points",
        "verifier",
        "calibrated - raw: mcts",
        "rebase",
        "weighted best-of-n",
        "auto, raw - vote",
        "auto, calibrated - vote",
        "auto, calibrated - best fixed",
        left_aligned=["verifier"],
    )
    for name in arguments.verifiers:
        outcomes = outcomes_of(name, tested, labelled, arguments.out / f"{name}.json", console)
        accuracies.add_row(name, *(f"{accuracy(each):.1f}" for each in outcomes.values()))
        fixed = [label for label in outcomes if label != "vote" and not label.startswith("auto")]
        best = max(fixed, key=lambda label: accuracy(outcomes[label]))
        pairs = [
            *((f"{each}, calibrated", f"{each}, raw") for each in list(STRATEGIES)[:3]),
            ("auto, raw", "vote"),
            ("auto, calibrated", "vote"),
            ("auto, calibrated", best),
        ]
        cells = [difference(outcomes[one], outcomes[other]) for one, other in pairs]
        cells[-1] += f" ({best})"
        differences.add_row(name, *cells)
    console.print(machine())
    console.print(accuracies)
    console.print(differences)


def _columns() -> list[str]:
    return [f"{name}, {scores}" for name in STRATEGIES for scores in ("raw", "calibrated")]


def outcomes_of(
    name: str, tested: list[Problem], labelled: list[Problem], file: Path, console: Console
) -> dict[str, Outcome]:
    """The outcomes by strategy, from the file as far as it has them."""
    data: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}

    def solve(label: str, deployment: Deployment, options: dict[str, Any]) -> None:
        if label in data:
            return
        with Session.open(deployment, server="embedded") as session:
            data[label] = {
                result.problem.id: (bool(result.correct), result.usage.generated_tokens)
                for result in session.solve_many(tested, **options)
            }
        file.write_text(json.dumps(data))
        tokens = statistics.fmean(cost for _, cost in data[label].values())
        console.print(f"{name}: {label}: {accuracy(data[label]):.1f}%, {tokens:.0f} tokens")

    plain = with_verifier(name, None)
    solve("vote", plain, VOTE)
    if "calibration" not in data:
        data["calibration"] = calibration_of(plain, labelled)
    measured = with_verifier(name, data["calibration"])
    for strategy, options in STRATEGIES.items():
        solve(f"{strategy}, raw", plain, options)
        solve(f"{strategy}, calibrated", measured, options)
    return {label: data[label] for label in ("vote", *_columns())}


def with_verifier(name: str, calibration: dict[str, Any] | None) -> Deployment:
    """The demo generator with one of the verifiers."""
    verifier = VerifierFunction(
        function=f"{Path(__file__).resolve()}:{name}",
        calibration=None if calibration is None else VerifierCalibration(**calibration),
    )
    return load_deployment("demo").model_copy(update={"verifier": verifier})


def calibration_of(deployment: Deployment, labelled: list[Problem]) -> dict[str, Any]:
    """What `tts score` measures on these problems."""
    chains = []
    with Session.open(deployment, server="embedded") as session:
        for result in session.solve_many(
            labelled, strategy="best-of-n", n=8, agg_strategy="mean", scores="raw", seed=1
        ):
            problem = result.problem
            for number, completion in enumerate(result.completions):
                right = completion.answer == problem.answer
                chains.append(
                    ScoredChain(
                        Chain(
                            problem.id,
                            f"{problem.id}/{number}",
                            problem.question,
                            completion.steps,
                            right=right,
                        ),
                        completion.step_scores,
                        tuple(map(len, completion.steps)),
                    )
                )
    chains.sort(key=lambda each: each.chain.name)
    measurement = measure(chains)
    final, inner = measurement.final, measurement.inner
    maps = calibrate(final.these if final else None, inner.these if inner else None)
    return calibration_fields(measurement, maps)


def accuracy(outcome: Outcome) -> float:
    """The share of right answers in percent."""
    return 100 * statistics.fmean(right for right, _ in outcome.values())


def difference(one: Outcome, other: Outcome) -> str:
    """The paired difference in points, with half of its 95% interval (normal)."""
    points = [100 * (one[name][0] - other[name][0]) for name in one]
    half = 1.96 * statistics.stdev(points) / math.sqrt(len(points))
    return f"{statistics.fmean(points):+.1f} ±{half:.1f}"


if __name__ == "__main__":
    main()
