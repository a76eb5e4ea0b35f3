"""The tables of docs/reference/measures.md, written from the table of measures.

`python -m tests.runs.measures_page` writes them.
"""

import re
from pathlib import Path

from tts.runs.named_measures import MEASURES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "measures.md"
_PLACE = re.compile(r"<!-- measures: (\w+) -->\n.*?<!-- end -->\n", re.DOTALL)


def page_as_it_should_be(text):
    """The page with each section's table between its marks."""

    def written(place):
        return f"<!-- measures: {place[1]} -->\n{table(place[1])}<!-- end -->\n"

    return _PLACE.sub(written, text)


def sections_of(text):
    """The sections that have a place on the page."""
    return [place[1] for place in _PLACE.finditer(text)]


def table(section):
    """A row for each measure of a section."""
    measures = MEASURES[section]
    sourced = any(measure.source for measure in measures)
    rows = [["measure", "unit", "definition", "source"], ["---"] * 4]
    rows += [[f"`{each.name}`", each.unit, _definition(each), each.source] for each in measures]
    return "".join(f"| {' | '.join(row if sourced else row[:3])} |\n" for row in rows)


def _definition(measure):
    """The definition, with its key in summary.json where that is another word."""
    key = "" if measure.key in ("", measure.name) else f" summary.json: `{measure.key}`."
    return measure.definition + key


if __name__ == "__main__":
    PAGE.write_text(page_as_it_should_be(PAGE.read_text()))
