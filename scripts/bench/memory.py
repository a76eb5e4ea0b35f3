"""Peak memory of runs over different numbers of problems, log and summary included.

Beam search on scripted engines that answer at once, so that the runtime is what is measured; each
run in a process of its own.

    scripts/run bench.memory                   # 1,000 and 10,000 problems, n=16: about 6 minutes
    scripts/run bench.memory --problems 100 1000

With --simulated, on one simulated GPU with both engines, without the summary: also the processor
time of orchestrator and simulation beside the time that the engines would take.

    scripts/run bench.memory --simulated h100 --problems 500 --n 256     # about 10 minutes
"""

from __future__ import annotations

import argparse
import subprocess
from typing import get_args

from rich.console import Console
from rich.table import Table

from scripts.bench.orchestrator.memory import run
from scripts.bench.orchestrator.simulated import long_run
from scripts.programs import command
from tts.build.spec import Gpu

AIM_MB = 1000
AIM_OVERHEAD = 0.2


def main() -> None:
    """Measure each number of problems and print a row for it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--simulated", choices=get_args(Gpu), help="on this GPU")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cells = simulated if arguments.simulated else scripted
    if arguments.one:
        print(*cells(arguments), sep="\t")
        return
    table = Table("problems", "n", *HEADINGS[cells])
    for problems in arguments.problems:
        words = command("bench.memory", "--one", "--problems", problems)
        words += ["--n", str(arguments.n)]
        if arguments.simulated:
            words += ["--simulated", arguments.simulated]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        table.add_row(f"{problems:,}", str(arguments.n), *done.stdout.rstrip("\n").split("\t"))
    console = Console()
    console.print(table)
    if arguments.simulated:
        console.print(f"Aims: peak below {AIM_MB:,} MB, overhead below {AIM_OVERHEAD:.0%}.")


def scripted(arguments: argparse.Namespace) -> list[str]:
    """The cells of a run on scripted engines."""
    done = run(arguments.problems[0], arguments.n)
    numbers = (done.imported_mb, done.peak_mb, done.log_mb, done.cpu_s)
    return [f"{number:,.0f}" for number in numbers]


def simulated(arguments: argparse.Namespace) -> list[str]:
    """The cells of a run on a simulated GPU."""
    done = long_run(arguments.simulated, arguments.problems[0], arguments.n)
    numbers = (done.imported_mb, done.peak_mb, done.log_mb, done.cpu_s, done.engines_s)
    return [
        *(f"{number:,.0f}" for number in numbers),
        f"{done.cpu_s / done.engines_s:.1%}",
        f"{1e6 * done.cpu_s / done.thoughts:.0f}",
    ]


HEADINGS = {
    scripted: ("imported, MB", "peak, MB", "log, MB", "CPU s"),
    simulated: (
        *("imported, MB", "peak, MB", "log, MB", "CPU s"),
        *("engines s (simulated)", "overhead", "CPU us per thought"),
    ),
}


if __name__ == "__main__":
    main()
