import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.constraints.languages import states_after

from tts.build.errors import ConfigError, ContentBlocked
from tts.constraints.regex import parse_search
from tts.constraints.regular import Automaton
from tts.gateway.safety import matching
from tts.gateway.safety.matching import REDACTED, Matcher, Matching, Rule

PATTERNS = [
    *(
        "a",
        "ab",
        "aba",
        "abab",
        "b a",
        "(?i)Ab",
        r"\ba",
        r"a\b",
        r"\bab\b",
        "a{2,4}",
        "(?:ab){1,3}",
    ),
    *("a.{0,3}b", "[^a]b", r"\d{3}", r"\b\d{1,3}\b", "a|bb", r"\b(?:a|ab|b )\b", "a?b?c", r"\s1"),
    *("[a-c]{3,5}1", r"\n", ". .", "(?i)ß", "é"),
]
TEXTS = st.text("abcAB1 é\nß_", max_size=30)
FAST = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4)


def rules_of(patterns, blocks=()):
    return [Rule(p, parse_search(p), p in blocks) for p in patterns]


def boundary(text, at):
    def is_word(i):
        return 0 <= i < len(text) and (text[i].isalnum() or text[i] == "_")

    return is_word(at - 1) != is_word(at)


def matches(pattern, text):
    """Every place that a pattern matches, by trying all of them."""
    flags = re.ASCII | (re.IGNORECASE if pattern.startswith("(?i)") else 0)
    bare = pattern.removeprefix("(?i)")
    begins, ends = bare.startswith(r"\b"), bare.endswith(r"\b")
    bare = bare[2 if begins else 0 : -2 if ends else None]
    compiled = re.compile(bare, flags & ~re.ASCII if "(?i)" in pattern else flags)
    for i in range(len(text)):
        for j in range(i + 1, len(text) + 1):
            if compiled.fullmatch(text[i:j]):
                if begins and not boundary(text, i):
                    continue
                if ends and not boundary(text, j):
                    continue
                yield i, j


def redacted(patterns, text):
    spans = sorted({span for pattern in patterns for span in matches(pattern, text)})
    union = []
    for begin, end in spans:
        if union and begin < union[-1][1]:
            union[-1][1] = max(union[-1][1], end)
        else:
            union.append([begin, end])
    out, at = [], 0
    for begin, end in union:
        out += [text[at:begin], REDACTED]
        at = end
    return "".join([*out, text[at:]])


def sent(matcher, chunks):
    """What a client gets of a text that comes in these chunks, and whether it was blocked."""
    stream, given = Matching(matcher), []
    try:
        for chunk in chunks:
            given.append(stream.feed(chunk))
        given.append(stream.end())
    except ContentBlocked:
        return "".join(given), True
    return "".join(given), False


@st.composite
def cut(draw):
    """A text, and the same in chunks."""
    text = draw(TEXTS)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    edges = [0, *places, len(text)]
    return text, [text[a:b] for a, b in pairwise(edges)]


@given(FAST, cut())
def test_every_match_is_removed_however_the_text_is_cut(patterns, case):
    text, chunks = case
    matcher = Matcher(rules_of(patterns))
    assert sent(matcher, chunks) == (redacted(patterns, text), False)
    assert sent(matcher, list(text)) == (redacted(patterns, text), False)


@given(FAST, st.data(), cut())
def test_what_is_sent_before_a_block_does_not_depend_on_the_cuts_either(patterns, data, case):
    text, chunks = case
    blocking = data.draw(st.sets(st.sampled_from(patterns), min_size=1))
    matcher = Matcher(rules_of(patterns, blocking))
    whole = sent(matcher, [text])
    assert sent(matcher, chunks) == whole
    assert sent(matcher, list(text)) == whole
    found = [span for pattern in blocking for span in matches(pattern, text)]
    assert whole[1] == bool(found)
    if found:
        first = min(found, key=lambda span: span[1])
        clean = redacted([p for p in patterns if p not in blocking], text[: first[0]])
        assert clean.startswith(whole[0].removesuffix(REDACTED))


def may_begin_a_match(pattern, text):
    """Whether a text is the beginning of some text of the pattern's language."""
    return bool(states_after(Automaton.of(parse_search(pattern).node), text))


