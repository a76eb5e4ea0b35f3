"""`tts runs trace`: of one run, and of a comparison's runs."""

import json
import shutil
from pathlib import Path

from tests.cli.runner import tts
from tests.runs.recorded import RECORDED


def test_a_run_has_a_timeline_and_a_comparison_those_of_its_runs(tmp_path):
    run = Path(shutil.copytree(RECORDED, tmp_path / "run"))
    done = tts("runs", "trace", run)
    assert done.code == 0
    assert (run / "trace.json").stat().st_size > 10_000
    assert "ui.perfetto.dev" in done.said
    parameters = json.loads((run / "run.json").read_text())["parameters"]
    member = {"folder": "one", "votes": {"beam-search": "weighted"}, "parameters": parameters}
    group = tmp_path / "group"
    shutil.copytree(RECORDED, group / "one")
    (group / "group.json").write_text(json.dumps({"runs": [member, member | {"folder": "none"}]}))
    assert tts("runs", "trace", group).code == 0
    assert (group / "one" / "trace.json").read_bytes() == (run / "trace.json").read_bytes()
    assert not (group / "none").exists()
