"""A small Llama in plain torch, for training and sampling on a CPU, saved in the HF layout."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

MAX_POSITIONS = 512
ROPE_THETA = 10_000.0
EPSILON = 1e-5


@dataclass(frozen=True)
class Shape:
    """The sizes of a model."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    tied: bool
    vocabulary: int = 768

    @property
    def head_dim(self) -> int:
        """Numbers per attention head."""
        return self.hidden // self.heads


Cache = list[tuple[Tensor, Tensor]]  # per layer: keys and values, [rows, heads, tokens, head_dim]


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in the half-split layout of HF Llama. x [..., tokens, head_dim]."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attention spelled out. ``mask``: True = may attend.

    For short sequences on a CPU, a training step takes a third less time with it than with
    torch's fused kernel, whose backward pass is slow there.
    """
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.matmul(scores.softmax(dim=-1, dtype=scores.dtype), v)


class Layer(nn.Module):
    """One decoder layer; the attribute names are those of HF Llama's weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        hidden, inner = shape.hidden, shape.intermediate
        self.heads = shape.heads
        self.input_layernorm = nn.RMSNorm(hidden, EPSILON)
        self.post_attention_layernorm = nn.RMSNorm(hidden, EPSILON)
        self.self_attn = nn.ModuleDict(
            {f"{n}_proj": nn.Linear(hidden, hidden, bias=False) for n in "qkvo"}
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(hidden, inner, bias=False),
                "up_proj": nn.Linear(hidden, inner, bias=False),
                "down_proj": nn.Linear(inner, hidden, bias=False),
            }
        )

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor,
        past: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """States x [rows, tokens, hidden] -> new states, and the keys and values so far."""
        rows, tokens, hidden = x.shape
        h = self.input_layernorm(x)

        def split(name: str) -> Tensor:
            y: Tensor = self.self_attn[name](h)
            return y.view(rows, tokens, self.heads, -1).transpose(1, 2)

        q = _rotate(split("q_proj"), cos, sin)
        k = _rotate(split("k_proj"), cos, sin)
        v = split("v_proj")
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        y = _attend(q, k, v, mask)
        x = x + self.self_attn["o_proj"](y.transpose(1, 2).reshape(rows, tokens, hidden))
        h = self.post_attention_layernorm(x)
        h = F.silu(self.mlp["gate_proj"](h)) * self.mlp["up_proj"](h)
        return x + self.mlp["down_proj"](h), (k, v)


class Llama(nn.Module):
    """The decoder; `forward` gives hidden states, `logits` turns (some of) them into logits."""

    cos: Tensor  # [positions, head_dim]
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, EPSILON)
        self.lm_head = None if shape.tied else nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        self._initialise()
        steps = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
        angles = torch.arange(MAX_POSITIONS).float()[:, None] * ROPE_THETA ** -steps[None]
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def _initialise(self) -> None:
        for name, p in self.named_parameters():
            if p.dim() < 2:
                continue
            scale = 0.02 if "embed" in name or "lm_head" in name else p.shape[1] ** -0.5
            if "o_proj" in name or "down_proj" in name:
                scale *= (2 * self.shape.layers) ** -0.5
            nn.init.normal_(p, std=scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Right-padded ids [rows, tokens] -> hidden states [rows, tokens, hidden]."""
        x = self.embed_tokens(ids)
        tokens = ids.shape[1]
        causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        for layer in self.layers:
            x, _ = layer(x, self.cos[:tokens], self.sin[:tokens], causal, None)
        out: Tensor = self.norm(x)
        return out

    def extend(
        self, ids: Tensor, positions: Tensor, mask: Tensor, past: Cache | None
    ) -> tuple[Tensor, Cache]:
        """Logits after the last of ``ids`` [rows, tokens] and the grown cache.

        ``mask`` is boolean, [rows, 1, tokens, tokens so far]; rows are left-padded.
        """
        x = self.embed_tokens(ids)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        cache: Cache = []
        for i, layer in enumerate(self.layers):
            x, kept = layer(x, cos, sin, mask, None if past is None else past[i])
            cache.append(kept)
        return self.logits(self.norm(x[:, -1])), cache

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., hidden] -> [..., vocabulary]."""
        weight = self.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(hidden, weight)


def parameter_count(model: nn.Module) -> int:
    """How many numbers the model has (tied ones once)."""
    return sum(p.numel() for p in model.parameters())


def save_hf(model: Llama, folder: Path, eos_id: int, bos_id: int, pad_id: int) -> None:
    """Write config.json, generation_config.json and model.safetensors (bfloat16)."""
    weights = {}
    for name, value in model.state_dict().items():
        full = name if name.startswith("lm_head") else f"model.{name}"
        weights[full] = value.detach().to(torch.bfloat16).contiguous()
    file = folder / "model.safetensors"
    save_file(weights, file, metadata={"format": "pt"})
    file.chmod(0o644)  # safetensors makes it readable by its owner only
    write_config(model, folder, eos_id, bos_id, pad_id)


def write_config(model: Llama, folder: Path, eos_id: int, bos_id: int, pad_id: int) -> None:
    """Write config.json and generation_config.json of a Llama."""
    shape = model.shape
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": EPSILON,
        "rope_theta": ROPE_THETA,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": shape.tied,
        "bos_token_id": bos_id,
        "eos_token_id": eos_id,
        "pad_token_id": pad_id,
        "use_cache": True,
        "torch_dtype": "bfloat16",
    }
    _write_json(folder / "config.json", config)
    generation = {
        "bos_token_id": bos_id,
        "eos_token_id": eos_id,
        "pad_token_id": pad_id,
        "do_sample": True,
        "temperature": 0.8,
    }
    _write_json(folder / "generation_config.json", generation)


def shape_of(folder: Path) -> Shape:
    """The sizes of a checkpoint that `save_hf` wrote."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Shape(
        config["hidden_size"],
        config["num_hidden_layers"],
        config["num_attention_heads"],
        config["intermediate_size"],
        config["tie_word_embeddings"],
        config["vocab_size"],
    )


def load_hf(folder: Path) -> Llama:
    """Read back what `save_hf` wrote, as float32."""
    model = Llama(shape_of(folder))
    weights = load_file(folder / "model.safetensors")
    model.load_state_dict({k.removeprefix("model."): v.float() for k, v in weights.items()})
    return model.eval()


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
