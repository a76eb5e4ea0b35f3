"""What a deployment says of how its two engines are fed."""

import pytest

from tts.driver import policy_of
from tts.lab.simulation.published_pairs import simulated_deployment


@pytest.mark.parametrize(("gpus", "one_device"), [(1, True), (2, False)])
def test_engines_on_one_gpu_share_it(gpus, one_device):
    assert policy_of(simulated_deployment("h100", gpus), "decoupled").one_device is one_device


def test_engines_on_a_cpu_have_threads_of_their_own(tiny_deployment):
    assert tiny_deployment.target == "openvino"
    assert not policy_of(tiny_deployment, "decoupled").one_device


def test_a_step_of_the_verifier_is_that_of_all_its_replicas():
    deployment = simulated_deployment("h100", 1)
    verifier = deployment.verifier
    assert policy_of(deployment, "decoupled").verifier_step_tokens == verifier.max_num_tokens
    twice = verifier.tensorrt.model_copy(update={"gpus": ((0,), (1,))})
    two = verifier.model_copy(update={"tensorrt": twice})
    policy = policy_of(deployment.model_copy(update={"verifier": two}), "decoupled")
    assert policy.verifier_step_tokens == 2 * verifier.max_num_tokens
