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
    """A line for each definition of a section, with the measures that have it."""
    names = {}
    for each in MEASURES[section]:
        text = f"({each.unit}): {each.definition}" + (f" {each.source}." if each.source else "")
        key = "" if each.key in ("", each.name) else f" summary.json: `{each.key}`."
        names.setdefault(text + key, []).append(f"`{each.name}`")
    return "".join(f"- {', '.join(names[text])} {text}\n" for text in names)


if __name__ == "__main__":
    PAGE.write_text(page_as_it_should_be(PAGE.read_text()))
