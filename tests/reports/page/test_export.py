"""Figures as files for papers."""

import sys

import pytest

from tts.build.errors import ConfigError, RunError
from tts.reports.figures.figure import Figure
from tts.reports.page.export import WIDTH, export_figures, printed

CHART = {
    "mark": "bar",
    "width": "container",
    "data": {"name": "rows"},
    "encoding": {"x": {"field": "level"}, "y": {"field": "right", "type": "quantitative"}},
    "config": {"axis": {"gridOpacity": 0.5}},
}
DRAWN = Figure("by-level", "By level", "Read.", [{"level": "one", "right": 0.5}], CHART)
TABLE = Figure("table", "Table", "Read.", [{"level": "one"}])


def test_each_chart_becomes_a_file_of_every_format_and_tables_none(tmp_path):
    pytest.importorskip("vl_convert")
    files = export_figures([DRAWN, TABLE], tmp_path / "figures", ["pdf", "svg", "png"])
    assert [file.name for file in files] == ["by-level.pdf", "by-level.svg", "by-level.png"]
    begins = [file.read_bytes()[:4] for file in files]
    assert begins == [b"%PDF", b"<svg", b"\x89PNG"]
    assert "one" in files[1].read_text()


def test_a_printed_chart_has_its_data_a_width_and_black_on_white():
    chart = printed(DRAWN)
    assert chart["datasets"] == {"rows": [{"level": "one", "right": 0.5}]}
    assert chart["width"] == WIDTH
    assert chart["config"]["background"] == "white"
    assert chart["config"]["axis"]["labelColor"] == "black"
    assert chart["config"]["axis"]["gridOpacity"] == 0.5  # the chart's own
    assert DRAWN.chart["width"] == "container"


def test_without_the_package_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ConfigError, match="not installed") as caught:
        export_figures([DRAWN], tmp_path, ["svg"])
    assert "pip install 'vl-convert-python>=" in caught.value.hint


def test_a_place_that_cannot_be_written_gets_a_sentence(tmp_path):
    pytest.importorskip("vl_convert")
    (tmp_path / "figures").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        export_figures([DRAWN], tmp_path / "figures", ["svg"])
