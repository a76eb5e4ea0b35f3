"""Measure our searches beside search-and-learn's and its_hub's, in turns.

The peers are pinned, and installed at the first use into .peers/ (some 4 GB). Systems take turns,
forwards and backwards, after a round that is not counted; those that are not asked are halted.
Ratios are of the same round.

search   search-and-learn's beam search on vLLM beside `tts bench`, on the demo pair; its variants
         are MODE-TYPE-BATCH: vLLM compiled or eager, its verifier bf16 or fp32, batches of so many
its      its_hub's beam search and particle filtering beside ours, the same pair; generation for it
         from vLLM's server, or from our gateway

    scripts/run bench.peers --part search --variant eager-fp32-32 --rounds 2
    scripts/run bench.peers --part its --behind gateway

Servers and searches share this machine; what the last line says of its load belongs to the
figures. Nothing here runs on a GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from scripts.bench.common import machine, spread_of, table_of
from scripts.programs import ROOT, TTS
from scripts.serving import end, free_port, serving
from tts.build import paths
from tts.datasets.load import load_problems

FOLDER = ROOT / ".peers"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
WORKERS = Path(__file__).with_name("workers")
SEARCH_AND_LEARN = "https://github.com/huggingface/search-and-learn"
COMMIT = "6f81cac8b1ca4c4be9fabefc27a856c928f3ae7f"
VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
"""Nothing is asked of a network; one GiB of cache; a worker's engine runs in the worker itself."""
START_S = 900.0
"""vLLM compiles at its first start, which takes minutes."""
WARM = 2
"""Problems that are solved once before anything is counted."""
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if not loop.last or add_generation_prompt %}{{ '<|eot_id|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""The demo pair's for vLLM's server: without trimming, as a step ends in a delimiter."""
_BOXED = re.compile(r"\\boxed\{\s*(-?\d+)\s*\}")

Values = dict[str, float]
Solve = Callable[[int, int], Values]
"""Measures one system in the round of a number: so many problems."""


@dataclass(frozen=True)
class Peer:
    """One way to do a case."""

    name: str
    case: str
    solve: Solve


def main() -> None:
    """Measure the parts that the command line names, and print a table of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts: dict[str, Callable[..., Any]] = {"search": search, "its": its_hub}
    parser.add_argument("--part", choices=parts, nargs="+", default=list(parts))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server", choices=("triton", "embedded"), nargs="+", default=["triton"])
    parser.add_argument("--search-and-learn", type=Path, help="a checkout; one is cloned")
    parser.add_argument("--variant", nargs="+", default=["eager-fp32-32", "eager-bf16-32"])
    parser.add_argument("--behind", choices=("vllm", "gateway"), default="vllm", help="its_hub")
    parser.add_argument("--at-once", type=int, default=8, help="problems of its_hub")
    asked = parser.parse_args()
    console = Console(width=max(Console().width, 130))
    for part in asked.part:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tts-peers-")))
            peers = parts[part](asked, stack, folder)
            found = in_rounds(peers, asked)
        print_table(console, part, found)
    console.print(machine())


def in_rounds(peers: Sequence[Peer], asked: argparse.Namespace) -> dict[Peer, list[Values]]:
    """Every system in every round, forwards and backwards, after one that is not counted."""
    found: dict[Peer, list[Values]] = defaultdict(list)
    for turn in range(asked.rounds + 1):
        for peer in peers[:: 1 if turn % 2 else -1]:
            values = peer.solve(asked.seed + turn, asked.problems if turn else WARM)
            word = f"round {turn} of {asked.rounds}" if turn else "not counted"
            say(f"{word}: {peer.name}, {peer.case}")
            if turn:
                found[peer].append(values)
    return found


def print_table(console: Console, part: str, found: Mapping[Peer, Sequence[Values]]) -> None:
    """A row for each case of each system; the first value is compared with ours of the round."""
    names = list(next(iter(found.values()))[0])
    headings = ("case", "system", *names, f"{names[0]} / ours")
    table = table_of(part, *headings, left={"case", "system"})
    for peer, rounds in found.items():
        ours = next(own for other, own in found.items() if other.case == peer.case)
        ratios = [
            theirs[names[0]] / own[names[0]] for theirs, own in zip(rounds, ours, strict=False)
        ]
        cells = [spread_of([each[name] for each in rounds], 1) for name in names]
        table.add_row(peer.case, peer.name, *cells, "" if ours is rounds else spread_of(ratios, 2))
    console.print(table)


def search(asked: argparse.Namespace, stack: ExitStack, folder: Path) -> list[Peer]:
    """search-and-learn's beam search beside ours; a variant is MODE-TYPE-BATCH."""
    source, python = cloned(asked.search_and_learn), environment()
    peers = [ours(asked, "beam-search", server) for server in asked.server]
    workers: dict[str, Worker] = {}
    for variant in asked.variant:
        mode, kind, batch = variant.split("-")
        if mode not in workers:
            say(f"loading search-and-learn's models, {mode}")
            words = [python, WORKERS / "sal.py", "--source", source, *_pair()]
            words += ["--eager"] if mode == "eager" else []
            workers[mode] = stack.enter_context(Worker(words, folder / f"{mode}.log"))
        name = f"search-and-learn, {mode}, verifier {kind}, batches of {batch}"
        question = {"type": kind, "batch": int(batch)}
        peers.append(theirs(asked, name, "beam-search", workers[mode], question))
    return peers


def its_hub(asked: argparse.Namespace, stack: ExitStack, folder: Path) -> list[Peer]:
    """its_hub's searches beside ours, generation from vLLM's server or from our gateway."""
    python, port = environment(), free_port()
    words: list[str | Path] = [sys.executable, "-c", TTS, "gateway", "demo", "--port", str(port)]
    if asked.behind == "vllm":
        template = folder / "template.jinja"
        template.write_text(TEMPLATE)
        words = [*_vllm(python, port, _pair()[1], "demo", 320), "--chat-template", template]
        words += ["--enforce-eager"]
    process = stack.enter_context(started(words, port, folder / "server.log"))
    asking: list[str | Path] = [python, WORKERS / "its.py", *_pair()[2:]]
    worker = stack.enter_context(Worker(asking, folder / "its.log"))
    peers = []
    for algorithm in ("beam-search", "particle-filtering"):
        question = {
            "endpoint": f"http://127.0.0.1:{port}/v1",
            "model": "demo",
            "algorithm": algorithm,
            "at_once": asked.at_once,
        }
        name = f"its_hub on {asked.behind}, {asked.at_once} problems at once"
        peers.append(ours(asked, algorithm, "triton"))
        peers.append(theirs(asked, name, algorithm, worker, question, process))
    return peers


def ours(asked: argparse.Namespace, strategy: str, server: str) -> Peer:
    """`tts bench`, whose summary has its wall time, without the server's start."""

    def solve(seed: int, count: int) -> Values:
        with tempfile.TemporaryDirectory(prefix="tts-peers-") as folder:
            out = Path(folder) / "run"
            words = ["bench", "demo", "--limit", count, "--seed", seed, "--out", out]
            words += ["--dataset-seed", asked.seed]
            words += ["--strategy", strategy, "--n", asked.n, "--server", server]
            run([sys.executable, "-c", TTS, *words], "tts bench")
            summary = json.loads((out / "summary.json").read_text())
        right = summary["accuracy_by_rule"]
        return _shown(summary["wall_s"], right["best"], right["weighted"])

    return Peer(f"tts bench --server {server}", strategy, solve)


def theirs(
    asked: argparse.Namespace,
    name: str,
    case: str,
    worker: Worker,
    question: Mapping[str, Any],
    server: subprocess.Popen[bytes] | None = None,
) -> Peer:
    """What a worker searches, on a server if it needs one."""
    problems = load_problems("demo", limit=asked.problems, seed=asked.seed)

    def solve(seed: int, count: int) -> Values:
        texts = [problem.question for problem in problems[:count]]
        more = {"problems": texts, "n": asked.n, "seed": seed, "width": 4}
        with going_on(worker.process), going_on(server):
            answer = worker.ask({**question, **more})
        answers = [chosen(completions) for completions in answer["solved"]]
        right = [[a == p.answer for a in each] for each, p in zip(answers, problems, strict=False)]
        best, weighted = (sum(each) / len(right) for each in zip(*right, strict=True))
        return _shown(answer["wall_s"], best, weighted)

    return Peer(name, case, solve)


def chosen(completions: Sequence[tuple[str, float]]) -> tuple[str | None, str | None]:
    """The answer of the best completion, and the one with the largest sum of scores."""
    weights: dict[str, float] = defaultdict(float)
    answers = []
    for text, score in completions:
        boxed = _BOXED.findall(text)
        answers.append((score, str(int(boxed[-1])) if boxed else None))
        if boxed:
            weights[str(int(boxed[-1]))] += score
    best = max(answers, key=lambda each: each[0])[1]
    return best, max(weights, key=lambda answer: weights[answer], default=None)


def _shown(wall_s: float, best: float, weighted: float) -> Values:
    return {"wall s": wall_s, "best, %": 100 * best, "weighted, %": 100 * weighted}


class Worker:
    """A process that answers one line of JSON with one line of JSON, halted in between."""

    def __init__(self, words: Sequence[str | Path], log: Path) -> None:
        """Start it and wait until it is ready."""
        self._log = log
        with log.open("wb") as said:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
                env=os.environ | VARIABLES,
            )

    def __enter__(self) -> Worker:
        try:
            self._answer()
        except BaseException:
            end(self.process)
            raise
        os.killpg(self.process.pid, signal.SIGSTOP)
        return self

    def __exit__(self, *failure: object) -> None:
        end(self.process)

    def ask(self, question: Mapping[str, object]) -> dict[str, Any]:
        """What it answers; ends the program if it has ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"A peer has ended:\n{self._log.read_text(errors='replace')[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def started(words: Sequence[str | Path], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers, halted until it is measured."""
    with serving(words, port, log, start_s=START_S, variables=VARIABLES) as process:
        os.killpg(process.pid, signal.SIGSTOP)
        yield process


@contextmanager
def going_on(process: subprocess.Popen[bytes] | None) -> Iterator[None]:
    """A halted process runs within the block."""
    if process:
        os.killpg(process.pid, signal.SIGCONT)
    yield
    if process:
        os.killpg(process.pid, signal.SIGSTOP)


def environment() -> Path:
    """The interpreter of the peers' environment, made at the first use."""
    home, want = FOLDER / "vllm", hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp, python = home / "requirements.sha256", home / "bin" / "python"
    if not (python.exists() and stamp.is_file() and stamp.read_text() == want):
        say(f"installing vLLM and its_hub into {home}")
        run([sys.executable, "-m", "venv", "--clear", home], "an environment")
        pip = [python, "-m", "pip", "install", "--quiet", "--no-deps"]
        run([*pip, "--requirement", REQUIREMENTS], "the peers' packages")
        stamp.write_text(want)
    return python


def cloned(checkout: Path | None) -> Path:
    """The `src` of a checkout of search-and-learn, cloned if none is given."""
    folder = checkout or FOLDER / "search-and-learn"
    if not (folder / "src" / "sal").is_dir():
        say(f"cloning {SEARCH_AND_LEARN}; or name a checkout: --search-and-learn FOLDER")
        run(["git", "clone", "--quiet", SEARCH_AND_LEARN, folder], "search-and-learn")
        run(["git", "-C", folder, "checkout", "--quiet", COMMIT], "search-and-learn")
    return folder / "src"


def run(words: Sequence[object], what: str) -> None:
    """A command that must succeed; else the program ends with what it said."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{what} failed:\n{(done.stderr or done.stdout)[-3000:]}")


def _pair() -> list[str | Path]:
    """The demo pair's checkpoints, as workers are told of them."""
    folder = paths.deployments_dir().parent / "checkpoints"
    models = {"--generator": folder / "demo-generator", "--verifier": folder / "demo-verifier"}
    return [word for option in models.items() for word in option]


def _vllm(python: Path, port: int, model: str | Path, name: str, context: int) -> list[str | Path]:
    """VLLM's own server."""
    return [
        *(python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1"),
        *("--port", str(port), "--model", model, "--served-model-name", name),
        *("--max-model-len", str(context)),
    ]


def say(line: str) -> None:
    """Tell the user what goes on."""
    print(f"[peers] {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
