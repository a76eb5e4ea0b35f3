"""Generation for an ordinary model, SmolLM2-135M-Instruct: vLLM, llama.cpp, and ours."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import yaml

from scripts.bench.gateway import results
from scripts.bench.gateway.load import Outcome, Task
from scripts.bench.gateway.systems import Run
from tts.build import paths
from tts.build.builder import build_engines
from tts.build.spec import load_deployment
from tts.datasets.load import load_problems

from .environments import Peers, say
from .process import Server, free_port
from .turns import Measured, in_turns

LOAD = Path(__file__).parents[1] / "gateway" / "load.py"
TTS = "import sys; sys.argv[0] = 'tts'; from tts.cli import main; main()"
MODEL = "peers-smollm2"
CONTEXT = 512
SLOTS = 64
TIMEOUT_S = 300.0
OURS = ("tts gateway", "tts gateway, embedded")
THEIRS = ("vLLM", "llama.cpp")
Start = Callable[[Peers, int], list[str | Path]]


def ours_of(server: str) -> Start:
    """Our gateway, with its engines in a Triton server or embedded."""

    def words(peers: Peers, port: int) -> list[str | Path]:
        return [
            *(sys.executable, "-c", TTS, "gateway", _deployment(peers), "--server", server),
            *("--port", str(port)),
        ]

    return words


def vllm(peers: Peers, port: int) -> list[str | Path]:
    """VLLM's own server."""
    return [
        *(peers.python("vllm"), "-m", "vllm.entrypoints.openai.api_server", "--port", str(port)),
        *("--model", peers.checkpoint(), "--served-model-name", MODEL, "--host", "127.0.0.1"),
        *("--dtype", "bfloat16", "--max-model-len", str(CONTEXT), "--max-num-seqs", str(SLOTS)),
    ]


def llama(peers: Peers, port: int) -> list[str | Path]:
    """llama.cpp's own server; its weights stay in four bits."""
    return [
        *(peers.llama_server(), "--model", peers.gguf(), "--alias", MODEL, "--port", str(port)),
        *("--host", "127.0.0.1", "--parallel", str(SLOTS), "--ctx-size", str(SLOTS * CONTEXT)),
        *("--threads", "2", "--offline", "--no-webui"),
    ]


SYSTEMS: dict[str, Start] = {
    OURS[0]: ours_of("triton"),
    OURS[1]: ours_of("embedded"),
    THEIRS[0]: vllm,
    THEIRS[1]: llama,
}
"""How each is started. Our gateway in front of a server of others would be one more."""


def measure(
    peers: Peers,
    names: Sequence[str],
    levels: Sequence[int],
    tokens: int,
    per_unit: int,
    rounds: int,
) -> list[Measured]:
    """Each system at each number of requests in flight, in turns; the others are halted."""
    bodies = bodies_of(tokens)
    runs: dict[tuple[int, str], list[Run]] = {}
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tts-peers-")))
        serving: list[Server] = []
        for name in names:
            say(f"starting {name}")
            port = free_port()
            words = SYSTEMS[name](peers, port)
            log = logs / f"{len(serving)}.log"
            serving.append(stack.enter_context(Server(words, port, log)))
        for level in levels:
            for turn, order in enumerate([[*range(len(names))], *in_turns(len(names), rounds)]):
                for index in order:
                    requests = max(2, level // 4) if turn == 0 else per_unit * level
                    run = _load(serving[index], level, requests, bodies, tokens)
                    for failure in run.outcome.failures[:2]:
                        say(f"{names[index]}: {failure}")
                    word = "not counted" if turn == 0 else f"round {turn} of {rounds}"
                    say(f"{word}: {names[index]}, {level} in flight: {run.outcome.wall_s:.1f} s")
                    if turn:
                        runs.setdefault((level, names[index]), []).append(run)
    return [
        Measured(name, f"{level} in flight", values_of(name, level, run))
        for (level, name), each in runs.items()
        for run in each
    ]


def bodies_of(tokens: int) -> list[str]:
    """Chat requests for exactly so many tokens, streamed."""
    return [
        json.dumps(
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": problem.question}],
                "max_tokens": tokens,
                "temperature": 1.0,
                "seed": number,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        for number, problem in enumerate(load_problems("demo", limit=64))
    ]


def values_of(name: str, level: int, run: Run) -> dict[str, float]:
    """The numbers of one round; times in milliseconds."""
    row = results.row_of("", name, level, [run])
    whole = [1000 * each.whole for each in run.outcome.seen] or [float("nan")]
    return {
        "tokens_s": row.tokens_s,
        "ttft": row.ttft,
        "ttft_p99": row.ttft_p99,
        "whole_p99": results.percentile(whole, 99),
        "failed": row.failed,
    }


def _load(server: Server, level: int, requests: int, bodies: list[str], tokens: int) -> Run:
    task = Task("http", f"127.0.0.1:{server.port}", level, requests, bodies, True, TIMEOUT_S)
    server.go_on()
    with tempfile.TemporaryFile() as seen:  # a pipe may take a part only, and lose the rest
        subprocess.run(
            [sys.executable, LOAD, str(tokens)],
            input=msgspec.json.encode(task),
            stdout=seen,
            check=True,
        )
        seen.seek(0)
        outcome = msgspec.json.decode(seen.read(), type=Outcome)
    server.halt()
    return Run(outcome, None, 0.0, 0.0)


def _deployment(peers: Peers) -> Path:
    """Our deployment of the model, built: the demo pair's, with another generator."""
    folder = paths.built_dir(MODEL)
    folder.mkdir(parents=True, exist_ok=True)
    fields = load_deployment("demo").model_dump(mode="json", exclude_none=True)
    fields["name"] = MODEL
    fields["generator"] |= {
        "checkpoint": str(peers.checkpoint()),
        "precision": "bf16",
        "max_batch_size": SLOTS,
        "max_seq_len": CONTEXT,
        "threads": 2,
        "guided_decoding": False,
    }
    file = folder / f"{MODEL}.yaml"
    file.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
    build_engines(load_deployment(file), verify=False, say=say)
    return file
