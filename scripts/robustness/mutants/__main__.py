"""Draw mutants of the code by seed and report those that no test notices.

A mutant is one small change: a comparison moved, a number off by one, a condition inverted, a
statement left out, two arguments swapped, True for False. It is put into a temporary copy of the
source roots; of the fast tests those that execute its line, fastest first, should fail. Which ones
these are is recorded first, with coverage.py, and kept in the system's temporary folder until the
code or a test changes. Where a function has changed the tests run in a fork of a process that has
collected them. A survivor is shown as a diff: it is equivalent, or a test is missing.

    scripts/run robustness.mutants --seed 1 --count 300 --jobs 2
    scripts/run robustness.mutants --count 20 orchestrator/tts/search/ --tests tests/search/
"""

from __future__ import annotations

import argparse
import queue
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

from scripts.robustness.mutants.reach import reach
from scripts.robustness.mutants.runs import Forks, Outcome, copied
from scripts.robustness.mutants.trials import MUTATED, Mutant, diff, draw, modules_below, trial

ROOT = Path(__file__).resolve().parents[3]


def main() -> int:
    """Draw mutants, try them, and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", metavar="PATH", help="modules or folders")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300, help="mutants [300]")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time [1]")
    parser.add_argument(
        "--tests", nargs="+", default=[], metavar="PATH", help="folders or files of tests [all]"
    )
    options = parser.parse_args()

    prefixes = options.modules or list(MUTATED)
    modules = {module for prefix in prefixes for module in modules_below(ROOT, prefix)}
    mutants = draw(ROOT, sorted(modules), options.count, options.seed)
    try:
        outcomes = tried(mutants, options.jobs, options.tests)
    except RuntimeError as failure:
        sys.exit(str(failure))
    counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    print(f"seed {options.seed}, {outcomes.total()} of {len(mutants)} mutants: {counts}")
    return 0


def tried(mutants: list[Mutant], jobs: int, tests: Sequence[str]) -> Counter[Outcome]:
    """Try the mutants, so many at a time, and print what each came to. Ctrl-C ends it early."""
    reached = reach(ROOT, tests)
    outcomes: Counter[Outcome] = Counter()
    places: queue.SimpleQueue[tuple[Path, Forks]] = queue.SimpleQueue()

    def trial_of(mutant: Mutant) -> Outcome:
        place = places.get()
        try:
            return trial(ROOT, *place, reached, mutant)
        finally:
            places.put(place)

    with ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            copy = stack.enter_context(copied(ROOT))
            places.put((copy, stack.enter_context(Forks(ROOT, copy, reached.seconds))))
        trials = {pool.submit(trial_of, mutant): mutant for mutant in mutants}
        try:
            for done in as_completed(trials):
                outcomes[done.result()] += 1
                print(f"{done.result()}\n{diff(ROOT, trials[done])}", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
