"""The table of verifier formats: complete, and as the documentation has it."""

from importlib import import_module
from pathlib import Path

import pytest

from tts.build.spec import FORMATS, FormatFacts

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "verifiers.md"


def row(name: str, facts: FormatFacts) -> str:
    field = facts.needs or facts.allows
    own = f"`{field}`" + (" (required)" if facts.needs else "") if field else ""
    labels = " / ".join(facts.labels) if facts.labels else "none"
    return (
        f"| `{name}` | {facts.meaning} | {', '.join(facts.judges)} | {own} "
        f"| {labels if 'labels' in facts.judges else ''} | {', '.join(facts.targets)} |"
    )


def test_the_documentation_has_the_table_and_a_section_for_each_format():
    text = DOCS.read_text(encoding="utf-8")
    table = "\n".join(row(name, facts) for name, facts in FORMATS.items())
    assert table in text, f"docs/reference/verifiers.md must hold:\n{table}"
    for name in FORMATS:
        assert f"\n## {name}\n" in text


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_names_what_makes_its_dialogue(name: str):
    module, _, function = FORMATS[name].dialogue.partition(":")
    assert callable(getattr(import_module(f"tts.build.verifiers.{module}"), function))


def test_a_format_that_a_target_cannot_compute_says_why_and_what_to_do_instead():
    for facts in FORMATS.values():
        limited = len(facts.targets) < 3
        assert bool(facts.why_not) == limited
        assert (facts.instead in FORMATS) == limited
        assert limited or not facts.instead