@given(st.lists(st.sampled_from([p for p in PATTERNS if "(?i)" not in p]), max_size=4), cut())
def test_nothing_is_held_that_cannot_be_the_beginning_of_a_match(patterns, case):
    _, chunks = case
    stream, came, given = Matching(Matcher(rules_of(patterns))), "", ""
    for chunk in chunks:
        came += chunk
        given += stream.feed(chunk)
        held = stream._held
        assert came.endswith(held)
        assert not held or any(
            may_begin_a_match(p, held) or any(i == 0 for i, _ in matches(p, held)) for p in patterns
        )


def test_text_goes_on_at_once_where_no_rule_begins():
    stream = Matching(Matcher(rules_of(["secret", r"\d{3}-\d{4}"])))
    assert stream.feed("nothing to hide") == "nothing to hide"
    assert stream.feed(" se") == " "
    assert stream.feed("e") == "see"
    assert stream.feed(" sec") == " "
    assert stream.feed("ret") == REDACTED
    assert stream.feed(" 555-123") == " "
    assert stream.feed("4!") == f"{REDACTED}!"
    assert stream.end() == ""


def test_a_block_sends_what_came_before_and_then_ends_the_stream():
    stream = Matching(Matcher(rules_of(["secret"], ["secret"])))
    assert stream.feed("no sec") == "no "
    assert stream.feed("ret, really") == ""
    for call in (stream.end, lambda: stream.feed("more")):
        with pytest.raises(ContentBlocked, match=r"refuses this text \(rule 'secret'\)"):
            call()


@pytest.mark.parametrize("pattern", ["a+", "a*b", "a.*b", "a{2,}", "a{1000}b", "(?:a{100}){11}"])
def test_patterns_that_may_match_too_much_are_refused(pattern):
    with pytest.raises(ConfigError, match="at most 1,000 can be held back"):
        Matcher(rules_of([pattern]))


@pytest.mark.parametrize("pattern", ["a?", "a{0,3}", "a?b?", "(?:a|)"])
def test_patterns_that_match_nothing_are_refused(pattern):
    with pytest.raises(ConfigError, match="matches the empty text"):
        Matcher(rules_of([pattern]))


def test_too_many_rules_are_refused(monkeypatch):
    monkeypatch.setattr(matching, "MAX_MOVES", 5000)
    with pytest.raises(ConfigError, match="too large"):
        Matcher(rules_of([f"[ab]{{990}}{i}" for i in range(6)]))


def test_what_makes_other_engines_try_for_ever_costs_a_step_a_character():
    matcher = Matcher(rules_of(["(?:a|aa|a{1,3}){1,30}c", "(?:a{1,9}){1,9}b"]))
    text = "a" * 5000
    assert sent(matcher, [text]) == (text, False)


def test_a_text_made_to_be_expensive_is_refused(monkeypatch):
    monkeypatch.setattr(matching, "MAX_WORK", 10_000)
    matcher = Matcher(rules_of(["[ab]{1,200}c", "a[ab]{1,200}d", "b[ab]{1,100}e"]))
    text = "".join("ab"[(i * i // 7 + i // 3) % 2] for i in range(2000))
    with pytest.raises(ContentBlocked, match="takes too long"):
        Matching(matcher).feed(text)


def test_kept_steps_are_forgotten_before_they_fill_memory(monkeypatch):
    monkeypatch.setattr(matching, "_MAX_CACHED", 2000)
    patterns = ["[ab]{1,5}c", "x[ab]{2,4}y"]
    matcher = Matcher(rules_of(patterns))
    for text in ("abxabyc" * 3, "xaabbyabc", "".join(map(chr, range(0x4E00, 0x4F00))), "abababc"):
        assert sent(matcher, list(text)) == (redacted(patterns, text), False)
        assert matcher._cached < 3000


def test_every_character_folds_like_its_other_cases():
    cased = [
        chr(c) for c in range(0x110000) if chr(c).lower() != chr(c) or chr(c).upper() != chr(c)
    ]
    assert len(cased) > 2000
    for char in cased:
        assert {matching._folded(form) for form in matching._forms(char)} == {
            matching._folded(char)
        }
