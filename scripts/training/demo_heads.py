"""Make demo-classification and demo-value: verifiers with a head, from the bundled demo pair.

    scripts/run training.demo_heads --out engines/checkpoints --work runs/demo-heads

demo-classification begins as demo-verifier with a new head for the language head; demo-value as
demo-classification, with the newline in the marker's place. Each learns its own dialogue on the
data of demo-verifier: attempts of demo-generator at training problems, checked exactly, and made-up
mistakes. Two layouts, as two published kinds of process reward models have them
(docs/reference/verifiers.md):

- classification: a chat whose assistant turn holds the steps, a marker token after each; two
  layers with a ReLU between them give two classes at the marker, the second one "right".
- value: the question, then a line per step; one linear layer gives one number at each line's end,
  whose sigmoid is the score.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from scripts.training import data, models, text
from scripts.training.demo_models import MIX, read_samples, synthetic, write_samples
from scripts.training.training import Losses, Schedule, share, train
from tts.datasets.demo import DEMO

Kind = Literal["classification", "value"]
ARCHITECTURES: dict[Kind, str] = {
    "classification": "Qwen2ForProcessRewardModel",
    "value": "Qwen2ForPrmModel",
}
PROBLEMS = 2400
STEPS: dict[Kind, int] = {"classification": 720, "value": 360}
TOKENS: dict[Kind, int] = {"classification": 4096, "value": 2048}
"""Tokens of a training step; the value head begins with layers that judge already."""


class Headed(nn.Module):
    """A decoder with a head; `forward` gives the logit of "right" at some positions."""

    def __init__(self, kind: Kind, llama: LlamaForCausalLM) -> None:
        super().__init__()
        self.kind = kind
        self.llama = llama
        self.llama.lm_head = None
        size = llama.config.hidden_size
        self.head: nn.Module = nn.Linear(size, 1)
        if kind == "classification":
            self.head = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 2))

    def forward(self, ids: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Ids [rows, tokens]; positions by row and column [steps] -> logits [steps]."""
        out: Tensor = self.head(models.hidden(self.llama, ids)[rows, columns]).float()
        return out[:, 1] - out[:, 0] if self.kind == "classification" else out[:, 0]


@dataclass(frozen=True)
class Codes:
    """The token ids of both layouts beyond those of a step's text."""

    codec: text.Codec
    marker: int
    newline: int

    @classmethod
    def of(cls, codec: text.Codec) -> Codes:
        """Looked up in the demo pair's tokenizer."""
        (newline,) = codec.question("\n")
        return cls(codec, codec.tokenizer.token_to_id(text.PLACEHOLDER), newline)

    def dialogue(
        self, kind: Kind, question: str, steps: Sequence[str]
    ) -> tuple[list[int], list[int]]:
        """The ids of an attempt, and the position at which each step is judged."""
        codec = self.codec
        if kind == "classification":
            ids, end = codec.prompt(question), self.marker
        else:
            ids, end = [codec.bos, *codec.question(question + "\n")], self.newline
        at = []
        for step in steps:
            ids += [*codec.step(step), end]
            at.append(len(ids) - 1)
        return ids, at


def losses_of(model: Headed, codes: Codes, traces: Sequence[data.Trace]) -> Losses:
    """Cross-entropy of the steps' labels; steps after the first wrong one weigh less."""
    judged: list[tuple[int, int, float, float]] = []
    lines: list[list[int]] = []
    for row, trace in enumerate(traces):
        ids, at = codes.dialogue(model.kind, trace.question, trace.steps)
        first = trace.first_wrong()
        lines.append(ids)
        for i, column in enumerate(at):
            judged.append((row, column, float(i < first), 1.0 if i <= first else 0.3))
    width = max(map(len, lines))
    padded = torch.tensor([ids + [codes.codec.pad] * (width - len(ids)) for ids in lines])
    rows, columns, labels, weights = (torch.tensor(each) for each in zip(*judged, strict=True))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(padded, rows, columns)
    each = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    right = (logits > 0) == (labels == 1)
    return {
        "loss": (each * weights).sum() / weights.sum(),
        "missed": 1 - share(right, (weights == 1.0) & (labels == 0)),
        "falsely accused": 1 - share(right, labels == 1),
    }


def training_traces(
    rng: random.Random, own: dict[int, list[data.Trace]], tokens: int
) -> list[data.Trace]:
    """One batch of one operation count: a bit more than half are the generator's own attempts."""
    operations = rng.randint(2, 10)
    made = partial(synthetic, task=DEMO, shares=MIX)
    return [
        rng.choice(own[operations])
        if rng.random() < 0.55
        else made(rng, DEMO.sample_training_chain(rng, operations))
        for _ in range(tokens // (22 + 12 * operations))
    ]


def make(
    kind: Kind, out: Path, seed: int, codec: text.Codec, own: dict[int, list[data.Trace]]
) -> None:
    """Train one of them, and write its checkpoint."""
    torch.manual_seed(seed)
    codes = Codes.of(codec)
    if kind == "classification":
        model = Headed(kind, models.load(out / "demo-verifier"))
    else:
        model = Headed(kind, models.load_layers(out / "demo-classification"))
        with torch.no_grad():
            embedding = model.llama.model.embed_tokens.weight
            embedding[codes.newline] = embedding[codes.marker]

    def losses(step: int) -> Losses:
        rng = random.Random(f"demo-heads/{seed}/{kind}/{step}")
        return losses_of(model, codes, training_traces(rng, own, TOKENS[kind]))

    schedule = Schedule(steps=STEPS[kind], rate=3e-4, warmup=20, average=0.9)
    model.load_state_dict(train(kind, model.train(), schedule, losses))
    folder = out / f"demo-{kind}"
    save(model, folder, codec)
    print(f"{kind}: {folder}", flush=True)


def save(model: Headed, folder: Path, codec: text.Codec) -> None:
    """Write a checkpoint as the published models of this kind lay theirs out.

    The demo verifier is a Llama; as a Qwen2 it has zero biases in front of its attention.
    """
    weights, config = dict(model.llama.state_dict()), model.llama.config
    for layer in range(config.num_hidden_layers):
        for part in "qkv":
            name = f"model.layers.{layer}.self_attn.{part}_proj.bias"
            weights[name] = torch.zeros(config.hidden_size)
    prefix = "score" if model.kind == "classification" else "v_head.summary"
    weights |= {f"{prefix}.{name}": value for name, value in model.head.state_dict().items()}
    changes = {"architectures": [ARCHITECTURES[model.kind]], "model_type": "qwen2"}
    labels = {"num_labels": 2} if model.kind == "classification" else {}
    models.save(folder, weights, config, codec, **changes, **labels)
    text.save_tokenizer(codec.tokenizer, folder)


def main() -> None:
    """Train the heads that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("engines/checkpoints"), metavar="DIR")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--kind", choices=ARCHITECTURES, nargs="*", default=list(ARCHITECTURES))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.work.mkdir(parents=True, exist_ok=True)
    codec = text.Codec(Tokenizer.from_file(str(args.out / "demo-verifier" / "tokenizer.json")))
    file = args.work / "samples.jsonl"
    if not file.exists():
        torch.manual_seed(args.seed)
        rng = random.Random(f"demo-heads/{args.seed}/samples")
        generator = models.load(args.out / "demo-generator")
        write_samples(file, generator, codec, DEMO, rng, PROBLEMS)
    own = read_samples(file)
    for kind in args.kind:
        make(kind, args.out, args.seed, codec, own)


if __name__ == "__main__":
    main()
