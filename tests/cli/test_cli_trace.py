"""`tts runs trace` in a process of its own: of one run, of a comparison's runs, and of none."""

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.test_cli import tts
from tests.runs.recorded import RECORDED


@pytest.fixture
def run(tmp_path):
    """A recorded run."""
    return Path(shutil.copytree(RECORDED, tmp_path / "run"))


def test_a_run_has_a_timeline(run, tmp_path):
    code, out, err = tts("runs", "trace", run, home=tmp_path)
    assert code == 0, err
    assert (run / "trace.json").stat().st_size > 10_000
    assert "requests" in out + err
    assert "ui.perfetto.dev" in out + err


def test_a_comparisons_folder_stands_for_its_runs(run, tmp_path):
    parameters = json.loads((run / "run.json").read_text())["parameters"]
    member = {
        "folder": "one",
        "votes": {"beam-search": "weighted"},
        "parameters": parameters,
    }
    group = tmp_path / "group"
    shutil.copytree(run, group / "one")
    (group / "group.json").write_text(json.dumps({"runs": [member, member | {"folder": "none"}]}))
    code, _, err = tts("runs", "trace", group, home=tmp_path)
    assert code == 0, err
    assert (group / "one" / "trace.json").exists()
    assert not (group / "none").exists()


def test_a_folder_without_a_run_is_refused_by_name(tmp_path):
    code, _, err = tts("runs", "trace", tmp_path / "nothing", home=tmp_path)
    assert code != 0
    assert "holds no run" in err
