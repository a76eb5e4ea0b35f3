"""A gateway of the demo pair under requests that nobody should send, and when it dies.

| part | what, and what must hold |
|---|---|
| document | requests made up from its OpenAPI document by schemathesis, valid and not |
| hostile | wrong, cut, nested, oversize, half-closed and abandoned requests over raw sockets |
| idle | 10,000 connections that say nothing, or half a request, while a request is answered |
| killed | kill -9 while requests are answered: the log is readable, lacks at most its last 100 ms |
| replicas | two servers, one killed under load, one added: every request answered once, as ever |

No answer of 500 or more, nothing hangs, no traceback; memory is compared after a first tenth of the
requests and after all of them.

    scripts/run robustness.gateway                    # 10,000 requests of each kind, and the rest
    scripts/run robustness.gateway --part hostile     # 10,000 hostile requests
    scripts/run robustness.gateway --requests 500 --connections 500 --part hostile --part idle
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from scripts.robustness.gateway import deaths, from_document, hostile, running

PARTS = ("document", "hostile", "idle", "killed", "replicas")
GROWN_MB = 60.0
"""What memory may grow by from the first tenth of the requests to the last: caches, and the pages
that an allocator keeps."""


def main() -> None:
    """Do the parts that were asked for; fails with what did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument(
        "--requests", type=int, default=10_000, help="of the document, and hostile ones"
    )
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    parts = arguments.part or PARTS
    with running.engines() as home:
        if {"document", "hostile", "idle"} & set(parts):
            with running.gateway() as gateway:
                amounts = arguments.requests, arguments.connections
                one_gateway(gateway, parts, *amounts, arguments.seed)
        if "killed" in parts:
            with running.gateway() as gateway:
                print(f"killed: {deaths.kill_gateway(gateway, seconds=5, clients=8)}", flush=True)
        if "replicas" in parts:
            print(f"replicas: {deaths.kill_server(home, clients=8, before_s=10)}", flush=True)


def one_gateway(
    gateway: running.Gateway, parts: Sequence[str], requests: int, connections: int, seed: int
) -> None:
    """The parts that one gateway must bear one after another."""
    try:
        if "document" in parts:
            two_rounds("document", gateway, requests, seed)
        if "hostile" in parts:
            two_rounds("hostile", gateway, requests, seed)
            large = hostile.run_large(gateway.host_port, max(1, requests // 100), seed)
            print_counts("oversize", large)
        if "idle" in parts:
            print(f"idle: {hostile.run_idle(gateway.host_port, connections)}", flush=True)
            print(f"idle, again: {hostile.run_idle(gateway.host_port, connections)}", flush=True)
            print(f"memory: {gateway.rss_mb:.0f} MB", flush=True)
    except (AssertionError, TimeoutError) as error:
        sys.exit(f"{str(error)[:3000]}\nThe gateway said:\n{''.join(gateway.said)[-5000:]}")
    said = "".join(gateway.said)
    if "Traceback" in said or gateway.process.poll() is not None:
        sys.exit(f"The gateway said:\n{said[-5000:]}")


def two_rounds(part: str, gateway: running.Gateway, count: int, seed: int) -> None:
    """A tenth of the requests, then the rest, and the memory after each."""
    began = time.monotonic()
    seen: Counter[str] = Counter()
    memory = []
    for share, own_seed in ((count // 10, seed), (count - count // 10, seed + 1)):
        if part == "document":
            seen += from_document.run(gateway.address, share, own_seed)
        else:
            seen += hostile.run(gateway.host_port, share, own_seed)
        memory.append(gateway.rss_mb)
    print_counts(part, seen)
    first, last = memory
    print(f"{part}: {seen.total()} requests in {time.monotonic() - began:.0f} s; "
          f"memory {first:.0f} MB, then {last:.0f} MB", flush=True)  # fmt: skip
    broken = {name: n for name, n in seen.items() if name.rpartition(": ")[2].startswith("5")}
    if broken:
        sys.exit(f"Answers of 500 and more: {broken}")
    if last - first > GROWN_MB:
        sys.exit(f"Memory has grown by {last - first:.0f} MB.")


def print_counts(part: str, seen: Counter[str]) -> None:
    """What came of each kind of request."""
    for name, count in sorted(seen.items()):
        print(f"{part}: {name}: {count}", flush=True)


if __name__ == "__main__":
    main()
