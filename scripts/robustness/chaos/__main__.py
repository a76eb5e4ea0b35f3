"""Faults at random moments of real runs: each must end right, by itself or after a resume.

A case is a strategy, a schedule and a fault, drawn from the seed and its number. The run of the
demo pair is started, the fault happens at a random moment, and whatever is left is resumed until
the run is complete. Then its answers and its tree digest must be those of an undisturbed run, and
no process, shared memory, socket or temporary file of it may be left. What
docs/explanation/security.md says is survived (a killed or frozen server, model or engine, a jump
of the clock, a lost connection) the run must survive by itself. Half of the faults of a server
happen under `tts serve`.

    scripts/run robustness.chaos --cases 300 --seed 1             # an hour or two
    scripts/run robustness.chaos --cases 300 --seed 1 --from 120  # goes on with the 120th
    scripts/run robustness.chaos --cases 6 --fault kill-server

Prints a line for each case as it ends, and the figures by kind of fault at the end, or at
Ctrl-C. If a case went wrong it exits with 1 and keeps all files.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from scripts.robustness.chaos.cases import Verdict, attempt, draw
from scripts.robustness.chaos.faults import FAULTS
from scripts.robustness.chaos.surroundings import Surroundings

PROBLEMS = 30


def main() -> None:
    """Draw cases and try them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", help="leave out those before")
    parser.add_argument("--fault", choices=FAULTS, action="append", help="only these kinds")
    parser.add_argument("--problems", type=int, default=PROBLEMS)
    parser.add_argument("--freeze", type=float, default=30, help="seconds that SIGSTOP lasts")
    arguments = parser.parse_args()
    for kind in (signal.SIGINT, signal.SIGTERM):  # in the background the first is ignored
        signal.signal(kind, signal.default_int_handler)
    verdicts: dict[str, list[Verdict]] = defaultdict(list)
    folder = Path(tempfile.mkdtemp(prefix="tts-chaos-")).resolve()
    with Surroundings(folder, arguments.problems) as around:
        faults = arguments.fault or list(FAULTS)
        if around.clock is None:
            print("there is no C compiler (cc): the clock does not jump")
            faults = [fault for fault in faults if FAULTS[fault].needs != "clock"]
        try:
            for number in range(arguments.first, arguments.cases):
                case = draw(number, arguments.seed, faults)
                began = time.monotonic()
                verdict = attempt(case, around, arguments.freeze)
                took = time.monotonic() - began
                resumed = "".join(f", resumed after {why!r}" for why in verdict.resumes)
                print(f"{case}: {verdict.wrong or 'right'}, {took:.0f} s{resumed}", flush=True)
                verdicts[case.fault].append(verdict)
        except KeyboardInterrupt:
            print("interrupted; --from goes on after the last case above")
    print_figures(verdicts, arguments.seed)
    if any(verdict.wrong for of_kind in verdicts.values() for verdict in of_kind):
        sys.exit(f"Everything of the cases is kept in {folder}.")
    shutil.rmtree(folder)


def print_figures(verdicts: dict[str, list[Verdict]], seed: int) -> None:
    """A line for each kind of fault: cases, those in time, resumes, those gone wrong."""
    print(f"{'fault':20}{'cases':>6}{'in time':>8}{'resumes':>8}{'wrong':>6}")
    for fault, of_kind in sorted(verdicts.items()):
        in_time = sum(verdict.hit for verdict in of_kind)
        resumes = sum(len(verdict.resumes) for verdict in of_kind)
        wrong = sum(verdict.wrong is not None for verdict in of_kind)
        print(f"{fault:20}{len(of_kind):6}{in_time:8}{resumes:8}{wrong:6}")
    every = [verdict for of_kind in verdicts.values() for verdict in of_kind]
    wrong = sum(verdict.wrong is not None for verdict in every)
    print(f"{wrong} of {len(every)} cases went wrong (seed {seed})")


if __name__ == "__main__":
    main()
