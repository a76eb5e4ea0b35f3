"""A deployment's batching policies, as the scheduler takes them."""

from __future__ import annotations

from tts.base.machine_limits import usable_cores
from tts.build.spec import Deployment, StartedVerifier, VerifierSpec
from tts.build.started.memory import shares
from tts.scheduling import Policy, ScheduleName, SpeculationName


def policy_of(
    deployment: Deployment,
    schedule: ScheduleName,
    *,
    speculation: SpeculationName = "auto",
    problems: int | None = None,
) -> Policy:
    """The budgets under a schedule; `problems` is the most that run at a time."""
    generator, verifier = deployment.generator, deployment.verifier
    return Policy(
        schedule,
        generator.in_flight_requests,
        verifier.in_flight,
        problems,
        speculation,
        verifier_writes=deployment.critiques > 0,
        # the CPU host and SGLang keep requests that share a prefix apart until one has computed it,
        # vLLM shares it within a step, and llama.cpp not at all
        prefetch=deployment.target in ("tensorrt", "trtllm-serve") and schedule == "decoupled",
        one_device=share_gpus(deployment),
        one_core=share_the_only_core(deployment),
        verifier_step_tokens=_step_tokens(deployment),
    )


def _step_tokens(deployment: Deployment) -> int | None:
    """Most tokens of prompts that the verifier computes in a step; None of one that runs elsewhere,
    or writes: it can leave a request in the middle.
    """
    verifier = deployment.verifier
    if not isinstance(verifier, VerifierSpec | StartedVerifier) or verifier.facts.writes:
        return None
    if isinstance(verifier, StartedVerifier):
        return None if verifier.same_as else verifier.max_num_tokens
    return verifier.max_num_tokens * len(verifier.placement.replicas)


def share_the_only_core(deployment: Deployment) -> bool:
    """Whether both engines compute on the only core there is, if this user started them here."""
    compiled = deployment.target == "openvino" and len(deployment.engines()) == 2
    return compiled and usable_cores() == 1


def share_gpus(deployment: Deployment) -> bool:
    """Whether both engines compute on the same GPU; on a CPU each has threads of its own.

    An engine that runs elsewhere is assumed to have its own machine.
    """
    if deployment.target == "openvino" or deployment.remotes():
        return False
    if deployment.shares_engine:
        return True
    if started := deployment.started():
        devices = [{*spec.devices} for spec in started.values()]
        on_one = shares(deployment) or (len(devices) == 2 and not devices[0].isdisjoint(devices[1]))
        return deployment.gpu is not None and on_one
    generator, verifier = (
        {gpu for gpus in engine.placement.replicas for gpu in gpus}
        for engine in deployment.engines().values()
    )
    return not generator.isdisjoint(verifier)
