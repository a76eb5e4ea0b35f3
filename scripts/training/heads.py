"""Verifiers that judge by a head of their own, made from the demo verifier: data and training.

Two layouts, as two published kinds of process reward models have them
(docs/reference/verifiers.md):

- classification: a chat whose assistant turn holds the steps, a marker token after each; two
  layers with a ReLU between them give two classes at the marker, the second one "right".
- value: the question, then a line per step; one linear layer gives one number at each line's end,
  whose sigmoid is the score.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tts.datasets.chains import Chain

from . import data, text
from .model import Llama, shape_of, write_config
from .training import Losses

Kind = Literal["classification", "value"]
ARCHITECTURES: dict[Kind, str] = {
    "classification": "Qwen2ForProcessRewardModel",
    "value": "Qwen2ForPrmModel",
}


class Headed(nn.Module):
    """A decoder with a head; `forward` gives the logit of "right" at some positions."""

    def __init__(self, kind: Kind, llama: Llama) -> None:
        super().__init__()
        self.kind = kind
        self.llama = llama
        hidden = llama.shape.hidden
        self.head: nn.Module
        if kind == "classification":
            self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))
        else:
            self.head = nn.Linear(hidden, 1)

    def forward(self, ids: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Ids [rows, tokens]; positions by row and column [steps] -> logits [steps]."""
        out: Tensor = self.head(self.llama(ids)[rows, columns]).float()
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
        marker, newline = (
            codec.tokenizer.token_to_id(text.PLACEHOLDER),
            codec.tokenizer.encode("\n", add_special_tokens=False).ids,
        )
        (only,) = newline
        assert marker is not None
        return cls(codec, marker, only)

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


def losses(model: Headed, codes: Codes, traces: Sequence[data.Trace]) -> Losses:
    """Cross-entropy of the steps' labels; steps after the first wrong one weigh less."""
    rows: list[int] = []
    columns: list[int] = []
    labels: list[float] = []
    weights: list[float] = []
    lines: list[list[int]] = []
    for row, trace in enumerate(traces):
        ids, at = codes.dialogue(model.kind, trace.question, trace.steps)
        first_wrong = trace.first_wrong()
        lines.append(ids)
        rows += [row] * len(at)
        columns += at
        labels += [float(i < first_wrong) for i in range(len(at))]
        weights += [1.0 if i <= first_wrong else 0.3 for i in range(len(at))]
    width = max(map(len, lines))
    padded = torch.tensor([ids + [codes.codec.pad] * (width - len(ids)) for ids in lines])
    label, weight = torch.tensor(labels), torch.tensor(weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(padded, torch.tensor(rows), torch.tensor(columns))
    each = F.binary_cross_entropy_with_logits(logits, label, reduction="none")
    right = (logits > 0) == (label == 1)
    first = (weight == 1.0) & (label == 0)
    return {
        "loss": (each * weight).sum() / weight.sum(),
        "missed": 1 - _share(right, first),
        "falsely accused": 1 - _share(right, label == 1),
    }


def _share(flags: Tensor, among: Tensor) -> Tensor:
    return flags[among].float().mean() if among.any() else torch.tensor(1.0)


def training_traces(
    rng: random.Random,
    own: dict[int, list[data.Trace]],
    synthetic: Callable[[random.Random, Chain], data.Trace],
    tokens: int,
    chain_of: Callable[[random.Random, int], Chain],
) -> list[data.Trace]:
    """One batch of one operation count: a bit more than half are the generator's own attempts."""
    operations = rng.randint(2, 10)
    count = tokens // (22 + 12 * operations)
    return [
        rng.choice(own[operations])
        if rng.random() < 0.55
        else synthetic(rng, chain_of(rng, operations))
        for _ in range(count)
    ]


def load_layers(folder: Path) -> Llama:
    """The layers of a checkpoint that `save` wrote, as float32, without its head."""
    weights = load_file(folder / "model.safetensors")
    model = Llama(shape_of(folder))
    model.lm_head = None
    layers = {k.removeprefix("model."): v.float() for k, v in weights.items() if "model." in k}
    model.load_state_dict({k: v for k, v in layers.items() if not k.endswith("_proj.bias")})
    return model


def save(model: Headed, folder: Path, codec: text.Codec) -> None:
    """Write a checkpoint (bfloat16) as the published models of this kind lay theirs out.

    The demo verifier is a Llama; as a Qwen2 it has zero biases in front of its attention.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shape = model.llama.shape
    weights = {
        f"model.{name}": value
        for name, value in model.llama.state_dict().items()
        if not name.startswith("lm_head")
    }
    for layer in range(shape.layers):
        for part in "qkv":
            weights[f"model.layers.{layer}.self_attn.{part}_proj.bias"] = torch.zeros(shape.hidden)
    prefix = "score" if model.kind == "classification" else "v_head.summary"
    weights |= {f"{prefix}.{name}": value for name, value in model.head.state_dict().items()}
    stored = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in weights.items()}
    file = folder / "model.safetensors"
    save_file(stored, file, metadata={"format": "pt"})
    file.chmod(0o644)  # safetensors makes it readable by its owner only
    write_config(model.llama, folder, codec.eot, codec.bos, codec.pad)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for name in ("attention_bias", "mlp_bias"):  # those of a Llama
        del config[name]
    config |= {"architectures": [ARCHITECTURES[model.kind]], "model_type": "qwen2"}
    if model.kind == "classification":
        config["num_labels"] = 2
    file = folder / "config.json"
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    text.save_tokenizer(codec.tokenizer, folder)
