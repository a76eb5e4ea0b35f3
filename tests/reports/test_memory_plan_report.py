"""What `tts plan` prints."""

from tests.reports.screen import printed

from tts.build.spec import load_deployment
from tts.build.tensorrt.memory_plan import plan_memory
from tts.reports.memory_plan import print_memory_plan, print_pools


def planned():
    return plan_memory(load_deployment("llama-1b-prm-8b-h100-bf16"))


def test_the_tables_are_whole_and_show_a_server_that_has_memory_of_its_own():
    text = printed(print_memory_plan, planned())
    for part in (
        *("weights", "activations", "workspaces", "KV cache", "sum", "verifier, rank 0"),
        *("generator, bf16", "KV bytes/token per rank", "90 of 4,096 tokens"),
    ):
        assert part in text
    assert "the server itself" not in text
    apart = plan_memory(load_deployment("llama-1b-prm-8b-2xh100-disaggregated"))
    assert printed(print_memory_plan, apart).count("│ the server itself │") == 2  # one per half


def test_pools_that_differ_are_told_apart_from_those_as_planned():
    plan = planned()
    wanted = {role: engine.tokens for role, engine in plan.engines.items()}
    given = {**wanted, "verifier": 10 * wanted["verifier"]}
    text = printed(print_pools, plan, given, wanted)
    assert "generator.kv_cache.tokens: as planned" in text
    assert f"verifier.kv_cache.tokens: {given['verifier']} -> {wanted['verifier']}" in text
    assert "With the file's values GPU 0 lacks" in text
    assert printed(print_pools, plan, wanted, wanted) == (
        "kv_cache.tokens in the file: as planned.\n"
    )
