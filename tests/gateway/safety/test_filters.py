"""Content filters: their chain, the file of rules, long texts."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.installed import install

from tts.base.errors import ConfigError, ContentBlocked
from tts.gateway.answer.prompts import LONG, filtered
from tts.gateway.safety import filters
from tts.gateway.safety.filters import Chained, FilterChain, Whole, read_rules
from tts.gateway.safety.matching import REDACTED

SOURCE = """
from tts.base.errors import ContentBlocked

class EverySecond:
    at = 0

    def feed(self, text):
        kept = text[self.at % 2 :: 2]
        self.at += len(text)
        return kept

    def end(self):
        return "."

def shout(text):
    if "quiet" in text:
        raise ContentBlocked("No shouting here.")
    return text.upper()

number = 5
"""


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Filters of another package."""
    names = {
        "every-second": "mine:EverySecond",
        **{name: f"mine:{name}" for name in ("shout", "number", "gone")},
    }
    install(monkeypatch, tmp_path / "mine", "mine", "mine", SOURCE, names, group="tts.filters")


def test_without_filters_text_passes_as_it_is():
    chain = FilterChain.load()
    stream = chain.output()
    assert (chain.prompt().whole("a"), stream.feed("b"), stream.end()) == ("a", "b", "")


def test_a_function_gets_each_text_whole_and_a_class_as_it_comes(installed):
    chain = FilterChain.load(names=["every-second", "shout"])
    assert chain.prompt().whole("abcdef") == "ACE."
    stream = chain.output()
    assert stream.feed("abc") == stream.feed("def") == ""
    assert stream.end() == "ACE."
    with pytest.raises(ContentBlocked, match="No shouting"):
        chain.prompt().whole("q-u-i-e-t-")


def test_the_end_of_a_filter_passes_through_those_after_it(installed):
    chained = Chained([Whole(lambda text: text * 2), filters.load_filter("every-second")()])
    assert chained.feed("abc") == ""
    assert chained.end() == "acb."


def test_rules_of_a_file_come_before_filters_by_name(installed, tmp_path):
    file = tmp_path / "filters.yaml"
    file.write_text("- {term: secret, action: redact}\n- {term: quiet, applies_to: input}\n")
    chain = FilterChain.load(file, ["shout"])
    assert chain.prompt().whole("a secret") == "A [REDACTED]"
    with pytest.raises(ContentBlocked, match="rule 2"):
        chain.prompt().whole("quiet")
    stream = chain.output()
    stream.feed("quiet")
    with pytest.raises(ContentBlocked, match="No shouting"):
        stream.end()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("none", "There is no filter 'none'"),
        ("number", "must be a function from text to text"),
        ("gone", "cannot be loaded: AttributeError"),
    ],
)
def test_what_is_no_filter_is_refused_by_name(installed, name, wrong):
    with pytest.raises(ConfigError, match=wrong):
        filters.load_filter(name)


def answered(chain, text):
    stream = chain.output()
    return stream.feed(text) + stream.end()


def test_a_yaml_file_says_what_is_found_where_and_what_becomes_of_it(filters_of):
    chain = filters_of(
        r"""
- term: project halcyon
  action: redact
  applies_to: output
- pattern: \b\d{3}-\d{2}-\d{4}\b
  name: social security number
- term: poison
  applies_to: input
"""
    )
    assert answered(chain, "Project Halcyon and poison") == f"{REDACTED} and poison"
    assert chain.prompt().whole("project halcyon") == "project halcyon"
    number = "123-45-6789"
    for refused in (lambda: chain.prompt().whole(number), lambda: answered(chain, number)):
        with pytest.raises(ContentBlocked, match="rule 'social security number'"):
            refused()
    with pytest.raises(ContentBlocked, match="rule 'rule 3'"):
        chain.prompt().whole("is it poison?")


def test_a_file_of_lines_blocks_terms_and_patterns(filters_of):
    chain = filters_of("# names\nhalcyon\n\n  re: sk-[a-z0-9]{4,64}\n", "filters.txt")
    for text in ("HALCYON!", "sk-abc1"):
        with pytest.raises(ContentBlocked):
            chain.prompt().whole(text)
        with pytest.raises(ContentBlocked):
            answered(chain, text)
    assert chain.prompt().whole("# names, sk-") == "# names, sk-"


@pytest.mark.parametrize(
    ("options", "found", "not_found"),
    [
        ("", ["ass", "an ASS.", "«ass»"], ["class", "assign", "ass_"]),
        ("inside_words: true", ["class", "ASSign"], ["as s"]),
        ("match_case: true", ["ass"], ["Ass", "class"]),
    ],
)
def test_terms_are_whole_words_of_any_case_unless_asked_otherwise(
    filters_of, options, found, not_found
):
    chain = filters_of(f"- term: ass\n  action: redact\n  {options}\n")
    assert all(REDACTED in chain.prompt().whole(text) for text in found)
    assert [chain.prompt().whole(text) for text in not_found] == not_found


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("term: x", "must be a list of rules"),
        ("- 5", "rule 1: Expected `object`"),
        ("- {term: x, acton: redact}", "rule 1: .*unknown field `acton`"),
        ("- {term: x, action: remove}", "rule 1: Invalid enum value 'remove'"),
        ("- {name: x}", "rule 1: A rule has a term or a pattern"),
        ("- {term: a, pattern: b}", "rule 1: A rule has a term or a pattern"),
        ("- {term: a}\n- {term: ' '}", "rule 2: The term is empty"),
        ("- {pattern: 'a(b'}", r"rule 1: .* is wrong: missing \)"),
        ("- {pattern: '(a)\\1'}", "RE2 does not read"),
        ("- {pattern: '^a'}", r"\^ and \$ are not supported"),
        ("- {pattern: '(?=a)b'}", "RE2 does not read"),
        ("- {pattern: '\\ba|b'}", "Of a choice"),
        ("- {pattern: 'a', match_case: true}", "are for terms"),
        ("- {pattern: 'a+'}", "'rule 1' can match more than 1,000"),
        ("- {pattern: 'a?'}", "'rule 1' matches the empty text"),
        ("- [", "cannot be used"),
    ],
)
def test_a_wrong_rule_is_named_with_what_is_wrong(filters_of, text, wrong):
    with pytest.raises(ConfigError, match=wrong):
        filters_of(text)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="no filter file"):
        read_rules(tmp_path / "none.txt")


RULES = "- {term: forbidden, action: redact}\n- {term: poison}\n"


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(RULES)
    return FilterChain.load(file)


@given(before=st.integers(LONG - 12, LONG + 3), word=st.sampled_from(["forbidden", "forbid", ""]))
def test_a_long_text_is_filtered_as_a_whole_wherever_it_is_cut(chain, before, word):
    texts = ["a" * (before - 1) + " " + word + " and so on", "short, forbidden"]
    assert asyncio.run(filtered(chain, texts)) == [chain.prompt().whole(text) for text in texts]
    with pytest.raises(ContentBlocked):
        asyncio.run(filtered(chain, [*texts, "poison"]))


def test_others_have_a_turn_between_the_pieces_of_a_long_text(chain):
    async def go():
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await filtered(chain, ["fine " * LONG])
        counting.cancel()
        return turns

    assert asyncio.run(go()) >= 5
