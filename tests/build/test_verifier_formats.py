"""The table of verifier formats: complete, and as the documentation has it."""

from importlib import import_module
from pathlib import Path

import pytest

from tts.build.spec import FORMATS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "verifiers.md"


def row(name, facts):
    needed = [f"`{facts.needs}` (required)"] if facts.needs else []
    own = ", ".join(needed + [f"`{field}`" for field in facts.allows])
    labels = " / ".join(facts.labels) if facts.labels else "none"
    if facts.labels and len(facts.labels) > 4:
        labels = f"{facts.labels[0]} to {facts.labels[-1]}"
    engines = "by URL" if facts.not_compiled else "compiled, by URL"
    judges = "a critique" if facts.writes else ", ".join(facts.judges)
    return (
        f"| `{name}` | {facts.meaning} | {judges} | {own} "
        f"| {labels if 'labels' in facts.judges else ''} | {engines} |"
    )


def test_the_documentation_has_the_table_and_a_section_for_each_format():
    text = DOCS.read_text(encoding="utf-8")
    table = "\n".join(row(name, facts) for name, facts in FORMATS.items())
    assert table in text, f"docs/reference/verifiers.md must hold:\n{table}"
    for name in FORMATS:
        assert f"\n## {name}\n" in text


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_names_what_makes_its_dialogue(name):
    module, _, function = FORMATS[name].dialogue.partition(":")
    assert callable(getattr(import_module(f"tts.build.verifiers.{module}"), function))
