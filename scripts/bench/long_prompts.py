"""How long other streams wait while the gateway reads a long prompt: on its event loop, and off it.

Asks /tokenize for texts up to a whole body of 4 MiB, with a rule of content filters, and meanwhile
measures how late a timer of the same event loop is. There is no server: the gateway's application
is called. Two tokenizers: the demo pair's, and a byte-level BPE with the usual pattern in front,
trained on docs/, whose time grows with the length alone. Both ways run in turn.

    scripts/run bench.long_prompts [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console
from rich.table import Table
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from scripts.bench.common import table_of
from scripts.programs import ROOT
from tts.build.spec import Deployment, load_deployment
from tts.build.tokenizer import LONG
from tts.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tts.gateway import prompts
from tts.gateway.app import App
from tts.gateway.generation import TextGenerator
from tts.gateway.observability import Recorder
from tts.gateway.safety import FilterChain
from tts.gateway.service import MAX_BODY, Service, Settings
from tts.session import AsyncSession

SIZES = (4 << 10, 64 << 10, 512 << 10, 7 << 19)
"""Bytes of the text: with its escapes the last one fills a body of 4 MiB; a context of 131,072
tokens holds about 512 KiB."""
CONTEXT = 1 << 23
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How GPT-2's descendants split text before the merges."""
AIM_MS = 50.0
"""The longest wait that is aimed at: a token's time on a large model."""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    demo = load_deployment("demo")
    console = Console(width=110)
    table = table_of(
        f"Longest wait of another stream, ms (medians of {rounds}; aim {AIM_MS:g})",
        *("tokenizer", "text", "tokens", "reading", "on the loop", "as it is"),
    )
    with tempfile.TemporaryDirectory() as folder:
        trained = demo.generator.model_copy(update={"checkpoint": _trained(demo, Path(folder))})
        for name, generator in (("demo", demo.generator), ("usual", trained)):
            generator = generator.model_copy(update={"max_seq_len": CONTEXT})
            deployment = demo.model_copy(update={"generator": generator})
            rules = Path(folder) / "rules.yaml"
            rules.write_text("- term: not in the docs\n")
            asyncio.run(_measure(deployment, FilterChain.load(rules), name, rounds, table))
    console.print(table)


async def _measure(
    deployment: Deployment, filters: FilterChain, name: str, rounds: int, table: Table
) -> None:
    endpoints = {"generator": ScriptedGenerator([], []), "verifier": ScriptedVerifier()}
    async with AsyncSession(deployment, **cast(Any, endpoints)) as session:
        generator = TextGenerator(session.models, session.replicas, filters)
        keyring = cast(Any, SimpleNamespace(required=False))
        app = App(Service(session, generator, Settings(), keyring, filters, Recorder()))
        text = " ".join(file.read_text("utf-8") for file in sorted((ROOT / "docs").rglob("*.md")))
        text = "".join(char for char in text if char.isascii() and char not in '<["\\')
        text *= 1 + MAX_BODY // len(text)
        for size in SIZES:
            waits: dict[bool, list[float]] = {True: [], False: []}
            times: list[float] = []
            for _ in range(rounds if size < SIZES[-1] else max(1, rounds // 2)):
                for inline in (True, False):
                    vars(prompts)["LONG"] = sys.maxsize if inline else LONG
                    wait, seconds, tokens = await _asked(app, text[:size])
                    waits[inline].append(wait)
                    times.append(seconds)
            shown = (
                f"{1000 * statistics.median(each):,.1f}"
                for each in (times, waits[True], waits[False])
            )
            table.add_row(name, f"{size >> 10:,} KiB", f"{tokens:,}", *shown)


async def _asked(app: App, text: str) -> tuple[float, float, int]:
    """How late a timer was at most, and how long the answer took, in seconds; its tokens."""
    late = 0.0

    async def ticks() -> None:
        nonlocal late
        while True:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            late = max(late, time.perf_counter() - due)

    ticking = asyncio.ensure_future(ticks())
    await asyncio.sleep(0.01)
    late = 0.0
    body = [json.dumps({"messages": [{"role": "user", "content": text}]}).encode()]
    sent: list[Any] = []

    async def receive() -> Any:
        if body:
            return {"type": "http.request", "body": body.pop()}
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/tokenize", "method": "POST", "headers": []}
    began = time.perf_counter()
    await app(scope, receive, send)
    seconds = time.perf_counter() - began
    await asyncio.sleep(0.005)
    ticking.cancel()
    answer = json.loads(b"".join(part.get("body", b"") for part in sent))
    if "count" not in answer:
        raise SystemExit(answer["error"]["message"])
    return late, seconds, answer["count"]


def _trained(demo: Deployment, folder: Path) -> Path:
    """The demo's checkpoint with another tokenizer: 16,384 ids of byte-level BPE."""
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    for file in demo.generator.tokenizer_folder.glob("*.json"):
        shutil.copy(file, checkpoint)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|begin_of_text|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|eot_id|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=16_384,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(file) for file in (ROOT / "docs").rglob("*.md")], trainer)
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    return checkpoint


if __name__ == "__main__":
    main()
