"""OpenAI-compatible servers and proxies side by side, each streaming the same requests.

Tokens a second, time to the first token, each request's mean time between tokens, CPU, memory. A
system is NAME=COMMAND or NAME=URL; `{port}` in a command is a port of its own. They take turns, and
commands that are not asked are halted. A cell is PROMPTxLEVEL, tokens of a prompt and requests in
flight; in PROMPTsLEVEL all requests have one prompt, as those of a search. Otherwise no two prompts
begin alike.

    scripts/run bench.servers --tokenizer FOLDER --cells 64x1,1024x8,1024s16 --rounds 3 \
        "tts=tts gateway mine.yaml --server embedded --port {port}" vllm=http://127.0.0.1:8000

With `--behind COMMAND` that server runs all the time, and `{behind}` is its URL: so proxies are
measured. `--behind instant` is a server without a model, with a token each 20 ms. Rows are added to
a file of rows as they come, and the table is that of the whole file; without systems nothing else
is done.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
from rich.console import Console

from scripts.bench.common import cpu_s, family_of, machine, spread_of, table_of
from scripts.bench.servers.clients import Outcome, Task
from scripts.serving import free_port, serving
from tts.build.tokenizer import Tokenizer

FOLDER = Path(__file__).parent
START_S = 600.0
"""vLLM compiles at its first start, which takes minutes."""


@dataclass(frozen=True)
class System:
    """What is asked."""

    name: str
    port: int
    model: str
    process: psutil.Process | None
    """The process of a command, halted while it gets no requests."""
    log: Path | None = None
    """What the command says."""

    @property
    def has_ended(self) -> bool:
        """Whether it is a command that has ended by itself."""
        return self.process is not None and self.process.status() == psutil.STATUS_ZOMBIE

    def halt(self, number: signal.Signals) -> None:
        """Halt it with all that it has started, or let it go on."""
        for process in family_of(self.process) if self.process else ():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def main() -> None:
    """Measure what the command line names, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", metavar="NAME=COMMAND|URL")
    parser.add_argument("--behind", help="a server that runs all the time: a command, or instant")
    parser.add_argument("--tokenizer", type=Path, help="the model's folder")
    parser.add_argument("--cells", default="64x1,64x8,64x64")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--requests", type=int, default=1, help="for each in flight")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the prompts")
    parser.add_argument("--chat", action="store_true", help="messages in place of prompts")
    parser.add_argument("--json", type=Path, default=Path("rows.jsonl"), help="the file of rows")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # with all that it has started
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tts-servers-")))
        behind = options.behind and start_system("behind", options.behind, "", folder, stack)
        url = f"http://127.0.0.1:{behind.port}" if behind else ""
        pairs = [each.partition("=") for each in options.systems]
        systems = [start_system(name, what, url, folder, stack) for name, _, what in pairs]
        words = texts_of(options.tokenizer) if systems else []
        options.json.touch()
        endings: list[str] = []
        for system in systems:
            measured(system, "8x2", words, options, -1)  # what is learnt at the first requests
            system.halt(signal.SIGSTOP)
        for turn in range(options.rounds):
            for cell in options.cells.split(","):
                for system in systems[:: -1 if turn % 2 else 1]:
                    system.halt(signal.SIGCONT)
                    row = measured(system, cell, words, options, turn)
                    if system.has_ended:
                        systems.remove(system)
                        assert system.log
                        last = system.log.read_text(errors="replace")[-2000:]
                        endings.append(
                            f"{system.name} ended in {cell}, and was asked no more:\n{last}"
                        )
                        continue
                    system.halt(signal.SIGSTOP)
                    with options.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
    print_rows([json.loads(line) for line in options.json.read_text().splitlines()])
    if endings:
        sys.exit("\n".join(endings))


def start_system(name: str, what: str, behind: str, folder: Path, stack: ExitStack) -> System:
    """A system, once it names its model."""
    what = what.format(port=(port := free_port()), behind=behind)
    process = log = None
    if what == "instant":
        what = f"{sys.executable} {FOLDER / 'instant.py'} {port}"
    if what.startswith("http"):
        port = int(what.rstrip("/").rpartition(":")[2])
    else:
        log = folder / f"{len(list(folder.iterdir()))}.log"
        words = shlex.split(what)
        started = serving(words, port, log, start_s=START_S, path="/v1/models")
        process = psutil.Process(stack.enter_context(started).pid)
        # what it has started may be in sessions of its own, and would never end
        stack.callback(System(name, port, "", process).halt, signal.SIGCONT)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as answer:
        return System(name, port, json.load(answer)["data"][0]["id"], process, log)


