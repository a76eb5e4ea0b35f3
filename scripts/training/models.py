"""Small Llamas of transformers: made, saved, and sampled from on a CPU."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from tts.datasets.demo import Chain

from .data import Row, Trace, checked_trace, padded
from .solutions import STEP_DELIMITER
from .text import CHAT_TEMPLATE, VOCABULARY, Codec, save_tokenizer
from .training import Losses, Schedule, train

MAX_POSITIONS = 512
ROPE_THETA = 10_000.0
_OF_TRANSFORMERS = ("transformers_version", "rope_parameters", "dtype", "pretraining_tp")
"""What newer versions of transformers write, and others would not read."""


def shape(hidden: int, layers: int, heads: int, intermediate: int, *, tied: bool) -> LlamaConfig:
    """The configuration of a model; for short sequences on a CPU plain attention trains faster."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        tie_word_embeddings=tied,
        max_position_embeddings=MAX_POSITIONS,
        rms_norm_eps=1e-5,
        attn_implementation="eager",
    )


def new_model(config: LlamaConfig) -> LlamaForCausalLM:
    """A model with random weights, drawn for training from scratch."""
    model = LlamaForCausalLM(config)
    for name, p in model.named_parameters():
        if p.dim() == 2:
            scale = 0.02 if "embed" in name or "lm_head" in name else p.shape[1] ** -0.5
            if "o_proj" in name or "down_proj" in name:
                scale *= (2 * config.num_hidden_layers) ** -0.5
            nn.init.normal_(p, std=scale)
    return model


def hidden(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    """Right-padded ids [rows, tokens] -> hidden states [rows, tokens, hidden]."""
    states: Tensor = model.model(ids, use_cache=False).last_hidden_state
    return states


def train_language_model(
    name: str,
    config: LlamaConfig,
    schedule: Schedule,
    seed: int,
    rows: Callable[[int], Sequence[Row]],
    stop: Callable[[int, LlamaForCausalLM], bool] | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> LlamaForCausalLM:
    """Learn the rows of each step, until the schedule ends or ``stop(step, average)`` says so.

    It begins with `weights`, or with random ones.
    """
    torch.manual_seed(seed)
    model, average = new_model(config), LlamaForCausalLM(config).eval()
    model.load_state_dict(weights or model.state_dict())
    print(f"{name}: {model.num_parameters():,} parameters", flush=True)

    def losses(step: int) -> Losses:
        batch = rows(step)
        ids = padded([row for row, _ in batch], 0)
        learn = padded([learn_row for _, learn_row in batch], False)[:, 1:]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model.lm_head(hidden(model, ids[:, :-1])[learn])
        return {"loss": F.cross_entropy(logits.float(), ids[:, 1:][learn])}

    def enough(step: int, weights: dict[str, Tensor]) -> bool:
        average.load_state_dict(weights)
        return stop is not None and stop(step, average)

    average.load_state_dict(train(name, model, schedule, losses, enough))
    return average


def save(model: LlamaForCausalLM, folder: Path, codec: Codec) -> None:
    """Write config.json, generation_config.json, and the weights in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    config, weights = model.config, model.state_dict()
    stored = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in weights.items()}
    if config.tie_word_embeddings:
        del stored["lm_head.weight"]
    file = folder / "model.safetensors"
    save_file(stored, file, metadata={"format": "pt"})
    file.chmod(0o644)  # safetensors makes it readable by its owner only
    ends = {"bos_token_id": codec.bos, "eos_token_id": codec.eot, "pad_token_id": codec.pad}
    settings = {k: v for k, v in config.to_dict().items() if k not in _OF_TRANSFORMERS}
    settings |= {"architectures": ["LlamaForCausalLM"], "rope_theta": ROPE_THETA}
    settings |= {"torch_dtype": "bfloat16", **ends}
    generation = {**ends, "do_sample": True, "temperature": 0.8}
    for name, value in (("config.json", settings), ("generation_config.json", generation)):
        text = json.dumps(value, indent=2, sort_keys=True)
        (folder / name).write_text(text + "\n", encoding="utf-8")


@torch.inference_mode()
def sampled(
    model: LlamaForCausalLM,
    codec: Codec,
    questions: Sequence[str],
    count: int,
    temperature: float = 0.8,
    tokens: int = 200,
    rows: int = 256,
) -> list[list[list[str]]]:
    """Sampled solutions of each question, as the texts of their steps; torch's seed draws them."""
    prompts = [codec.prompt(question) for question in questions for _ in range(count)]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    out: list[list[str]] = [[] for _ in prompts]
    config = GenerationConfig(
        do_sample=temperature > 0,
        temperature=temperature or None,
        top_k=0,
        max_new_tokens=tokens,
        eos_token_id=codec.eot,
        pad_token_id=codec.pad,
    )
    for at in range(0, len(order), rows):
        part = order[at : at + rows]
        width = max(len(prompts[i]) for i in part)
        missing = torch.tensor([[width - len(prompts[i])] for i in part])
        ids = torch.tensor([[codec.pad] * (width - len(prompts[i])) + prompts[i] for i in part])
        mask = (torch.arange(width) >= missing).long()
        outputs = model.generate(ids, attention_mask=mask, generation_config=config)
        for i, row in zip(part, outputs[:, width:].tolist(), strict=True):
            ids_of_row = row[: row.index(codec.eot)] if codec.eot in row else row
            out[i] = codec.decode(ids_of_row).split(STEP_DELIMITER)
    return [out[i : i + count] for i in range(0, len(out), count)]


def attempts(
    model: LlamaForCausalLM,
    codec: Codec,
    problems: Sequence[tuple[Chain, str]],
    count: int,
    temperature: float = 0.8,
    tokens: int = 200,
) -> list[Trace]:
    """Sampled solutions of each chain in its wording, checked exactly."""
    groups = sampled(model, codec, [q for _, q in problems], count, temperature, tokens)
    return [
        checked_trace(chain, question, steps)
        for (chain, question), group in zip(problems, groups, strict=True)
        for steps in group
    ]


def right_share(traces: Sequence[Trace]) -> float:
    """How many of some attempts hold the answer in the box of their last step."""
    right = [f"\\boxed{{{trace.chain.answer}}}" in trace.steps[-1] for trace in traces]
    return sum(right) / len(right)


def main(
    description: str | None,
    make: Callable[[int, Schedule], tuple[LlamaForCausalLM, Codec]],
    schedule: Schedule,
    chat_template: str = CHAT_TEMPLATE,
) -> None:
    """The command line of a program that trains one model: make it, and save the checkpoint."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--steps", type=int, default=schedule.steps)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    model, codec = make(args.seed, replace(schedule, steps=args.steps))
    save(model, args.out, codec)
    save_tokenizer(codec.tokenizer, args.out, chat_template)
    print(f"{args.out}: done in {time.monotonic() - began:.0f} s")
