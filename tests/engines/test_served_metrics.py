"""Metrics of a real Triton server."""

import time
import urllib.request

import pytest
from tests.engines.triton_client import PROMPT, sampled

from tts.engines import statistics
from tts.engines.generate_request import EngineLimits
from tts.engines.statistics import Statistics

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("served")]


def test_the_metrics_have_the_names_of_tensorrt_llm(client):
    assert client.at_rest("generator")
    gauges = client.gauges("generator")
    expected = statistics.gauges(Statistics(), EngineLimits(1, 1, 1, 1, 1, 1))
    assert gauges.keys() >= {f"{each.name}/{each.kind}" for each in expected}
    assert gauges["nv_trt_llm_request_metrics/max"] == 8
    assert gauges["nv_trt_llm_kv_cache_block_metrics/max"] == 64
    assert gauges["nv_trt_llm_general_metrics/iteration_counter"] > 0


def test_the_token_lengths_are_counted(client):
    def counted() -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(client.metrics_url, timeout=5) as answer:
            lines = [ln for ln in answer.read().decode().splitlines() if '"generator"' in ln]
        return {
            (length, part): float(line.rsplit(" ", 1)[1])
            for length in ("input", "output")
            for part in ("count", "sum")
            for line in lines
            if line.startswith(f"nv_llm_{length}_token_len_{part}{{")
        }

    def settled() -> dict[tuple[str, str], float]:
        """The counters are published now and then, one after another."""
        seen, now = {}, counted()
        while now != seen:
            time.sleep(0.5)
            seen, now = now, counted()
        return now

    before = after = settled()
    client.generate(**sampled(output=8))
    client.generate(**sampled(output=0))  # refused: not counted
    deadline = time.monotonic() + 10
    while after == before and time.monotonic() < deadline:
        after = settled()
    assert {key: value - before[key] for key, value in after.items()} == {
        ("input", "count"): 1,
        ("input", "sum"): len(PROMPT),
        ("output", "count"): 1,
        ("output", "sum"): 8,
    }
