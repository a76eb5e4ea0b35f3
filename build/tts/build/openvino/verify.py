"""Does an exported engine compute what transformers computes? Measured on seeded token sequences.

Two errors are measured separately, so that rounding cannot hide a wrong graph:

- *export*: the engine in fp32 arithmetic against transformers in fp64, with the weights as the
  engine stores them (rounded to bf16 or int8). It must be as near as fp32 arithmetic can be, in
  every precision. That error depends on the model (its depth, the size of its layers' sums), so it
  is measured: transformers in fp32 against itself in fp64.
- *served*: the engine with the arithmetic it is served with against the checkpoint itself. This
  includes what the precision costs; only gross errors are refused.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tts.base.errors import BuildError

from ..checkpoint import Checkpoint
from ..manifest import Verification
from ..spec import Precision
from ..weights import Array
from .runtime import plugin_properties
from .transformer import MODEL_FILE, ScoreColumns, label_precision, stored_values

if TYPE_CHECKING:
    import torch

ROUNDINGS = 16
"""How many times transformers' own largest rounding error in fp32 a logit may be off.

Measured on SmolLM2-135M: the engine is off by 1 to 4 times as much (other orders of summation), the
slightest fault, an epsilon a tenth of what it should be, by 200 to 500 times.
"""
LEAST_ROUNDING = 2.0**-22
"""The smallest rounding error assumed, as a fraction of the largest logit; half an ulp is 2^-24."""
SERVED_TOLERANCE = 0.2
"""Largest error of a logit in bf16 and int8, as a fraction of the largest logit."""
_SPREAD = 4096  # positions; beyond, fp32 angles themselves differ between libraries
_SEED = 20240607


@dataclass(frozen=True)
class _Case:
    """A batch of sequences, [rows, tokens] each, computed in pieces of `steps` tokens."""

    ids: Array
    mask: Array
    positions: Array
    steps: tuple[int, ...]
    scored: bool = False
    """Whether the ids ask for scores, of an engine that writes as well."""


def missing_packages() -> list[str]:
    """Packages that verification needs and that are not installed."""
    return [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]


def verify_engine(
    folder: Path, checkpoint: Checkpoint, precision: Precision, score: ScoreColumns | None = None
) -> Verification:
    """Compare the engine in `folder` with transformers; raises BuildError when they disagree."""
    cases = _cases(checkpoint)
    if score and score.beside_vocabulary:  # else no score would be compared
        cases += [replace(case, scored=True) for case in cases]
    exact, stored, roundings = _reference(checkpoint, precision, score, cases)
    largest = float(np.max([np.abs(logits).max() for logits in exact]))
    compare = partial(_errors, folder, cases=cases, vocabulary=checkpoint.config.vocab_size)
    errors = compare("fp32", reference=stored)
    limits = [ROUNDINGS * max(rounding, LEAST_ROUNDING * largest) for rounding in roundings]
    for error, limit in zip(errors, limits, strict=True):
        _require_near(checkpoint, "in fp32 arithmetic", error, limit, largest)
    served = errors
    if precision != "fp32":
        served = compare(precision, reference=exact)
        what = f"as served in {precision}"
        _require_near(checkpoint, what, _most(served), SERVED_TOLERANCE * largest, largest)
    return Verification(
        export_error=_most(errors),
        served_error=_most(served),
        largest_logit=largest,
        rounding_error=_most(roundings),
    )


def _most(errors: Sequence[float]) -> float:
    return float(np.max(errors))  # unlike max(), NaN if there is one


def _require_near(
    checkpoint: Checkpoint, what: str, error: float, limit: float, largest: float
) -> None:
    if not error <= limit:  # written so that NaN fails
        raise BuildError(
            f"The engine of {checkpoint.path} does not compute what transformers computes: "
            f"{what} a logit is off by {error:.3g}, allowed is {limit:.3g} "
            f"(largest logit {largest:.3g}).",
            hint="Please report this with the checkpoint's config.json. `--no-verify` builds "
            "the engine regardless.",
        )


def _cases(checkpoint: Checkpoint) -> list[_Case]:
    rng = np.random.default_rng(_SEED)
    config = checkpoint.config
    longest = config.max_position_embeddings

    def case(tokens: int, steps: Sequence[int] = (), rows: int = 1) -> _Case:
        tokens = min(tokens, longest)
        ids = rng.integers(0, config.vocab_size, (rows, tokens))
        positions = np.tile(np.arange(tokens), (rows, 1))
        fits = sum(steps) == tokens
        return _Case(ids, np.ones_like(ids), positions, tuple(steps) if fits else (tokens,))

    alone = [case(1), case(7), case(40), case(16, steps=(12, 1, 1, 1, 1))]
    # gaps between the positions show a wrong rotary embedding that short sequences hide
    spread = case(32)
    span = min(longest, _SPREAD)
    positions = np.sort(rng.choice(span, spread.ids.shape[1], replace=False))[None]
    padded = case(12, steps=(8, 3, 1), rows=2)
    padded.mask[0, :5] = 0
    padded.positions[0] = np.maximum(np.cumsum(padded.mask[0]) - 1, 0)
    return [*alone, _Case(spread.ids, spread.mask, positions, spread.steps), padded]


def _errors(
    folder: Path,
    precision: Precision,
    *,
    cases: Sequence[_Case],
    reference: Sequence[Array],
    vocabulary: int,
) -> list[float]:
    """The largest error of a logit in each case."""
    import openvino

    properties = plugin_properties(precision)
    try:
        model = openvino.Core().compile_model(folder / MODEL_FILE, "CPU", properties)
    except RuntimeError as error:
        raise BuildError(
            f"OpenVINO cannot load the engine in {precision} on this CPU: {error}",
            hint="Choose precision fp32 in the deployment file; every CPU computes it.",
        ) from error
    errors, both = [], any(case.scored for case in cases)
    for case, expected in zip(cases, reference, strict=True):
        request = model.create_infer_request()
        logits, start = [], 0
        for step in case.steps:
            end = start + step
            inputs = {
                "input_ids": case.ids[:, start:end] + vocabulary * case.scored,
                "attention_mask": case.mask[:, :end],
                "position_ids": case.positions[:, start:end],
                "beam_idx": np.arange(len(case.ids), dtype=np.int32),
            }
            if both:
                inputs["sampled_tokens_indices"] = np.arange(len(case.ids))
            logits.append(request.infer(inputs)["logits"].copy())
            start = end
        served = np.concatenate(logits, axis=1)
        if both:
            served = served[..., vocabulary:] if case.scored else served[..., :vocabulary]
        difference = np.abs(served - expected)[case.mask == 1]
        errors.append(float(difference.max(initial=0.0)))
    return errors


def _reference(
    checkpoint: Checkpoint, precision: Precision, score: ScoreColumns | None, cases: Sequence[_Case]
) -> tuple[list[Array], list[Array], list[float]]:
    """Logits of every case: of the checkpoint, and in fp64 of it with the engine's stored weights.

    Then how far fp32 arithmetic alone takes transformers from the latter.
    """
    import torch
    from torch.nn import functional

    model = _load(checkpoint)
    head: list[tuple[torch.Tensor, torch.Tensor | None]] = []
    if checkpoint.config.head:
        head = [(_tensor(weight), _tensor(bias)) for weight, bias in checkpoint.head_layers()]
    elif score and not score.beside_vocabulary:
        rows = model.get_output_embeddings().weight.detach()[list(score.token_ids)].clone()
        head = [(rows, None)]

    def logits(case: _Case) -> Array:
        inputs = {
            "input_ids": torch.from_numpy(case.ids),
            "attention_mask": torch.from_numpy(case.mask),
            "position_ids": torch.from_numpy(case.positions),
        }
        if not head:
            rows = model(**inputs).logits
            if score and case.scored:
                rows = _graded(rows[..., list(score.token_ids)], score)
            return np.asarray(rows.numpy())
        hidden = model.model(**inputs).last_hidden_state
        for index, (weight, bias) in enumerate(head):
            hidden = functional.relu(hidden) if index else hidden
            hidden = functional.linear(
                hidden, weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
            )
        return np.asarray((_graded(hidden, score) if score else hidden).numpy())

    with torch.inference_mode():
        exact = [logits(case) for case in cases]
        rounded = exact
        if precision != "fp32":
            for parameter in model.parameters():
                if parameter.dim() == 2:
                    parameter.copy_(torch.from_numpy(stored_values(parameter.numpy(), precision)))
            for weight, _ in head:
                rounded_weight = stored_values(weight.numpy(), label_precision(precision))
                weight.copy_(torch.from_numpy(rounded_weight))
            rounded = [logits(case) for case in cases]
        with _in_fp64(model):
            precise = [logits(case) for case in cases]
    roundings = [
        float(np.abs(less - more)[case.mask == 1].max(initial=0.0))
        for case, less, more in zip(cases, rounded, precise, strict=True)
    ]
    return exact, precise, roundings


def _graded(logits: torch.Tensor, score: ScoreColumns) -> torch.Tensor:
    """See ScoreColumns; of the logits of its labels."""
    import torch

    if score.are_rows:
        return logits
    good = torch.tensor(score.weights, dtype=logits.dtype)
    log_weights = torch.log(torch.stack((good, 1 - good)))  # minus infinity leaves a label out
    return torch.logsumexp(logits.unsqueeze(-2) + log_weights, -1)


@contextmanager
def _in_fp64(model: Any) -> Iterator[None]:
    """Let a model compute in fp64, one layer's weights at a time, so that memory hardly grows."""
    import torch

    def widen(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        module.double()
        return tuple(
            each.double() if torch.is_tensor(each) and each.is_floating_point() else each
            for each in inputs
        )

    def narrow(module: Any, inputs: object, output: object) -> None:
        module.float()

    hooks = []
    for module in model.modules():
        if any(True for _ in module.parameters(recurse=False)):
            hooks += [module.register_forward_pre_hook(widen), module.register_forward_hook(narrow)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _tensor(array: Array) -> torch.Tensor:
    """A copy in fp32."""
    import torch

    return torch.from_numpy(np.array(array, np.float32))


def _load(checkpoint: Checkpoint) -> Any:
    """The transformers model in fp32. The architecture's own class is used: no remote code."""
    import transformers

    kind = getattr(transformers, checkpoint.config.architecture)
    try:
        with _quiet():
            model = kind.from_pretrained(
                checkpoint.path, local_files_only=True, use_safetensors=True
            )
    except Exception as error:  # transformers raises whatever its parts raise
        raise BuildError(
            f"transformers could not load {checkpoint.path} to verify the engine: {error}",
            hint="`--no-verify` builds the engine without the comparison.",
        ) from error
    return model.float().eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' progress bar and advice while it loads."""
    from transformers.utils import logging as untyped

    logging: Any = untyped
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
