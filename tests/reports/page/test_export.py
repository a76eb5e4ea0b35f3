"""Figures as files for papers."""

import struct
import sys

import pytest

from tts.base.errors import ConfigError, RunError
from tts.reports.figures.charts import Figure
from tts.reports.page.export import WIDTH, csv_table, latex_table, printed, write_figures

CHART = {
    "mark": "bar",
    "width": "container",
    "data": {"name": "rows"},
    "encoding": {"x": {"field": "level"}, "y": {"field": "right", "type": "quantitative"}},
}
DRAWN = Figure("by-level", "By level", "Read.", [{"level": "one", "right": 0.5}], CHART)
TABLE = Figure("table", "Table", "Read.", [{"level": "one"}])


def test_each_chart_becomes_a_file_of_every_format_and_tables_none(tmp_path):
    pytest.importorskip("vl_convert")
    files = write_figures([DRAWN, TABLE], tmp_path / "figures", ["pdf", "svg", "png"])
    assert [file.name for file in files] == ["by-level.pdf", "by-level.svg", "by-level.png"]
    begins = [file.read_bytes()[:4] for file in files]
    assert begins == [b"%PDF", b"<svg", b"\x89PNG"]
    assert "one" in files[1].read_text()
    density = files[2].read_bytes().partition(b"pHYs")[2][:9]  # pixels per metre, per unit 1
    assert density == struct.pack(">IIB", 11811, 11811, 1)  # 300 per inch
    assert b"/FontFile" in files[0].read_bytes()


@pytest.mark.parametrize(
    "level", ["a\u2028b\u2029c", "\0", "\u202e\u200f\ufffe\uffff", "</svg>'\"\\", "\n\x1b[31m"]
)
def test_any_text_is_drawn(tmp_path, level):
    pytest.importorskip("vl_convert")
    x = {"field": "level", "sort": [level, "one"]}
    chart = CHART | {"encoding": CHART["encoding"] | {"x": x}}
    figure = Figure("by-level", "By level", "Read.", [{"level": level, "right": 0.5}], chart)
    for file in write_figures([figure], tmp_path, ["pdf", "svg", "csv", "tex"]):
        assert file.stat().st_size


def test_a_printed_chart_has_its_data_a_width_and_black_on_white():
    chart = printed(DRAWN)
    assert chart["datasets"] == {"rows": [{"level": "one", "right": 0.5}]}
    assert chart["width"] == WIDTH
    assert chart["config"]["background"] == "white"
    assert chart["config"]["axis"]["labelColor"] == "black"
    assert DRAWN.chart["width"] == "container"


def test_without_the_package_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ConfigError, match="not installed") as caught:
        write_figures([DRAWN], tmp_path, ["svg"])
    assert "'vl-convert-python>=" in caught.value.hint


def test_a_place_that_cannot_be_written_gets_a_sentence(tmp_path):
    pytest.importorskip("vl_convert")
    (tmp_path / "figures").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write_figures([DRAWN], tmp_path / "figures", ["svg"])


def test_each_table_becomes_csv_and_latex_without_the_package_that_draws(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    files = write_figures([DRAWN, TABLE], tmp_path, ["csv", "tex"])
    names = ["by-level.csv", "by-level.tex", "table.csv", "table.tex"]
    assert [file.name for file in files] == names
    assert files[0].read_bytes() == b"level,right\r\none,0.5\r\n"


def test_cells_are_written_as_each_format_has_them():
    rows = [{"a_b": '50% & {x}, "y"', "share": 1 / 3}, {"a_b": None, "share": None, "c": True}]
    figure = Figure("t", "T_1", "Read.", rows)
    assert csv_table(figure).splitlines()[1:] == [
        '"50% & {x}, ""y""",0.3333333333333333,',
        ",,true",
    ]
    text = latex_table(figure)
    assert r"\caption{T\_1}" in text
    assert r"\begin{tabular}{lrr}" in text
    assert r'50\% \& \{x\}, "y" & 0.33333 & -- \\' in text
    assert r"-- & -- & yes \\" in text