def texts_of(tokenizer: Path) -> list[str]:
    """Texts that are one token wherever they stand: words, or digits of a model without."""
    words = [text for text in Tokenizer(tokenizer).token_texts if re.fullmatch(" [a-z]{3,9}", text)]
    return words if len(words) > 99 else list("0123456789")


def measured(
    system: System, cell: str, words: Sequence[str], options: argparse.Namespace, turn: int
) -> dict[str, Any]:
    """Ask a system, and what it took: a row."""
    length, kind, level = re.fullmatch(r"(\d+)([xs])(\d+)", cell).groups()  # type: ignore[union-attr]
    draw = random.Random(f"{options.seed} {turn} {cell}")
    count = int(level) * options.requests
    prompts = ["".join(draw.choices(words, k=int(length))) for _ in range(count)]
    if kind == "s":
        prompts = prompts[:1] * count
    same = {
        "model": system.model,
        "max_tokens": options.tokens,
        "temperature": 0.8,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    bodies = []
    for seed, text in enumerate(prompts):
        chat = {"messages": [{"role": "user", "content": text}]}
        own = chat if options.chat else {"prompt": text}
        bodies.append(json.dumps(same | own | {"seed": seed}))
    path = "/v1/chat/completions" if options.chat else "/v1/completions"
    task = Task(system.port, path, int(level), bodies)
    family = family_of(system.process) if system.process else []
    before = cpu_s(family)
    output = subprocess.run(
        [sys.executable, FOLDER / "clients.py"],
        input=msgspec.json.encode(task),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    outcome = msgspec.json.decode(output, type=Outcome)
    for failure in outcome.failures[:2]:
        print(f"{system.name}, {cell}: {failure}", file=sys.stderr)
    memory = []
    for each in family:
        with suppress(psutil.NoSuchProcess):
            memory.append(each.memory_full_info())
    tokens = sum(each.tokens for each in outcome.answered_requests)
    between = [
        (e.whole - e.first) / (e.tokens - 1) for e in outcome.answered_requests if e.tokens > 1
    ]
    return {
        "system": system.name,
        "cell": cell,
        "round": f"{options.seed}, {turn}",
        "tokens_s": tokens / outcome.wall_s,
        "first_ms": [1000 * each.first for each in outcome.answered_requests],
        "between_ms": [1000 * each for each in between],
        "cpu_ms": 1000 * (cpu_s(family) - before) / tokens if tokens else 0.0,
        "pss_mib": sum(each.pss for each in memory) / 2**20,
        "rss_mib": sum(each.rss for each in memory) / 2**20,
        "failed": len(outcome.failures),
    }


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Every system in every cell, beside the first one of the cell, by rounds."""
    cells: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cells[row["cell"]][row["system"]].append(row)
    table = table_of(
        "Servers", "cell", "system", "tokens/s", "first token ms p50", "p99", "per token ms p50",
        "p99", "CPU ms/token", "PSS MiB", "RSS MiB", "failed", "first system's tokens/s over its",
        left_aligned={"cell", "system"},
    )  # fmt: skip
    for cell, systems in cells.items():
        first = next(iter(systems.values()))
        firsts = {row["round"]: row for row in first}
        for name, each in systems.items():
            rates = [row["tokens_s"] for row in each]
            over = [
                own["tokens_s"] / row["tokens_s"]
                for row in each
                if row["tokens_s"] and (own := firsts.get(row["round"]))
            ]
            times = [
                f"{value:,.1f}"
                for what in ("first_ms", "between_ms")
                for value in percentiles([ms for row in each for ms in row[what]])
            ]
            table.add_row(
                *(cell, name, spread_of(rates, 1), *times),
                f"{statistics.median(row['cpu_ms'] for row in each):.2f}",
                *(f"{max(row[what] for row in each):,.0f}" for what in ("pss_mib", "rss_mib")),
                str(sum(row["failed"] for row in each)),
                "" if each is first else spread_of(over, 2),
            )
    console = Console(width=180)
    console.print(table)
    console.print(machine())


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile; nan without any."""
    median, most = np.percentile(values or [np.nan], (50, 99))
    return float(median), float(most)


if __name__ == "__main__":
    main()
