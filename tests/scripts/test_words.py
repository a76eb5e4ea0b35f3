"""Sentences that are hard to read are found, good ones are not, and pages hold none."""

import re
from pathlib import Path

import pytest
from scripts.programs import ROOT
from scripts.words import (
    PATTERNS,
    SOURCES,
    findings,
    of_docstrings,
    of_help,
    of_messages,
    of_pages,
    sentences,
)

CHECKED = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks",
    "docs",
    "examples",
    "messages",
    "docstrings",
    "help",
)
"""Where there must be no finding."""

BAD = (
    "What a disk acknowledges and then loses is lost.",
    "What the file itself can get wrong the spec may refuse before.",
    "Who wants to can write a term in another way.",
    "Of HTTP.",
    "Of a search, at most.",
    "Before then.",
    "It uses several servers, of which any may die.",
    "It grows a candidate as ever.",
    "The file is read again: a line more is a server more.",
    "It does \N{EM DASH} as it must \N{EM DASH} the same \N{EM DASH} twice.",
    "Nothing is executed but for the chat template.",
    "Damage is said before anything is started.",
    "The trees are equal, only the time is another.",
    "This is the load from which on throughput gains little.",
    "A function in the place of the verifier.",
    "A folder that has not what it needs is refused.",
    "A completion without an answer counts for nobody.",
    "Draw so many problems of each level.",
    "It lies in the run's folder.",
    "The page tells of requests.",
    "A key is refused, whatever has become of the file.",
    "Ten seconds without a word are bridged.",
    "Usage is true.",
    "Leaves go before what they hang on.",
    "It does so the more so.",
)
GOOD = (
    "What is a verifier?",
    "Users can see what it does.",
    "HTTP status code.",
    "It tolerates losing any of several servers.",
    "Adding a line adds a server.",
    "Only timing differs.",
    "The server X is used instead of the verifier.",
    "A completion without an answer casts no vote.",
    "It is as fast as possible \N{EN DASH} on a GPU.",
    "Corruption is reported before the run starts.",
    'The message says "as ever" and `in the place of`.',
)


def found(text):
    return list(findings("page", sentences(text)))


@pytest.mark.parametrize("sentence", BAD)
def test_a_bad_sentence_is_found(sentence):
    assert found(f"All is well. {sentence} All is well.")


@pytest.mark.parametrize("sentence", GOOD)
def test_a_good_sentence_is_not_found(sentence):
    assert found(f"All is well. {sentence} All is well.") == []


def test_every_pattern_has_a_sentence():
    unseen = [p for p, _ in PATTERNS if not any(re.search(p, each) for each in BAD)]
    assert unseen == []


def test_a_long_sentence_is_found_and_two_short_ones_are_not():
    half = " ".join(["word"] * 30)
    assert "60 words" in found(f"A{half[4:]} {half}.")[0].advice
    assert found(f"A {half}. A {half}.") == []
    assert found(f"A {half}. [a/b.md](a/b.md) {half}.") == []


def test_code_headings_links_and_quotations_are_left_out():
    page = "# As ever\n\n```\nas ever\n```\n\n    as ever\n\n> as ever\n\n[it](as ever) `as ever`\n"
    assert found(page) == []


def test_a_finding_names_the_line_of_its_paragraph_item_or_cell():
    page = "One.\n\nTwo\nis as ever.\n\n- three\n- four as ever\n\n| a | as ever |\n"
    assert [finding.place for finding in found(page)] == ["page:3", "page:7", "page:9"]


def test_messages_of_errors_and_their_hints_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.words.ROOT", tmp_path)
    raising = 'raise RunError(f"{file} is read as ever.", hint="Of " + "HTTP.")\n'
    (tmp_path / "module.py").write_text(raising)
    assert [each.sentence for each in of_messages(tmp_path)] == ["X is read as ever.", "Of HTTP."]


def test_docstrings_are_read_also_those_of_attributes_however_long(tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.words.ROOT", tmp_path)
    long = " ".join(["word"] * 60)
    source = f'"""{long}."""\nX = "As ever"\n"""It is read\nas ever."""\n'
    source += 'def f():\n    """Read it.\n\n    Of HTTP.\n    """\n'
    (tmp_path / "module.py").write_text(source)
    found = [(each.place, each.sentence) for each in of_docstrings(tmp_path)]
    assert found == [("module.py:3", "It is read as ever."), ("module.py:6", "Of HTTP.")]


def test_help_texts_of_commands_and_options_are_read(monkeypatch):
    monkeypatch.setattr("scripts.words.findings", lambda place, found: [(place, *found)])
    places = {place for place, *_ in of_help()}
    assert {"tts", "tts bench", "tts bench --limit", "tts bench deployment"} <= places


@pytest.mark.parametrize("where", CHECKED)
def test_there_is_nothing_to_mend(where):
    if where == "help":
        found = list(of_help())
    elif where == "messages":
        found = [each for root in SOURCES for each in of_messages(ROOT / root / "tts")]
    elif where == "docstrings":
        found = [each for root in SOURCES for each in of_docstrings(ROOT / root / "tts")]
    else:
        found = list(of_pages(Path(ROOT / where)))
    assert not found, "\n".join(map(str, found))
