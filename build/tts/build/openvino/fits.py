"""Whether a pair of target openvino fits this machine's memory."""

from __future__ import annotations

from ..errors import ConfigError
from ..machine_memory import memory_available, memory_limit
from ..spec import Deployment
from .memory import HostMemoryPlan, gib, plan_host_memory

_FIX = (
    "Lower kv_cache.tokens, set a smaller precision (bf16 halves weights and KV pool, int8 makes "
    "weights a quarter of fp32), lower max_num_tokens and max_batch_size, or use a machine with "
    "more memory. `tts plan` shows what takes how much."
)


def require_memory(deployment: Deployment) -> HostMemoryPlan:
    """Raise ConfigError, with the figures, for a pair that this machine's memory cannot hold.

    Pages of the weight files are not counted: the kernel takes them back when it has to. Raises
    CheckpointError for a config.json that cannot be used.
    """
    plan, limit = plan_host_memory(deployment), memory_limit()
    if limit is not None and plan.needed > limit.size:
        raise ConfigError(f"{_needs(plan)}; there are {gib(limit.size)} in {limit.of}.", hint=_FIX)
    return plan


def shortage(plan: HostMemoryPlan) -> str | None:
    """A warning, with the figures, if other processes leave too little memory at present."""
    available = memory_available()
    if available is None or plan.needed <= available:
        return None
    return f"{_needs(plan)}; {gib(available)} are available now."


def _needs(plan: HostMemoryPlan) -> str:
    """The beginning of a sentence."""
    parts = ", ".join(f"the {role} {gib(engine.needed)}" for role, engine in plan.engines.items())
    return f"Deployment {plan.deployment.name!r} needs {gib(plan.needed)} of memory ({parts})"
