"""The slightest fault of a graph is far beyond rounding: the comparison with transformers sees it.

On a random checkpoint, and on SmolLM2 where it has been fetched.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tts.base.errors import BuildError
from tts.build.checkpoint import open_checkpoint
from tts.build.openvino.transformer import Transformer, save_model
from tts.build.openvino.verify import ROUNDINGS, verify_engine

SMOLLM2 = Path(__file__).parents[2] / "engines/checkpoints/smollm2-135m-instruct"
LAYER = "model.layers.1."


def swapped_heads(weights, config):
    rows = weights[LAYER + "self_attn.q_proj.weight"]
    size = config["head_dim"]
    rows[: 2 * size] = np.roll(rows[: 2 * size], size, axis=0)


def wrong_rope_base(weights, config):
    config["rope_theta"] = 1e4
    config.pop("rope_parameters", None)


def missing_norm(weights, config):
    weights[LAYER + "input_layernorm.weight"][:] = 1


def shifted_layer(weights, config):
    name = LAYER + "mlp.down_proj.weight"
    weights[name] = np.ascontiguousarray(np.roll(weights[name], 1, axis=1))


def larger_epsilon(weights, config):
    config["rms_norm_eps"] *= 10


def smaller_epsilon(weights, config):
    config["rms_norm_eps"] /= 10


FAULTS = [
    swapped_heads, wrong_rope_base, missing_norm, shifted_layer, larger_epsilon, smaller_epsilon,
]  # fmt: skip


def faulty(folder, fault, into):
    """A copy of a checkpoint with a fault, as which a wrong graph would compute."""
    shutil.copytree(folder, into)
    weights = load_file(into / "model.safetensors")
    config = json.loads((into / "config.json").read_text())
    fault(weights, config)
    save_file(weights, into / "model.safetensors", metadata={"format": "pt"})
    (into / "config.json").write_text(json.dumps(config))
    return into


def exported(folder, into):
    into.mkdir()
    save_model(Transformer(open_checkpoint(folder), "fp32").model(), into)
    return into


def refused(folder, fault, scratch):
    engine = exported(faulty(folder, fault, scratch / "faulty"), scratch / "engine")
    with pytest.raises(BuildError, match="does not compute what transformers computes"):
        verify_engine(engine, open_checkpoint(folder), "fp32")
    shutil.rmtree(scratch)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_noticed(make_checkpoint, tmp_path, fault):
    refused(make_checkpoint(rope_theta=1e5, num_hidden_layers=4), fault, tmp_path / "scratch")


def test_the_allowance_grows_with_what_rounding_does_to_a_model(make_checkpoint, tmp_path):
    """Layers whose sums are large round more: they may be off by more, and they are."""
    found = []
    for name, scale in (("small", 1.0), ("large", 30.0)):
        folder = make_checkpoint(name=name, num_hidden_layers=6)
        weights = load_file(folder / "model.safetensors")
        weights["model.embed_tokens.weight"] *= scale
        weights["lm_head.weight"] *= scale
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        engine = exported(folder, tmp_path / f"{name}-engine")
        found.append(verify_engine(engine, open_checkpoint(folder), "fp32"))
    small, large = found
    assert large.rounding_error > 10 * small.rounding_error
    assert large.export_error < ROUNDINGS * large.rounding_error


@pytest.mark.slow
def test_a_pretrained_model_passes_and_its_faults_do_not(torch, tmp_path):
    folder = SMOLLM2
    if not folder.is_dir():
        pytest.skip("SmolLM2 is not there; scripts/fetch_smollm2 fetches it")
    torch.set_num_threads(2)
    right = verify_engine(exported(folder, tmp_path / "right"), open_checkpoint(folder), "fp32")
    assert right.rounding_error < right.export_error < 8 * right.rounding_error
    for fault in FAULTS:
        refused(folder, fault, tmp_path / fault.__name__)
