"""What keys, limits, filters and records cost the gateway: CPU time per request and character.

    scripts/run bench.gateway_request              # some 30 s
    scripts/run bench.gateway_request --kills 20   # and what a log lacks after kill -9: 20 s more

CPU time (user and system, of all threads), the median of several rounds, so that a busy machine
changes little.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scripts.bench.common import table_of
from tts.constraints.regex import parse_search
from tts.gateway.observability import Recorder, RequestLog, ServedRequest
from tts.gateway.observability.request_reader import read_requests
from tts.gateway.safety import FilterChain, KeyLimits, Keyring, KeyStore, Limiter
from tts.gateway.safety.matching import Matcher, Matching, Rule

ROUNDS, REQUESTS = 7, 5000
AIM_US = 100.0
"""What key, limits, record, metrics and log may take together."""
AIM_MS = 100.0
"""What a killed gateway's log may lack."""
PATTERNS = {
    "1 term": ["halcyon"],
    "2,000 terms": [f"(?i)\\bterm{i} of number {i}\\b" for i in range(2000)],
    "mail addresses, card numbers, keys": [
        r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,200}\.[A-Za-z]{2,10}",
        r"\b\d{4}(?:[ -]?\d{4}){3}\b",
        r"\bsk-[A-Za-z0-9]{20,200}\b",
    ],
}
LIVE = """
import sys, time
from pathlib import Path
from tts.gateway.observability import Recorder, RequestLog
recorder = Recorder(RequestLog(Path(sys.argv[1])))
while True:
    record = recorder.begin("/v1/completions")
    recorder.end(record)
    print(f"{time.time():.6f} {record.id}", flush=True)
    time.sleep(0.0005)
"""


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=0, help="processes to kill with SIGKILL")
    options = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as folder:
        console.print(costs(Path(folder)))
        if options.kills:
            console.print(kills(Path(folder), options.kills))
    console.print(filters())


def cpu_us(work: Callable[[], None], times: int) -> float:
    """CPU time of one of so many calls; `work` makes all of them."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        rounds.append((time.process_time() - begin) / times * 1e6)
    return statistics.median(rounds)


def costs(folder: Path) -> Table:
    """A row for each part of a request: its CPU time."""
    store = KeyStore(folder / "keys" / "keys.db")
    limits = KeyLimits(10**9, 10**9, 10**6)
    key, _ = store.create("bench", limits)
    for i in range(100):
        store.create(f"other {i}", KeyLimits())
    ring, limiter = Keyring(store), Limiter()

    def keys() -> None:
        for _ in range(REQUESTS):
            ring.find(key)

    def limiting() -> None:
        for _ in range(REQUESTS):
            admitted = limiter.admit("k", limits, time.monotonic_ns(), tokens=900, search=False)
            admitted.end(time.monotonic_ns(), 500)  # type: ignore[union-attr]

    def observed(recorder: Recorder) -> None:
        for _ in range(REQUESTS):
            recorder.end(filled(recorder.begin("/v1/chat/completions")))

    counting = Recorder()
    rows = [
        ("key: SHA-256, compare, changes looked for", cpu_us(keys, REQUESTS)),
        ("limits: two buckets, headers, settled", cpu_us(limiting, REQUESTS)),
        ("record and metrics", cpu_us(lambda: observed(counting), REQUESTS)),
    ]

    def logged() -> None:
        recorder = Recorder(RequestLog(folder / "requests"))
        observed(recorder)
        recorder.close()

    rows.append(("log (its thread's time included)", cpu_us(logged, REQUESTS) - rows[2][1]))
    table = table_of("CPU time of one request", "part", "us", left={"part"})
    for name, took in rows:
        table.add_row(name, f"{took:.1f}")
    table.add_row(f"together (aim: under {AIM_US:.0f})", f"{sum(us for _, us in rows):.1f}")
    table.add_row("a scrape of all metrics", f"{cpu_us(lambda: scrape(counting), 100):.0f}")
    store.close()
    return table


def scrape(recorder: Recorder) -> None:
    """Ask for the metrics a hundred times."""
    for _ in range(100):
        recorder.metrics.exposition()


def filled(record: ServedRequest) -> ServedRequest:
    """A record as a streamed answer leaves it."""
    now = time.monotonic()
    record.t1 = record.t2 = record.t3 = record.t4 = record.t5 = record.t6 = now
    record.model, record.key, record.replica = "demo", "0123abcd", "127.0.0.1:8001"
    record.stream, record.outcome, record.status = True, "ok", 200
    record.prompt_tokens, record.answer_tokens = 40, 200
    return record


def filters() -> Table:
    """Per character of a text that comes in chunks of a token."""
    rng = random.Random(0)
    words = ["the", "term", "of", "number", "12", "4000", "a.b", "so", "= 5\n", "halcyonic", "key"]
    chunks = [" " + rng.choice(words) for _ in range(4000)]
    length = sum(map(len, chunks))
    title = "CPU time of the filters, per character"
    table = table_of(title, "rules", "us", "us at first", left={"rules"})

    def through(stream: object) -> None:
        for chunk in chunks:
            stream.feed(chunk)  # type: ignore[attr-defined]
        stream.end()  # type: ignore[attr-defined]

    table.add_row("none", f"{cpu_us(lambda: through(FilterChain().output()), length):.3f}", "")
    for name, patterns in PATTERNS.items():
        matcher = Matcher([Rule(each, parse_search(each), False) for each in patterns])
        begin = time.process_time()
        through(Matching(matcher))
        first = (time.process_time() - begin) / length * 1e6
        warm = cpu_us(lambda matcher=matcher: through(Matching(matcher)), length)  # type: ignore[misc]
        table.add_row(name, f"{warm:.3f}", f"{first:.3f}")
    return table


def kills(folder: Path, count: int) -> Table:
    """How much of its end a log lacks when its process is killed."""
    lacking = []
    for number in range(count):
        log = folder / f"killed-{number}"
        with subprocess.Popen(
            [sys.executable, "-c", LIVE, log], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            said = [process.stdout.readline() for _ in range(200 + 7 * number)]
            os.kill(process.pid, signal.SIGKILL)
            died = time.time()
            said += list(process.stdout)
        found = {record.id for record in read_requests(log)}
        lost = [float(line.split()[0]) for line in said if line.split()[1] not in found]
        lacking.append(1000 * (died - min(lost, default=died)))
    most = f"most, ms (aim: under {AIM_MS:.0f})"
    table = table_of("What a log lacks after kill -9", "kills", "median, ms", most)
    table.add_row(str(count), f"{statistics.median(lacking):.0f}", f"{max(lacking):.0f}")
    return table


if __name__ == "__main__":
    main()
