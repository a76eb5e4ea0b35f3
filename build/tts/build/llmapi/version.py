"""Which versions of TensorRT-LLM target llmapi runs on, and what differs between them. Pure.

Sources: tests/engines/standin/facts.json.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

MINIMUM = "1.2.0"
SAMPLER_REMOVED = "1.3.0rc25"
"""The first version that may refuse sampler_type TRTLLMSampler: rc24 has it, rc26 does not."""
_FINAL = 10**6


def check_version(version: str) -> str | None:
    """The problem with a version, in a sentence; None if there is none."""
    found = _parse(version)
    if found is None:
        return f"TensorRT-LLM has the version {version!r}, which is not read as a version."
    if found < (_parse(MINIMUM) or found):
        return (
            f"TensorRT-LLM {version} is older than {MINIMUM}, the first whose PyTorch backend "
            "target llmapi knows."
        )
    return None


def seeded_sampler(version: str) -> dict[str, str]:
    """The arguments of `LLM` that make this version use the seeds of requests.

    The sampler that is the default draws from one generator for all requests, in versions that
    still have the other one.
    """
    return {} if has_one_sampler(version) else {"sampler_type": "TRTLLMSampler"}


def has_one_sampler(version: str) -> bool:
    """Whether TorchSampler is the only one: it wants a real end id, and logprobs=0."""
    found, removed = _parse(version), _parse(SAMPLER_REMOVED)
    return found is None or removed is None or found >= removed


SECOND_CACHE_MANAGER = "use_kv_cache_manager_v2"
"""The field of KvCacheConfig that chooses the manager of the cache, where there are two."""


def with_first_cache_manager(
    arguments: Mapping[str, Any], cache_fields: Collection[str]
) -> dict[str, Any]:
    """Arguments of `LLM` whose pool is sized by max_tokens; `cache_fields` are KvCacheConfig's.

    The second manager, which later versions take for some models by themselves, sizes its pool by
    a share of the GPU, whatever max_tokens says.
    """
    if SECOND_CACHE_MANAGER not in cache_fields:
        return dict(arguments)
    cache = arguments["kv_cache_config"] | {SECOND_CACHE_MANAGER: False}
    return {**arguments, "kv_cache_config": cache}


def _parse(version: str) -> tuple[int, int, int, int] | None:
    """Major, minor, patch and release candidate, by which versions are ordered."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.?(?:rc|a|b|dev)(\d+))?", version)
    if found is None:
        return None
    major, minor, patch, candidate = found.groups()
    return int(major), int(minor), int(patch or 0), int(candidate or _FINAL)
