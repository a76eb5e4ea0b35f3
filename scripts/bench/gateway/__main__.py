"""What a gateway adds to a Triton server, at 1, 2, 4 ... 256 requests in flight, 20 for each.

`tts gateway` beside Triton's gRPC without any: time to the first token, time between tokens,
throughput, the gateway's own latency, requests that failed; with the demo pair's engines behind
them, and with models that answer at once, so that the gateway is what is measured. Both run at the
same time and are asked in turn, the order reversed from one concurrency to the next; --rounds
repeats all of it, so that a p99 is not one of a few requests.

    scripts/run bench.gateway                # everything
    scripts/run bench.gateway --quick        # 1, 8 and 64 in flight, 5 requests for each
    scripts/run bench.gateway --server instant --rounds 3
    scripts/run bench.gateway --server instant --checkout ../before     # its gateway, too

Server, gateway and clients share the machine: what the last line says of its load belongs to the
figures.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import psutil
import yaml
from rich.console import Console
from tritonclient.grpc import service_pb2

from scripts.bench.common import cpu_s, family_of, machine, table_of
from scripts.bench.gateway.load import Outcome, Task
from scripts.bench.instant_server import serve_models
from scripts.programs import TTS
from scripts.serving import free_port, serving
from tts.build.builder import build_engines
from tts.build.spec import Deployment, load_deployment
from tts.build.tokenizer import Tokenizer
from tts.datasets.load import load_problems
from tts.engines import wire
from tts.prompting.chat import generator_prompt
from tts.serving.server.start import start_server

LEVELS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
QUICK = (1, 8, 64)
WARM = (32, 10)
"""In flight, and requests for each, before anything is counted."""
AIM_FROM = 64
"""The aim holds at this concurrency and above."""
AIM = 0.9
"""Of gRPC's tokens a second."""
LOAD = Path(__file__).with_name("load.py")
TEXT = "Adding 12 gives 37 + 58 = 95. Therefore the answer is 95.\n"
PROMPTS = 64
DIRECT = "Triton gRPC"


@dataclass(frozen=True)
class System:
    """What is asked."""

    name: str
    kind: str
    """http or grpc."""
    address: str
    pid: int | None
    """The id of its process; None for the server itself."""
    bodies: list[str]


@dataclass(frozen=True)
class Row:
    """One system at one concurrency. Times in milliseconds; nan for what was not measured."""

    server: str
    system: str
    concurrency: int
    requests: int
    ttft: float
    """Median time to the first token."""
    ttft_p99: float
    tbt: float
    """Median over requests of the mean time between two tokens."""
    tbt_p99: float
    requests_s: float
    tokens_s: float
    own: float
    """Median of the gateway's own latency, by its own measure."""
    own_p99: float
    cpu_us: float
    """CPU time of the system's process per token, microseconds."""
    failed: int
    """Requests that timed out or were refused."""


def main() -> None:
    """Measure what was asked for, and print it with the aim."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few levels, few requests")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--server", choices=("instant", "demo"), action="append")
    parser.add_argument("--checkout", type=Path, action="append", default=[], help="another one")
    parser.add_argument("--rounds", type=int, default=1, help="repeat each concurrency; pooled")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    asked = parser.parse_args()
    levels, per_unit = (QUICK, 5) if asked.quick else (LEVELS, 20)
    console = Console(width=160)
    rows: list[Row] = []
    for server in asked.server or ("instant", "demo"):
        runs: dict[tuple[int, str], list[tuple[Outcome, float]]] = defaultdict(list)
        with systems(server, asked.checkout, asked.tokens) as found:
            for system in found:  # not counted: what is learnt at the first requests
                measure(system, *WARM, asked.tokens)
            for turn, (_, level) in enumerate(product(range(asked.rounds), levels)):
                for system in found if turn % 2 == 0 else found[::-1]:
                    run = measure(system, level, per_unit, asked.tokens)
                    runs[level, system.name].append(run)
        rows += [row_of(server, *key, each) for key, each in sorted(runs.items())]
    print_rows(console, rows)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows]))
    console.print(machine())


@contextmanager
def systems(server: str, checkouts: Sequence[Path], tokens: int) -> Iterator[list[System]]:
    """Our gateway, those of other checkouts, and gRPC itself, in front of one server."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tts-bench-")))
        os.environ["TTS_HOME"] = str(folder / "home")
        data = load_deployment("demo").model_dump(mode="json", exclude_none=True)
        file = folder / "demo.yaml"
        file.write_text(yaml.safe_dump(data | {"server": {"grpc_port": free_port()}}))
        deployment = load_deployment(file)
        build_engines(deployment, verify=False, say=lambda line: None)
        if server == "demo":
            grpc = stack.enter_context(start_server(deployment)).addresses.grpc
        else:
            ids = Tokenizer(deployment.generator.tokenizer_folder).encode(TEXT)
            starting = serve_models(deployment, folder, "tokens", ids)
            grpc = stack.enter_context(starting)[0].grpc
        questions = [problem.question for problem in load_problems("demo", limit=PROMPTS)]
        messages = [_message(deployment, question, tokens) for question in questions]
        found = [System(DIRECT, "grpc", grpc, None, messages)]
        chats = [chat(deployment.name, question, tokens) for question in questions]
        for place in (None, *checkouts):
            python = place.absolute() / ".venv/bin/python" if place else Path(sys.executable)
            port, name = free_port(), f"tts gateway{f', {place}' if place else ''}"
            words = [str(python), "-c", TTS, "gateway", str(file), "--port", str(port)]
            process = stack.enter_context(serving(words, port, folder / f"{len(found)}.log"))
            found.append(System(name, "http", f"127.0.0.1:{port}", process.pid, chats))
        yield found


