"""What target llmapi asks of TensorRT-LLM's Python API, against the facts; and its versions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.build.planned_pair import generator, verifier
from tests.engines.llmapi_standin import FACTS

from tts.build.llmapi.target import DTYPES, llm_arguments
from tts.build.llmapi.version import (
    MINIMUM,
    SAMPLER_REMOVED,
    check_version,
    has_one_sampler,
    seeded_sampler,
    with_first_cache_manager,
)
from tts.build.spec import PRECISIONS, CritiqueSpec


@st.composite
def engines(draw):
    fields = {
        "precision": draw(st.sampled_from(PRECISIONS["llmapi"])),
        "max_batch_size": draw(st.integers(1, 4096)),
        "max_num_tokens": draw(st.integers(2048, 65536)),
        "chunked_context": draw(st.booleans()),
        "scheduling_policy": draw(st.sampled_from(["guaranteed_no_evict", "max_utilization"])),
        "kv_cache": {
            "tokens": draw(st.integers(4096, 10**7)),
            "block_size": 2 ** draw(st.integers(3, 7)),
            "reuse": draw(st.booleans()),
        },
        "tensorrt": {
            "tensor_parallel": draw(st.sampled_from([1, 2, 4])),
            "pipeline_parallel": draw(st.sampled_from([1, 2])),
            "kv_host_gib": draw(st.sampled_from([0, 0.5, 16])),
        },
    }
    return draw(st.sampled_from([generator, verifier]))(**fields)


TYPES = {"int": int, "float": float, "bool": bool, "str": str, "object": dict}


def check(given, facts):
    """Every argument exists and has a value of its kind, and none that must be given is missing."""
    assert given.keys() <= facts.keys()
    assert {name for name, fact in facts.items() if not fact.get("optional")} <= given.keys()
    for name, value in given.items():
        fact = facts[name]
        if value is None:
            assert fact["optional"], name
            continue
        assert type(value) is TYPES[fact["type"]], name
        assert value in fact.get("allowed", [value]), name
        if fact["type"] in ("int", "float"):
            assert fact.get("minimum", value) <= value <= fact.get("maximum", value), name
        if isinstance(value, dict):
            check(value, fact["fields"])


@given(engines())
def test_every_engine_asks_for_arguments_that_exist(spec):
    arguments = llm_arguments(spec)
    check(arguments, FACTS["arguments"])
    assert json.loads(json.dumps(arguments)) == arguments


@given(engines())
def test_the_pool_holds_whole_blocks_and_no_more_than_was_given(spec):
    cache = llm_arguments(spec)["kv_cache_config"]
    assert cache["max_tokens"] % cache["tokens_per_block"] == 0
    assert 0 <= spec.kv_cache.tokens - cache["max_tokens"] < cache["tokens_per_block"]


def test_what_each_role_and_a_mixture_ask_for():
    writes, scores = llm_arguments(generator()), llm_arguments(verifier())
    assert writes["cuda_graph_config"] == {"max_batch_size": 256, "enable_padding": True}
    assert scores["cuda_graph_config"] is None
    critic = verifier(format="critique", in_flight_tokens=None, in_flight_requests=8)
    verdict = {"after": "Verdict:", "probability": True, "labels": {"+": 1.0, "-": 0.0}}
    read = critic.model_copy(update={"critique": CritiqueSpec(verdict=verdict)})
    both = llm_arguments(critic), llm_arguments(read)
    assert all(each["cuda_graph_config"] for each in both)
    gathered = [each["gather_generation_logits"] for each in (writes, scores, *both)]
    assert gathered == [False, True, False, True]
    place = {"tensor_parallel": 4, "expert_parallel": 2}
    assert llm_arguments(generator(tensorrt=place))["moe_expert_parallel_size"] == 2
    assert "moe_expert_parallel_size" not in writes


def test_the_facts_agree_with_what_uses_them():
    assert (FACTS["minimum"], FACTS["sampler_removed"]) == (MINIMUM, SAMPLER_REMOVED)
    assert set(DTYPES) == set(PRECISIONS["llmapi"])


VERSIONS = ["1.2.0rc6", "1.2.0", "1.2.1", "1.3.0rc2", "1.3.0rc24", "1.3.0rc25", "1.3.0", "1.10.0"]


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        (["0.21.0", "1.0.0", "1.1.0", "1.1.0.post2", "1.2.0rc8"], "is older than 1.2.0"),
        ([*VERSIONS[1:], "1.3.0rc24.post1", "2.0.0.dev20261001"], "None"),
        (["nightly"], "is not read as a version"),
    ],
)
def test_an_older_version_is_refused(versions, said):
    for version in versions:
        assert said in str(check_version(version))


def test_seeds_are_kept_by_the_sampler_that_each_version_has():
    kept = [bool(seeded_sampler(version)) for version in VERSIONS]
    assert kept == [True] * 5 + [False] * 3
    assert seeded_sampler("1.2.1") == {"sampler_type": "TRTLLMSampler"}
    assert [has_one_sampler(version) for version in VERSIONS] == [False] * 5 + [True] * 3


def test_a_pool_is_sized_by_its_tokens_where_there_are_two_cache_managers():
    arguments = llm_arguments(generator())
    assert with_first_cache_manager(arguments, ["max_tokens"]) == arguments
    pinned = with_first_cache_manager(arguments, ["max_tokens", "use_kv_cache_manager_v2"])
    cache = pinned["kv_cache_config"]
    assert cache.pop("use_kv_cache_manager_v2") is False
    assert pinned == arguments
