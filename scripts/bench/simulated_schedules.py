"""Simulate the schedules on GPUs that are not at hand, side by side: which is first in which case?

Every row is one case: GPU, how the engines share it, precision, which model is the bottleneck,
strategy, n, problems in flight. Each is simulated under all four schedules, and under decoupled
without speculation (docs/simulation.md says what the simulation leaves out).

    scripts/run bench.simulated_schedules --jobs 2          # all rows on two cores
    scripts/run bench.simulated_schedules --row 'a100.*n=16 ' # those whose name matches
    scripts/run bench.simulated_schedules --list            # the names
    scripts/run bench.simulated_schedules --out FILE        # goes on where FILE has ended

The JSON file is written after every run; Ctrl-C prints what there is.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console

from scripts.bench.schedules.cases import VARIANTS, Row, markdown_of, rows, simulate_row, table_of
from tts.build import paths
from tts.runs.folder import write_json


def main() -> None:
    """Simulate what the command line asks for, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", action="append", help="a regular expression; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 1")
    parser.add_argument("--out", type=Path, help="the JSON file; a new one under runs/")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown, too")
    parser.add_argument("--list", action="store_true", help="print the rows' names")
    arguments = parser.parse_args()
    patterns = arguments.row or [""]
    chosen = [row for row in rows() if any(re.search(each, row.name) for each in patterns)]
    if arguments.list:
        print("\n".join(row.name for row in chosen))
        return
    out = arguments.out or paths.runs_dir() / f"bench-simulated-{datetime.now():%Y%m%d-%H%M%S}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(out.read_text())["runs"] if out.is_file() else []
    try:
        simulate_rows(chosen, runs, arguments.jobs, out)
    except KeyboardInterrupt:
        say("interrupted")
    console = Console(width=max(Console().width, 155))
    console.print(table_of(chosen, runs))
    if arguments.markdown:
        print(markdown_of(chosen, runs))
    console.print(f"raw results: {out}", style="dim", highlight=False, soft_wrap=True)


def simulate_rows(chosen: Sequence[Row], runs: list[dict[str, Any]], jobs: int, out: Path) -> None:
    """Add the runs that are not there yet to `runs`, and write them all after each."""
    done = {(run["row"], run["schedule"], run["speculation"]) for run in runs}
    wanted = [(row, *each) for row in chosen for each in VARIANTS if (row.name, *each) not in done]
    wanted.sort(key=lambda run: run[0].n * run[0].problems, reverse=True)
    began = time.monotonic()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            futures = [pool.submit(simulate_row, *each) for each in wanted]
            for number, future in enumerate(as_completed(futures), start=1):
                run = future.result()
                runs.append(run)
                write_json(out, {"runs": runs})
                say(
                    f"[{number}/{len(wanted)}, {time.monotonic() - began:.0f} s] {run['row']}: "
                    f"{run['schedule']}, {run['speculation']}: {run['wall_s']:,.1f} s"
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
