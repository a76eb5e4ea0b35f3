"""What a replay makes of the other options."""

import pytest
from msgspec.structs import replace
from tests.driver.scripted_run import PROBLEMS
from tests.runs.replay.recordings import recorded_run
from typer.testing import CliRunner

from tts.build.errors import ConfigError
from tts.cli import app
from tts.lab.bench.replayed_run import as_recorded, recorded_work
from tts.runs.config import RunConfig
from tts.runs.replay import (
    open_source,
)

DEFAULTS = RunConfig(deployment_source="demo", dataset="demo")


@pytest.fixture
def recorded(tiny_deployment, tmp_path):
    """A recorded beam search and its folder."""
    return recorded_run(tiny_deployment, tmp_path / "run")


def test_a_recorded_run_decides_everything_but_deployment_and_scheduling(recorded):
    run, folder = recorded
    wanted = as_recorded(DEFAULTS, folder, {"deployment", "schedule"})
    assert (wanted.deployment_source, wanted.schedule) == ("demo", "decoupled")
    assert wanted.replay.source == str(folder)
    assert (wanted.seed, wanted.dataset) == (1, "tiny")
    assert wanted.parameters == run.config.model_dump(mode="json")
    same = replace(DEFAULTS, seed=1, parameters={"n": 8})
    assert as_recorded(same, folder, {"seed", "n"}) == wanted
    driven = {"speculation": "off", "in_flight": 3}
    assert as_recorded(replace(DEFAULTS, **driven), folder, set(driven)) == replace(
        wanted, **driven
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 0}, "seed is 0, but the run recorded in .* has 1"),
        ({"strategy": "dvts"}, "strategy is 'dvts'"),
        ({"dataset": "demo"}, "dataset is 'demo'"),
        ({"limit": 3}, "limit is 3"),
        ({"parameters": {"n": 16}}, "n is 16, but .* has 8"),
        ({"parameters": {"beam_wdth": 2}}, "beam_wdth is 2, but .* has None"),
    ],
)
def test_options_other_than_recorded_are_refused_by_name(recorded, changes, said):
    with pytest.raises(ConfigError, match=said):
        as_recorded(replace(DEFAULTS, **changes), recorded[1], set(changes))


def test_a_trace_file_leaves_the_options_as_they_are(tmp_path):
    file = tmp_path / "chains.jsonl"
    file.write_text("")
    assert as_recorded(DEFAULTS, file, set()) == replace(
        DEFAULTS, replay=open_source(file).description
    )
    assert {p.answer for p in open_source(file).problems(PROBLEMS)} == {None}
    with pytest.raises(ConfigError, match="not the folder of a recorded run"):
        recorded_work(file, {}, {})


def test_the_commands_know_which_options_were_given(recorded):
    _, folder = recorded

    def refused(*arguments):
        words = map(str, [*arguments, "--replay", folder])
        return str(CliRunner().invoke(app, list(words)).exception)

    assert "seed is 0, but" in refused("bench", "demo", "--seed", 0)
    assert "strategy is 'beam-search'" not in refused("bench", "demo")
    assert "seed is 7, but" in refused("simulate", "--seed", 7)
    assert "n is 3, but" in refused("simulate", "--n", 3)
    done = CliRunner().invoke(app, ["bench", "--resume", str(folder), "--replay", str(folder)])
    assert "goes on as it began" in done.stderr
    done = CliRunner().invoke(app, ["simulate", "--traces", "x", "--replay", str(folder)])
    assert "give one of the two" in done.stderr
