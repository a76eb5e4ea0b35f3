"""What there is to replay, and what is refused."""

import json

import pytest
from tests.driver.scripted_run import PROBLEMS
from tests.runs.replay.recordings import load

from tts.build.errors import RunError
from tts.reports.runs import replay_line
from tts.runs.config import ReplaySource
from tts.runs.replay import (
    open_source,
)


def test_what_does_not_fit_the_recording_is_refused_by_name(tiny_deployment, recorded, tmp_path):
    _, folder = recorded
    with pytest.raises(RunError, match=r"problems of the run in .* are not those of tiny"):
        load(folder, tiny_deployment, problem_ids=["p0"])
    verifier = tiny_deployment.verifier.model_copy(update={"max_seq_len": 30})
    with pytest.raises(RunError, match=r"scored a dialogue of \d+ .* verifier.max_seq_len"):
        load(folder, tiny_deployment.model_copy(update={"verifier": verifier}))
    generator = tiny_deployment.generator.model_copy(update={"system_prompt": "Think."})
    with pytest.raises(RunError, match=r"its generator.system_prompt was .* is 'Think.' here"):
        load(folder, tiny_deployment.model_copy(update={"generator": generator}))
    with pytest.raises(RunError, match="nothing to replay"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(RunError, match="holds no run"):
        open_source(tmp_path)
    (folder / "summary.json").unlink()
    with pytest.raises(RunError, match="has not finished"):
        open_source(folder)
    (tmp_path / "group.json").write_text("{}")
    with pytest.raises(RunError, match="holds several runs"):
        open_source(tmp_path)


def test_references_are_kept_where_the_text_is_real(recorded, tmp_path):
    _, folder = recorded
    assert open_source(folder).problems(PROBLEMS) == PROBLEMS
    config = json.loads((folder / "run.json").read_text())
    config["replay"] = {"source": "chains.jsonl", "text": "made up"}
    (folder / "run.json").write_text(json.dumps(config))
    assert {p.answer for p in open_source(folder).problems(PROBLEMS)} == {None}


def test_a_report_says_what_was_replayed(recorded):
    about = open_source(recorded[1]).description
    assert "trees and answers as recorded: yes" in replay_line(about, "recorded")
    assert "as recorded: NO" in replay_line(about, "other")
    assert "no answers to grade" in replay_line(ReplaySource(source="x", text="made up"))
    assert replay_line(None, "other") is None
