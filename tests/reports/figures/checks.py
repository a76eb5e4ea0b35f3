"""What every figure has to be."""

import json
import re

import altair as alt
from jsonschema import Draft7Validator

from tts.reports.figures.charts import DATA, MOST_ROWS

SCHEMA = Draft7Validator(alt.load_schema())
MADE_BY_TRANSFORMS = {"place"}


def check(figure):
    """Its rows are a small table, its chart is valid, draws them alone, and fits any page."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", figure.name)
    assert figure.title
    assert figure.reading.endswith(".")
    assert 0 < len(figure.rows) <= MOST_ROWS
    json.dumps(list(figure.rows), allow_nan=False)
    columns = set(figure.rows[0])
    assert all(set(row) == columns for row in figure.rows)
    if figure.chart is not None:
        SCHEMA.validate(figure.chart)
        assert figure.chart["width"] == "container"
        text = json.dumps(figure.chart)
        assert json.dumps({"name": DATA}) in text
        assert not {"config", "datasets"} & figure.chart.keys()
        for field in re.findall(r'"field": "([^"]+)"', text):
            assert field in columns | MADE_BY_TRANSFORMS, f"{figure.name} draws {field}"


def check_all(figures):
    """Likewise of all figures of a page."""
    for figure in figures:
        check(figure)
    assert len({figure.name for figure in figures}) == len(figures)
