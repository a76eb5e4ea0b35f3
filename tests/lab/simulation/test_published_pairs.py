"""Simulated pairs of published models."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.simulation.scenarios import scenario
from tests.published_shapes import LLAMA_1B, LLAMA_8B_VERIFIER

from tts.build.errors import CheckpointError, ConfigError
from tts.build.spec import load_deployment
from tts.build.tensorrt.model_shape import known_names, shape_of
from tts.engines.simulated import GPUS
from tts.lab.simulation.published_pairs import SIMULATED, shapes_of, simulated_deployment
from tts.lab.simulation.scenario import simulate

LARGE_GENERATOR = {
    "generator": "Llama-3.1-8B-Instruct",
    "verifier": "Skywork-o1-Open-PRM-Qwen-2.5-1.5B",
}


def test_the_pair_that_is_simulated_without_a_word():
    deployment = simulated_deployment("h100", 1)
    assert shapes_of(deployment) == {"generator": LLAMA_1B, "verifier": LLAMA_8B_VERIFIER}
    left = 0.9 * GPUS["h100"].memory - 2.47e9 - 15.01e9
    tokens = deployment.verifier.kv_cache.tokens
    assert tokens * LLAMA_8B_VERIFIER.kv_bytes == pytest.approx(left / 2, rel=0.01)


def test_a_pair_in_which_the_generator_is_the_bottleneck():
    usual, turned = (simulate(scenario(pair=pair), "decoupled") for pair in ({}, LARGE_GENERATOR))
    assert turned.digest == usual.digest
    shares = [each.verifier.busy_s / each.generator.busy_s for each in (usual, turned)]
    assert shares[1] < 0.25 * shares[0]


def test_fp8_is_faster_and_has_room_for_more():
    bf16, fp8 = (scenario(gpus=1, pair={"precision": precision}) for precision in ("bf16", "fp8"))
    for role, engine in fp8.deployment.engines().items():
        assert engine.kv_cache.tokens > 2 * bf16.deployment.engines()[role].kv_cache.tokens
    walls = [simulate(each, "decoupled").wall_s for each in (bf16, fp8)]
    assert walls[1] < 0.9 * walls[0]


@pytest.mark.parametrize("name", known_names())
def test_every_known_model_may_be_either_engine_unless_it_can_only_judge(name):
    simulated_deployment("h200", 2, verifier=name, precision="fp8")
    if shape_of(Path(name)).head is None:
        simulated_deployment("h200", 2, generator=name, precision="fp8")
    else:
        with pytest.raises(CheckpointError, match="cannot generate"):
            simulated_deployment("h200", 2, generator=name, precision="fp8")


def test_what_is_not_known_or_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="shape of 'Llama-9' is not known"):
        simulated_deployment("h100", 1, generator="Llama-9")
    with pytest.raises(ConfigError, match="for KV caches"):
        simulated_deployment("rtx4090", 1, **{**LARGE_GENERATOR, "verifier": "Qwen2.5-7B-Instruct"})


def test_a_verifier_with_its_whole_head_reads_it_in_every_step():
    deployment = load_deployment("llama-1b-prm-8b-h100-bf16")
    usual = deployment.model_copy(update={"name": SIMULATED})
    whole, cut = (shapes_of(each)["verifier"] for each in (deployment, usual))
    assert whole.body_bytes - cut.body_bytes == 2 * 128_256 * 4096
    assert replace(whole, body_bytes=cut.body_bytes, weight_bytes=cut.weight_bytes) == cut