def chat(model: str, question: str, tokens: int) -> str:
    """A streamed chat request for so many tokens, whatever the model says."""
    return json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": tokens,
            "temperature": 1.0,
            "seed": 1,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


def _message(deployment: Deployment, question: str, tokens: int) -> str:
    """The same for the server itself."""
    tokenizer = Tokenizer(deployment.generator.tokenizer_folder)
    ids = generator_prompt(tokenizer, deployment.generator, question)
    message = service_pb2.ModelInferRequest(model_name=wire.GENERATOR, id="1")
    message.inputs.add(name="input_ids", datatype="INT32", shape=[1, len(ids)])
    message.raw_input_contents.append(ids.tobytes())
    scalars = {
        "input_lengths": len(ids),
        "request_output_len": tokens,
        "end_id": wire.NO_END_ID,
        "temperature": 1.0,
        "seed": 1,
        "streaming": True,
    }
    for name, value in scalars.items():
        message.inputs.add(name=name, datatype=wire.INPUTS[name], shape=[1, 1])
        message.raw_input_contents.append(wire.scalar(name, value).tobytes())
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    return base64.b64encode(message.SerializeToString()).decode()


def measure(system: System, concurrency: int, per_unit: int, tokens: int) -> tuple[Outcome, float]:
    """Ask one system with so many in flight; CPU seconds of its process, nan for the server."""
    requests = per_unit * concurrency
    task = Task(system.kind, system.address, concurrency, requests, system.bodies)
    before = _spent_by(system.pid)
    with tempfile.TemporaryFile() as seen:  # a pipe may take a part only, and lose the rest
        subprocess.run(
            [sys.executable, LOAD, str(tokens)],
            input=msgspec.json.encode(task),
            stdout=seen,
            check=True,
        )
        seen.seek(0)
        outcome = msgspec.json.decode(seen.read(), type=Outcome)
    for failure in outcome.failures[:3]:
        print(f"{system.name} at {concurrency}: {failure}", file=sys.stderr)
    return outcome, _spent_by(system.pid) - before


def _spent_by(pid: int | None) -> float:
    """CPU time of a process and its children so far."""
    return float("nan") if pid is None else cpu_s(family_of(psutil.Process(pid)))


def row_of(
    server: str, concurrency: int, system: str, runs: Sequence[tuple[Outcome, float]]
) -> Row:
    """The numbers of one or several runs; percentiles are of all their requests together."""
    seen = [each for outcome, _ in runs for each in outcome.seen]
    wall_s = sum(outcome.wall_s for outcome, _ in runs)
    tokens = sum(each.tokens for each in seen)
    first = [1000 * each.first for each in seen]
    between = [
        1000 * (each.whole - each.first) / (each.tokens - 1) for each in seen if each.tokens > 1
    ]
    own = [each.own_ms for each in seen if each.own_ms]
    return Row(
        server,
        system,
        concurrency,
        len(seen),
        *percentiles(first),
        *percentiles(between),
        len(seen) / wall_s,
        tokens / wall_s,
        *percentiles(own),
        1e6 * sum(cpu for _, cpu in runs) / tokens if tokens else float("nan"),
        sum(len(outcome.failures) for outcome, _ in runs),
    )


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile of times; nan without any."""
    median, most = np.percentile(values or [np.nan], (50, 99))
    return float(median), float(most)


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    """Every system at every concurrency, beside gRPC."""
    direct = {(row.server, row.concurrency): row for row in rows if row.system == DIRECT}
    table = table_of(
        "A gateway and the server itself", "server", "in flight", "system", "TTFT ms p50", "p99",
        "TBT ms p50", "p99", "requests/s", "tokens/s", "own ms p50", "p99", "CPU us/token",
        "failed", "tokens/s over gRPC's", left={"server", "system"},
    )  # fmt: skip
    for row in rows:
        over = row.tokens_s / direct[row.server, row.concurrency].tokens_s
        times = (row.ttft, row.ttft_p99, row.tbt, row.tbt_p99, row.requests_s)
        table.add_row(
            *(row.server, str(row.concurrency), row.system),
            *(f"{value:,.1f}" for value in times),
            f"{row.tokens_s:,.0f}",
            *("" if np.isnan(value) else f"{value:.2f}" for value in (row.own, row.own_p99)),
            "" if np.isnan(row.cpu_us) else f"{row.cpu_us:.0f}",
            str(row.failed),
            "" if row.system == DIRECT else f"{over:.2f}",
        )
    console.print(table)
    console.print(f"Aim: {AIM} of gRPC's tokens/s at {AIM_FROM} in flight and above.")


if __name__ == "__main__":
    main()
