"""What `tts tune` prints."""

from rich.console import Console
from tests.lab.tuning.samples import LOADS, samples_of
from tests.reports.screen import printed

from tts.base.errors import Interrupted
from tts.base.paths import deployments_dir
from tts.build.spec import load_deployment
from tts.lab.tuning.measure import SHARE, Measured, analyse
from tts.lab.tuning.tune import Tuned
from tts.reports.tuning import engine_table, print_change, print_tuned


def analysed(samples, role="generator"):
    return analyse(Measured(role, 64, samples), load_deployment("demo"))


def test_the_table_marks_the_saturation_point_and_says_what_it_means(tmp_path):
    engine = analysed(samples_of(1.0, 0.5, LOADS, (1.0, 1.0, 1.0)))
    tuned = Tuned((engine,), tmp_path / "tune.json", None, "generator 2 (default); 4 cores")
    text = printed(print_tuned, tuned)
    (row,) = [line for line in text.splitlines() if line.endswith("saturated")]
    assert int(row.split()[0]) / 2 < engine.saturation.load <= int(row.split()[0])
    assert "Saturation point (95% of the best): 33 requests, 95% interval 33 to 33." in text
    assert "measured 3 times" in text
    assert "threads: generator 2 (default); 4 cores\n" in text
    assert "generator.in_flight_requests: 64 -> 33 (the upper end" in text
    assert f"result: {tmp_path / 'tune.json'}" in text


def test_the_table_says_when_no_saturation_point_was_seen():
    engine = analysed(samples_of(1.0, 0.0, LOADS, (1.0, 1.0)), "verifier")
    text = printed(Console.print, engine_table(engine))
    assert "No saturation point was seen: 128 tokens still fall short of 95%" in text


def test_an_engine_with_too_few_measurements_has_no_table(tmp_path, capsys):
    engine = analysed(samples_of(1.0, 1.0, LOADS))
    text = printed(print_tuned, Tuned((engine,), tmp_path / "tune.json", interrupted=True))
    assert text.startswith("result: ")
    assert "generator: too few measurements" in capsys.readouterr().err


def test_of_measurements_that_were_stopped_nothing_is_proposed(tmp_path, capsys):
    engine = analysed(samples_of(1.0, 0.5, LOADS, (1.0, 1.0, 1.0)))
    stopped = Tuned((engine,), tmp_path / "tune.json", Interrupted("Interrupted."))
    text = printed(print_tuned, stopped)
    assert "generator: each load measured 3 times" in text
    assert "in_flight_requests" not in text
    said = "Stopped after 27 measurements (27 of the generator and 0 of the verifier): no budget is"
    assert said in capsys.readouterr().err
    assert engine.proposal
    assert (stopped.proposals, stopped.changes) == ([], {})


def test_a_change_is_shown_as_the_lines_that_differ():
    file = deployments_dir() / "demo.yaml"
    text = printed(print_change, file, {("generator", "in_flight_requests"): 33})
    (old,) = [line for line in text.splitlines() if line.startswith("-  ")]
    (new,) = [line for line in text.splitlines() if line.startswith("+  ")]
    assert "in_flight_requests: 64" in old
    assert "in_flight_requests: 33" in new
    lines = file.read_text().splitlines()
    at = next(place for place, line in enumerate(lines) if "in_flight_requests: 64" in line)
    shown = text.splitlines()
    assert f" {lines[at - 1]}" in shown  # where it stands
    assert f" {lines[at + 1]}" in shown


def test_loads_that_are_as_good_as_the_best_stand_out():
    engine = analysed(samples_of(1.0, 0.5, LOADS, (1.0, 1.0, 1.0)))
    console = Console(width=80, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(engine_table(engine))
    bars = [line for line in capture.get().splitlines() if "█" in line]
    colours = ["\x1b[32m█" in line for line in bars]
    best = max(level.tokens_per_s for level in engine.levels)
    assert colours == [level.tokens_per_s >= SHARE * best for level in engine.levels]
    assert True in colours
    assert False in colours


def test_the_table_fits_a_narrow_terminal_with_large_numbers():
    loads = tuple(load * 1_024 for load in LOADS)
    engine = analysed(samples_of(1e-6, 0.5, loads, (1.0, 1.1)), "verifier")
    text = printed(Console.print, engine_table(engine))
    for part in ("in flight", "lowest to", "request", "best"):
        assert part in text
