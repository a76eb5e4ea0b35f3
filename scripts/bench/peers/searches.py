"""Searches on the demo pair: search-and-learn's and its_hub's beside ours, on the same problems."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts.build import paths
from tts.datasets.load import load_problems
from tts.problem import Problem

from .environments import Peers, say
from .process import Server, Worker, free_port
from .turns import Measured, accuracies, in_turns

WORKERS = Path(__file__).with_name("workers")
OURS = "tts bench"
TTS = "import sys; sys.argv[0] = 'tts'; from tts.cli import main; main()"
CONTEXT = 320
WARM = 2
"""Problems that are solved once before anything is counted."""
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if not loop.last or add_generation_prompt %}{{ '<|eot_id|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""The demo pair's for vLLM's server: without trimming, as a step ends in a delimiter."""


@dataclass(frozen=True)
class Work:
    """What every system is given."""

    problems: Sequence[Problem]
    n: int
    width: int
    seed: int
    rounds: int


@dataclass(frozen=True)
class System:
    """One way to solve the problems."""

    name: str
    case: str
    solve: Callable[[int, int], dict[str, float]]
    """Solves the first so many problems, with a seed."""


def work_of(count: int, n: int, width: int, seed: int, rounds: int) -> Work:
    """The problems that `tts bench demo --limit COUNT --seed SEED` solves."""
    return Work(load_problems("demo", limit=count, seed=seed), n, width, seed, rounds)


def in_rounds(systems: Sequence[System], work: Work) -> list[Measured]:
    """Every system in every round, after a few problems that are not counted."""
    found = []
    for turn, order in enumerate([list(range(len(systems))), *in_turns(len(systems), work.rounds)]):
        for index in order:
            system = systems[index]
            values = system.solve(work.seed + turn, len(work.problems) if turn else WARM)
            word = "not counted" if turn == 0 else f"round {turn} of {work.rounds}"
            say(f"{word}: {system.name}, {system.case}: {values['wall_s']:.1f} s")
            if turn:
                found.append(Measured(system.name, system.case, values))
    return found


def ours(work: Work, strategy: str, server: str) -> System:
    """`tts bench`, whose summary has its wall time, without the server's start."""

    def solve(seed: int, count: int) -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="tts-peers-") as folder:
            out = Path(folder) / "run"
            # its seed draws the problems, too, which must be those of the others in every round
            words = ["bench", "demo", "--limit", count, "--seed", work.seed]
            words += ["--strategy", strategy, "--n", work.n, "--server", server, "--out", out]
            done = subprocess.run(
                [sys.executable, "-c", TTS, *map(str, words)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.exit(f"tts bench failed:\n{done.stderr[-2000:]}")
            summary = json.loads((out / "summary.json").read_text())
        right = summary["accuracy_by_rule"]
        return {"wall_s": summary["wall_s"], "best": right["best"], "weighted": right["weighted"]}

    return System(f"{OURS} --server {server}", strategy, solve)


def search_and_learn(
    peers: Peers, checkout: Path | None, work: Work, variants: Sequence[str], servers: Sequence[str]
) -> list[Measured]:
    """Its beam search beside ours; a variant is MODE-TYPE-BATCH, such as eager-fp32-32."""
    source, python = peers.search_and_learn(checkout), peers.python("vllm")
    checkpoints = paths.deployments_dir().parent / "checkpoints"
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tts-peers-")))
        modes: dict[str, Worker] = {}
        systems = [ours(work, "beam-search", server) for server in servers]
        for variant in variants:
            mode, kind, batch = variant.split("-")
            if mode not in modes:
                say(f"loading search-and-learn's models, {mode}")
                words: list[str | Path] = [python, WORKERS / "sal.py", "--source", source]
                words += ["--generator", checkpoints / "demo-generator"]
                words += ["--verifier", checkpoints / "demo-verifier"]
                words += ["--eager"] if mode == "eager" else []
                modes[mode] = stack.enter_context(Worker(words, logs / f"{mode}.log"))
            question = {"type": kind, "batch": int(batch)}
            name = f"search-and-learn, {mode}, verifier {kind}, batches of {batch}"
            systems.append(_asked(modes[mode], work, question, name, "beam-search"))
        return in_rounds(systems, work)


def its_hub(
    peers: Peers, work: Work, algorithms: Sequence[str], at_once: Sequence[int], behind: str
) -> list[Measured]:
    """Its searches beside ours, generation from vLLM's server or our gateway (`behind`)."""
    python = peers.python("vllm")
    checkpoints = paths.deployments_dir().parent / "checkpoints"
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tts-peers-")))
        port = free_port()
        if behind == "vllm":
            template = logs / "template.jinja"
            template.write_text(TEMPLATE)
            words: list[str | Path] = [
                python,
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--port",
                str(port),
            ]
            words += ["--model", checkpoints / "demo-generator", "--served-model-name", "demo"]
            words += ["--host", "127.0.0.1", "--max-model-len", str(CONTEXT)]
            words += ["--chat-template", template, "--enforce-eager"]
        else:
            words = [sys.executable, "-c", TTS, "gateway", "demo", "--port", str(port)]
        server = stack.enter_context(Server(words, port, logs / "server.log"))
        asked: list[str | Path] = [
            python,
            WORKERS / "its.py",
            "--verifier",
            checkpoints / "demo-verifier",
        ]
        worker = stack.enter_context(Worker(asked, logs / "its.log"))
        systems = []
        for algorithm in algorithms:
            systems.append(ours(work, algorithm, "triton"))
            for count in at_once:
                question = {
                    "endpoint": f"http://127.0.0.1:{port}/v1",
                    "model": "demo",
                    "algorithm": algorithm,
                    "at_once": count,
                }
                name = f"its_hub on {behind}, {count} problems at once"
                systems.append(_asked(worker, work, question, name, algorithm, server))
        return in_rounds(systems, work)


def _asked(
    worker: Worker,
    work: Work,
    question: dict[str, Any],
    name: str,
    case: str,
    server: Server | None = None,
) -> System:
    def solve(seed: int, count: int) -> dict[str, float]:
        problems = work.problems[:count]
        asked = {"problems": [each.question for each in problems], "n": work.n, "seed": seed}
        if server:
            server.go_on()
        answer = worker.ask(question | asked | {"width": work.width})
        if server:
            server.halt()
        solved = [[(text, score) for text, score in each] for each in answer["solved"]]
        return {
            "wall_s": answer["wall_s"],
            **accuracies(solved, [each.answer or "" for each in problems]),
        }

    return System(name, case, solve)
