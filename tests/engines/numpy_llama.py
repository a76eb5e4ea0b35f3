"""What a Llama computes, by numpy alone: torch would take seconds to import, in every process."""

import json
from pathlib import Path

import numpy as np

from tts.build.checkpoint import open_checkpoint


def llama_logits(folder: Path, ids: np.ndarray) -> np.ndarray:
    """Token ids [tokens] -> logits [tokens, vocabulary] of the checkpoint in a folder."""
    config = json.loads((folder / "config.json").read_text())
    weights = open_checkpoint(folder).weights

    def weight(name: str) -> np.ndarray:
        return weights.tensor(name).astype(np.float32)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        mean = (x * x).mean(-1, keepdims=True)
        return x / np.sqrt(mean + config["rms_norm_eps"]) * weight(f"{name}.weight")

    size, embeddings = config["head_dim"], weight("model.embed_tokens.weight")
    angles = np.arange(len(ids))[:, None] * config["rope_theta"] ** -(np.arange(0, size, 2) / size)
    cos, sin = np.cos([angles, angles]), np.sin([angles, angles])
    cos, sin = (np.concatenate(list(both), -1).astype(np.float32) for both in (cos, sin))

    def heads(x: np.ndarray, name: str, *, rotated: bool) -> np.ndarray:
        """[tokens, hidden] -> [heads, tokens, size]; keys and values are repeated to as many."""
        found = (x @ weight(f"{name}.weight").T).reshape(len(ids), -1, size).swapaxes(0, 1)
        if rotated:
            low, high = np.split(found, 2, axis=-1)
            found = found * cos + np.concatenate([-high, low], -1) * sin
        return found.repeat(config["num_attention_heads"] // len(found), axis=0)

    x = embeddings[ids]
    later = np.triu(np.full((len(ids), len(ids)), -np.inf, np.float32), 1)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        at = norm(x, f"{name}.input_layernorm")
        queries, keys = (
            heads(at, f"{name}.self_attn.{part}_proj", rotated=True) for part in ("q", "k")
        )
        values = heads(at, f"{name}.self_attn.v_proj", rotated=False)
        found = softmax(queries @ keys.swapaxes(1, 2) / np.sqrt(size) + later) @ values
        x = (
            x
            + found.swapaxes(0, 1).reshape(len(ids), -1)
            @ weight(f"{name}.self_attn.o_proj.weight").T
        )
        at = norm(x, f"{name}.post_attention_layernorm")
        gate = at @ weight(f"{name}.mlp.gate_proj.weight").T
        up = at @ weight(f"{name}.mlp.up_proj.weight").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weight(f"{name}.mlp.down_proj.weight").T
    head = embeddings if config["tie_word_embeddings"] else weight("lm_head.weight")
    return norm(x, "model.norm") @ head.T


def softmax(x: np.ndarray) -> np.ndarray:
    """Probabilities, along the last axis."""
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)
