"""The memory that a served pair takes on a CPU, beside what `tts plan` says.

Builds and serves the deployment, sends random prompts until both KV pools have been written to the
last block, and prints the memory of every process of the server: its share of all pages (PSS), how
much of it the kernel may take back at any time because it is a file's, and its peak.

    scripts/run bench.engine_memory demo
"""

from __future__ import annotations

import argparse
import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scripts.bench.common import process_of
from tts.build.builder import build_engines, require_current
from tts.build.machine_memory import memory_limit
from tts.build.openvino.memory import plan_host_memory
from tts.build.spec import Deployment, Role, load_deployment
from tts.build.tokenizer import Ids
from tts.endpoints.base import GenerateCall, ScoreCall
from tts.endpoints.triton import TritonConnection, TritonGenerator, TritonVerifier
from tts.engines import wire
from tts.lab.tuning.measure import send_all
from tts.reports.console import consoles
from tts.reports.memory_plan import print_host_memory
from tts.serving.server.start import RunningServer, start_server

NEW_TOKENS = 16
FILLS = 1.25
"""Tokens sent over tokens of the pool: requests end with blocks that are partly filled."""
MODELS = {"generator": "generator", "prm": "verifier"}


@dataclass(frozen=True)
class Usage:
    """One process, or several together, in bytes."""

    share: int
    """PSS: its own pages, and its part of those that it shares."""
    of_files: int
    """The part of it that is unchanged pages of files."""
    peak: int
    """Most that was ever resident (VmHWM)."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.share + other.share, self.of_files + other.of_files, self.peak + other.peak
        )


def main() -> None:
    """Serve the deployment, fill its pools, and print the memory of its processes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("deployment")
    deployment = load_deployment(parser.parse_args().deployment)
    out, _ = consoles()
    planned = plan_host_memory(deployment)
    build_engines(deployment, verify=False, say=out.print)
    with start_server(deployment, say=out.print) as server:
        show("ready", usage(server))
        asyncio.run(fill(deployment, server))
        measured = usage(server)
        show("pools full", measured)
    print_host_memory(out, planned, memory_limit())
    total = sum(process.share for process in measured.values())
    for role, memory in planned.engines.items():
        compare(role, memory.resident, measured[role].share)
    compare("pair", planned.resident, total)


def compare(what: str, planned: int, measured: int) -> None:
    """Print what was planned beside what was measured, and the error."""
    error = planned / measured - 1
    print(f"{what}: planned {mib(planned)}, measured {mib(measured)} MiB, {error:+.1%}")


def show(when: str, processes: dict[str, Usage]) -> None:
    """Print the memory of each process."""
    print(f"{when}: MiB of each process (share, of it files, peak)")
    for name, used in processes.items():
        print(f"  {name:14} {mib(used.share):>8} {mib(used.of_files):>8} {mib(used.peak):>8}")


def usage(server: RunningServer) -> dict[str, Usage]:
    """The processes of a server by what they are."""
    root = process_of(server)
    named = {"tritonserver": memory_of(root.pid)}
    for stub in root.children():
        words = " ".join(stub.cmdline())
        name = next((name for model, name in MODELS.items() if f"/{model}/" in words), words)
        named[name] = memory_of(stub.pid)
        for engine in stub.children():
            named[name] += memory_of(engine.pid)
    return named


def memory_of(pid: int) -> Usage:
    """What a process holds now, and its peak."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    status = Path(f"/proc/{pid}/status").read_text()

    def field(name: str, text: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        return 1024 * int(found[1]) if found else 0

    return Usage(field("Pss", rollup), field("Pss_File", rollup), field("VmHWM", status))


async def fill(deployment: Deployment, server: RunningServer) -> None:
    """Write every block of both pools, with as much in flight as the deployment allows."""
    configs = require_current(deployment)
    random = np.random.default_rng(0)

    def prompts(role: Role, length: int) -> list[Ids]:
        count = int(FILLS * deployment.engines()[role].kv_cache.tokens / length) + 1
        ids = random.integers(0, configs[role].vocab_size, (count, length))
        return list(ids.astype(np.int32))

    async with TritonConnection(server.addresses.grpc) as connection:
        generator = TritonGenerator(connection, end_id=wire.NO_END_ID, step_stop_words=())
        verifier = TritonVerifier(connection)
        length = deployment.generator.max_seq_len - NEW_TOKENS
        await send_all(
            prompts("generator", length),
            lambda prompt: 1,
            deployment.generator.in_flight_requests,
            lambda prompt: generator.generate(GenerateCall(prompt, NEW_TOKENS, 0, 1.0, 1.0, False)),
        )
        await send_all(
            prompts("verifier", deployment.verifier_model.max_seq_len - 1),
            len,
            deployment.verifier.in_flight_tokens,
            lambda prompt: verifier.score(ScoreCall(prompt)),
        )


def mib(size: int) -> str:
    """A size in MiB, as it is printed."""
    return f"{size / 2**20:,.0f}"


if __name__ == "__main__":
    main()
