"""The simulated pair of published models, and the shapes of a deployment's."""

from dataclasses import replace
from typing import get_args

import pytest
from tests.published_shapes import LLAMA_1B, LLAMA_8B_VERIFIER

from tts.build.spec import load_deployment
from tts.cli.options.study import Gpu
from tts.engines.simulated import GPUS
from tts.lab.simulation.fleet import SIMULATED, shapes_of, simulated_deployment


@pytest.mark.parametrize("gpu", get_args(Gpu))
def test_the_pair_that_is_simulated_without_a_word(gpu):
    deployment = simulated_deployment(gpu, 1)
    assert shapes_of(deployment) == {"generator": LLAMA_1B, "verifier": LLAMA_8B_VERIFIER}
    left = 0.9 * GPUS[gpu].memory - 2.47e9 - 15.01e9
    tokens = deployment.verifier.kv_cache.tokens
    assert tokens * LLAMA_8B_VERIFIER.kv_bytes == pytest.approx(left / 2, rel=0.01)
    apart = simulated_deployment(gpu, 2)
    assert [engine.placement.gpus for engine in apart.engines().values()] == [((0,),), ((1,),)]
    left = 0.9 * GPUS[gpu].memory - 15.01e9
    tokens = apart.verifier.kv_cache.tokens
    assert tokens * LLAMA_8B_VERIFIER.kv_bytes == pytest.approx(left, rel=0.01)


def test_a_verifier_with_its_whole_head_reads_it_in_every_step():
    deployment = load_deployment("llama-1b-prm-8b-h100-bf16")
    usual = deployment.model_copy(update={"name": SIMULATED})
    whole, cut = (shapes_of(each)["verifier"] for each in (deployment, usual))
    assert whole.body_bytes - cut.body_bytes == 2 * 128_256 * 4096
    assert replace(whole, body_bytes=cut.body_bytes, weight_bytes=cut.weight_bytes) == cut
