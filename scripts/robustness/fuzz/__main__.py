"""Hostile files for every reader, and hostile gRPC requests to a server of the demo pair.

Files are seeded mutations of a valid one, each read in this process. Whatever comes out must be a
value or a TtsError, within a time and a memory; anything else is printed with its traceback, its
file is kept, and the script exits with 1.

With --requests they are sent instead, to `tts serve` in a process of its own: wrong tensors,
damaged messages, streams that are cancelled or never end. Each must be answered in time; memory
must stay bounded and no process die; then a run must give the same trees as before, and nothing may
be left. Triton's own crash by streams with several requests is counted apart: the server must come
back.

With --folders run folders are damaged instead, and read by the commands that read such: none may
show a changed result with exit code 0.

    scripts/run robustness.fuzz --files 2000 --seed 0
    scripts/run robustness.fuzz --reader dataset --reader "safetensors header" --files 10000
    scripts/run robustness.fuzz --folders 400 --seed 0
    scripts/run robustness.fuzz --requests 20000 --seed 0 --tcp
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.robustness.fuzz.campaign import Outcome, fuzz_requests
from scripts.robustness.fuzz.files import fuzz_files, memory_at_most
from scripts.robustness.fuzz.readers import readers
from scripts.robustness.fuzz.run_folders import fuzz_folders
from scripts.robustness.fuzz.served import serving

RUN = Path(__file__).resolve().parents[3] / "tests" / "runs" / "v1_run"


def main() -> None:
    """Fuzz what the command line names, and print a line for each."""
    known = readers(RUN)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=int, default=300, help="of each reader (default 300)")
    parser.add_argument("--reader", action="append", choices=known, help="default: all")
    parser.add_argument("--cpu", type=float, default=10.0, help="seconds of a file (default 10)")
    parser.add_argument("--memory", type=int, default=1024, help="MiB more (default 1024)")
    parser.add_argument("--keep", type=Path, help="folder for the files that failed")
    parser.add_argument("--requests", type=int, help="send so many requests instead")
    parser.add_argument("--folders", type=int, help="damage so many run folders instead")
    parser.add_argument("--tcp", action="store_true", help="by TCP instead of the socket")
    arguments = parser.parse_args()
    if arguments.folders is not None:
        failed = _folders(arguments.folders, arguments.seed)
    elif arguments.requests is None:
        failed = _files(arguments)
    else:
        failed = _requests(arguments.requests, arguments.seed, tcp=arguments.tcp)
    sys.exit(1 if failed else 0)


def _files(arguments: argparse.Namespace) -> int:
    """How many files failed."""
    known = readers(RUN)
    failed = 0
    with memory_at_most(arguments.memory * 2**20):
        for name in arguments.reader or known:
            outcome = fuzz_files(known[name], arguments.files, arguments.seed, cpu_s=arguments.cpu)
            refused = ", ".join(f"{count} {kind}" for kind, count in outcome.refused.items())
            print(
                f"{name}: {outcome.read} read, refused {refused or 'none'}, "
                f"{len(outcome.failures)} failed; {outcome.most_cpu_s:.2f} s at most"
            )
            for failure in outcome.failures:
                print(f"--- {name}, seed {arguments.seed}, file {failure.number}: {failure.error}")
                if arguments.keep:
                    arguments.keep.mkdir(parents=True, exist_ok=True)
                    kept = arguments.keep / f"{name}-{arguments.seed}-{failure.number}"
                    kept.write_bytes(failure.content)
            failed += len(outcome.failures)
    return failed


def _folders(number: int, seed: int) -> int:
    """How many damaged folders gave what they must not."""
    outcome = fuzz_folders(number, seed)
    refused = ", ".join(f"{count} {kind}" for kind, count in outcome.refused.items())
    print(
        f"{outcome.same} as undamaged, refused {refused or 'none'}, "
        f"{len(outcome.failures)} failed (seed {seed})"
    )
    for failure in outcome.failures:
        print(f"--- {failure}")
    return len(outcome.failures)


def _requests(number: int, seed: int, *, tcp: bool) -> int:
    """How much was found that must not be."""
    with serving(tcp=tcp) as served:
        digest = served.tree_digest("before")
        report = fuzz_requests(served, number, seed, say=lambda line: print(line, flush=True))
        failures = report.failures
        if (after := served.tree_digest("after")) != digest:
            failures.append(f"the digest of a run is {after} afterwards, and was {digest}")
        failures += [f"left behind: {line}" for line in served.stop()]
    for kind in sorted({kind for kind, _ in report.outcomes}):
        counts = ((outcome, report.outcomes[kind, outcome]) for outcome in Outcome)
        print(f"{kind}: {', '.join(f'{count} {outcome}' for outcome, count in counts if count)}")
    print(f"memory after the first thousand: {report.grown >> 20} MiB more at most")
    print(
        f"streams with several requests: {report.stuck_streams} without an end; Triton crashed "
        f"{report.known_crashes} times and came back, {served.given_up} of them by a new tts serve"
    )
    print(f"{len(failures)} failures (seed {seed})")
    for failure in failures:
        print(f"--- {failure}")
    return len(failures)


if __name__ == "__main__":
    main()
