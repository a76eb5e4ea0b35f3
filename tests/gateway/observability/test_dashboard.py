"""The Grafana dashboard asks for metrics and labels that the gateway has."""

import json
import re
from pathlib import Path

import pytest
from tests.gateway.observability.counted import counted

from tts.gateway import observability

FILE = Path(observability.__file__).with_name("grafana_dashboard.json")
DASHBOARD = json.loads(FILE.read_text(encoding="utf-8"))
QUERIES = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *(v["query"]["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"),
]


def series():
    """Every series' name with the labels that it has."""
    metrics = counted()
    metrics.exposition()
    return {
        sample.name: set(sample.labels)
        for family in metrics.registry.collect()
        for sample in family.samples
    }


SERIES = series()


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_names_series_and_labels_that_exist(query):
    (name,) = set(re.findall(r"\btts_\w+", query))
    assert name in SERIES
    matchers = {
        label
        for braces in re.findall(r"\{(.*?)\}", query)
        for label in re.findall(r"(\w+)[=!]", braces)
    }
    grouped = {
        label.strip()
        for labels in re.findall(r"\bby \((.*?)\)", query)
        for label in labels.split(",")
    }
    asked = set(re.findall(r"label_values\(\w+, (\w+)\)", query))
    assert matchers | grouped | asked <= SERIES[name]
    assert ("histogram_quantile" in query) == name.endswith("_bucket")
    assert query.count("(") == query.count(")")


def test_legends_name_labels_that_their_query_keeps():
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            kept = re.search(r"\bby \((.*?)\)", target["expr"])
            names = {label.strip() for label in kept[1].split(",")} if kept else set()
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= names


def test_every_metric_is_shown():
    shown = " ".join(QUERIES)
    names = [
        family.name + "_total" * (family.type == "counter")
        for family in counted().registry.collect()
    ]
    assert [name for name in names if name not in shown] == []


def test_panels_do_not_overlap():
    places = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places))
