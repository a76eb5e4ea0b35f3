"""`tts list`: the names that other commands take, as tables and as JSON."""

import pytest
from tests.cli.documents import document
from tests.cli.runner import tts

from tts.build.spec import bundled_deployments
from tts.datasets.hub import KNOWN
from tts.strategies.catalog import strategy_names


def listed(kind):
    done = tts("list", kind, "--json")
    assert (done.code, done.err) == (0, "")
    return {row["name"]: row for row in document(f"tts list {kind}", done.out)}


def test_every_deployment_is_there_with_what_it_is():
    rows = listed("deployments")
    assert list(rows) == bundled_deployments()
    assert (rows["demo"]["target"], rows["demo"]["gpu"]) == ("openvino", None)
    assert rows["llama-1b-prm-8b-h100-bf16"]["gpu"] == "h100"
    assert rows["qwen3-8b-prm-7b-h100-vllm"]["gpu"] == "h100"
    assert rows["demo"]["built"] is False
    assert rows["smollm2-vllm-cpu"]["built"] is None, "nothing is built for a server"
    assert all(10 < len(row["about"]) < 250 for row in rows.values())


def test_every_strategy_is_there_with_its_parameters():
    rows = listed("strategies")
    assert list(rows) == strategy_names()
    assert rows["beam-search"]["parameters"]["beam_width"] == 4
    assert "n" not in rows["greedy"]["parameters"], "it is fixed"


def test_every_dataset_is_there():
    rows = listed("datasets")
    assert set(rows) == {"demo", *KNOWN, "OWNER/NAME", "FILE"}
    assert (rows["gsm8k"]["problems"], rows["gsm8k"]["here"]) == (1319, False)


@pytest.mark.parametrize("kind", ["deployments", "strategies", "datasets"])
def test_a_table_names_all_of_them(kind):
    done = tts("list", kind)
    assert done.code == 0
    assert all(name in done.out for name in listed(kind))
