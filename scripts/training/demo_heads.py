"""Make demo-classification and demo-value: verifiers with a head, from the bundled demo pair.

    scripts/run training.demo_heads --out engines/checkpoints --work runs/demo-heads

demo-classification begins as demo-verifier with a new head for the language head; demo-value
as demo-classification, with the newline in the marker's place. Each learns its own dialogue on the
data of demo-verifier: attempts of demo-generator at training problems, checked exactly, and made-up
mistakes. Results are kept in the work folder; a killed run goes on. Seeded, but not bitwise
repeatable.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from functools import partial
from pathlib import Path

import torch
from tokenizers import Tokenizer

from scripts.training import data, evaluate, heads, text
from scripts.training.demo_models import synthetic
from scripts.training.model import load_hf
from scripts.training.training import Losses, Schedule, train
from tts.datasets.chains import Chain
from tts.datasets.demo import DEMO

PROBLEMS, SAMPLES_EACH = 2400, 3
STEPS: dict[heads.Kind, int] = {"classification": 720, "value": 360}
TOKENS: dict[heads.Kind, int] = {"classification": 4096, "value": 2048}
"""Tokens of a training step; the value head begins with layers that judge already."""
MIX = (0.25, 0.25, 0.4, 0.1)  # of made-up attempts: many mistakes, one, structural, right


def main() -> None:
    """Train the heads that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("engines/checkpoints"), metavar="DIR")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--kind", choices=heads.ARCHITECTURES, nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.work.mkdir(parents=True, exist_ok=True)
    codec = text.Codec(Tokenizer.from_file(str(args.out / "demo-verifier" / "tokenizer.json")))
    own = samples(args.out, args.work, codec, args.seed)
    for kind in args.kind or heads.ARCHITECTURES:
        make(kind, args, codec, own)


def rng_of(seed: int, *names: object) -> random.Random:
    """A random generator of its own for each purpose."""
    return random.Random("/".join(map(str, ("demo-heads", seed, *names))))


def samples(out: Path, work: Path, codec: text.Codec, seed: int) -> dict[int, list[data.Trace]]:
    """The generator's attempts at training problems, by number of operations."""
    file = work / "samples.jsonl"
    if not file.exists():
        generator, rng = load_hf(out / "demo-generator"), rng_of(seed, "samples")
        noise, began, lines = torch.Generator().manual_seed(seed), time.monotonic(), []
        for at in range(0, PROBLEMS, 400):
            chains = [
                DEMO.sample_training_chain(rng, rng.choice((2, 3, 4, 5, 6, 7, 7, 8, 8, 9, 9, 10)))
                for _ in range(400)
            ]
            questions = [text.random_question(rng, chain) for chain in chains]
            pair = evaluate.Pair(codec, generator, None, temperature=0.8 if at % 800 else 1.0)
            groups = evaluate.sampled(pair, questions, SAMPLES_EACH, noise)
            for chain, question, group in zip(chains, questions, groups, strict=True):
                for attempt in group:
                    steps = evaluate.attempt_texts(codec, attempt)[:14]
                    lines.append(json.dumps([chain.start, chain.ops, question, steps]))
            print(f"samples: {len(lines)}, {time.monotonic() - began:.0f} s", flush=True)
        fresh = work / "samples.new"
        fresh.write_text("\n".join(lines), encoding="utf-8")
        fresh.replace(file)
    own: dict[int, list[data.Trace]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        start, ops, question, steps = json.loads(line)
        chain = Chain(start, tuple((op, b) for op, b in ops))
        own.setdefault(len(chain.ops), []).append(data.checked_trace(chain, question, steps))
    return own


def make(
    kind: heads.Kind,
    args: argparse.Namespace,
    codec: text.Codec,
    own: dict[int, list[data.Trace]],
) -> None:
    """Train one of them, and write its checkpoint."""
    torch.manual_seed(args.seed)
    codes = heads.Codes.of(codec)
    if kind == "classification":
        model = heads.Headed(kind, load_hf(args.out / "demo-verifier"))
    else:
        model = heads.Headed(kind, heads.load_layers(args.out / "demo-classification"))
        with torch.no_grad():
            embedding = model.llama.embed_tokens.weight
            embedding[codes.newline] = embedding[codes.marker]
    model.llama.lm_head = None

    def losses(step: int) -> Losses:
        traces = heads.training_traces(
            rng_of(args.seed, kind, step),
            own,
            partial(synthetic, task=DEMO, shares=MIX),
            TOKENS[kind],
            DEMO.sample_training_chain,
        )
        return heads.losses(model, codes, traces)

    schedule = Schedule(steps=STEPS[kind], rate=3e-4, warmup=20, average=0.9)
    state = args.work / f"{kind}.state"
    model.load_state_dict(train(kind, model.train(), schedule, losses, state))
    folder = args.out / f"demo-{kind}"
    heads.save(model, folder, codec)
    print(f"{kind}: {folder}", flush=True)


if __name__ == "__main__":
    main()
