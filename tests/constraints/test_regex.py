"""Regular expressions mean what Python's re makes of them, or are refused at their place."""

import random
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.constraints.languages import accepts, as_regex, drawn, nodes

from tts.base.errors import ConfigError
from tts.constraints.regex import parse_regex
from tts.constraints.regular import TEXT, Automaton, Repeat

PIECES = st.sampled_from(
    [
        *("a", "b", "1", "-", r"\d", r"\w", r"\D", ".", "[ab]", "[^a]", "[a-c1-]", "(", ")", "|"),
        *("*", "+", "?", "{2}", "{1,}", "{0,2}", "(?:", r"\.", r"\[", "^", "$", "]", r"\x61", "{"),
    ]
)
WORDS = st.text("ab1-c. ", max_size=5)


@given(st.lists(PIECES, max_size=8).map("".join), st.lists(WORDS, max_size=20))
def test_what_is_read_matches_what_python_matches(text, words):
    try:
        automaton = Automaton.of(parse_regex(text))
    except ConfigError:
        assume(False)
    pattern = re.compile(text, re.ASCII)
    for word in words:
        assert accepts(automaton, word) == bool(pattern.fullmatch(word)), word


@given(nodes(), st.lists(st.text("ab1 é{", max_size=5), max_size=20), st.integers())
def test_an_automaton_accepts_the_texts_of_its_language(node, words, seed):
    automaton, pattern = Automaton.of(node), re.compile(as_regex(node))
    choice = random.Random(seed)
    assert all(accepts(automaton, drawn(node, choice)) for _ in range(5))
    for word in words:
        assert accepts(automaton, word) == bool(pattern.fullmatch(word))


@given(nodes())
def test_a_language_reads_back_from_its_expression(node):
    assert Automaton.of(parse_regex(as_regex(node))) is not None


@pytest.mark.parametrize("char", ["\n", "\t", "\r", "\x7f", "\u2028", "\u00a0", "\x85"])
def test_an_answer_is_one_line(char):
    assert char not in TEXT
    for text in (char, rf"\x{ord(char):02x}" if ord(char) < 256 else rf"\u{ord(char):04x}"):
        with pytest.raises(ConfigError, match="an answer is one line"):
            parse_regex(text)
    for text in (".", r"\D", "[^a]", r"\W", r"\S"):
        assert not accepts(Automaton.of(parse_regex(text)), char)


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("a(b", 2, "never closed"),
        ("ab)", 3, "closes no group"),
        ("a[b", 2, "never closed"),
        ("*a", 1, "nothing stands before"),
        ("a**", 3, "cannot be repeated"),
        ("a+?", 3, "lazy or possessive"),
        ("a{3,1}", 2, "less than"),
        ("a{1001}", 2, "at most 1000"),
        ("a{,3}", 2, "no count of repetitions"),
        ("[z-a]", 2, "no range"),
        (r"[\d-a]x(", 8, "never closed"),
        (r"\1", 1, "not regular"),
        (r"a\bc", 2, "assertions"),
        (r"a\n", 2, "one line"),
        ("(?=a)", 1, "only (?:...)"),
        ("(?P<n>a)", 1, "only (?:...)"),
        ("a^", 2, "at the beginning alone"),
        ("$a", 1, "at the end alone"),
        (r"\u12", 1, "4 hexadecimal digits"),
        (r"\U00110000", 1, "no such character"),
        ("a\\", 2, "nothing follows"),
        ("(" * 60, 51, "50 levels"),
    ],
)
def test_a_fault_is_named_by_its_place(text, place, why):
    with pytest.raises(ConfigError, match=re.escape(why)) as caught:
        parse_regex(text)
    assert f"wrong at character {place} (" in caught.value.message


def test_too_large_a_language_is_refused():
    with pytest.raises(ConfigError, match="over 20,000 states"):
        Automaton.of(Repeat(Repeat(TEXT, 0, 1000), 0, 1000))
    for regex in ("((a{1000}){1000}){1000}", "(?:[a-z]{1,1000}){1,11}", "(.{0,1000}x){0,1000}"):
        with pytest.raises(ConfigError, match="at most 10,000 are allowed"):
            parse_regex(regex)
    parse_regex("(?:[a-z]{1,1000}){1,10}")
    with pytest.raises(ConfigError, match="at most 4,096 are read"):
        parse_regex("a" * 5000)
