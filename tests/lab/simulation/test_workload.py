"""Reading recorded chains."""

import json

import pytest

from tts.build.errors import DatasetError
from tts.lab.simulation.workload import TraceChain, read_chains


def test_chains_without_a_score_for_every_step_are_left_out(tmp_path):
    rows = [
        {"text": "a" * 70 + "|" + "b" * 35, "sep": "|", "step_scores": [0.9, 0.8]},
        {"text": "c|d", "sep": "|", "step_scores": [0.5]},
        {"text": "c", "sep": "|", "step_scores": None},
    ]
    file = tmp_path / "chains.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_chains(file) == [TraceChain((20, 10), (0.9, 0.8))]
    file.write_text(json.dumps(rows[1]) + "\n")
    with pytest.raises(DatasetError, match="no chains with a score for every step"):
        read_chains(file)
