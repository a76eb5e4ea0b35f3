import re
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import ConfigError, ContentBlocked
from tts.gateway.safety import matching
from tts.gateway.safety.matching import REDACTED, Matcher, Matching, pattern_rule, term_rule

PATTERNS = [
    *("a", "ab", "aba", "abab", "b a", "(?i)Ab", r"\ba", r"a\b", r"\bab\b", "a{2,4}"),
    *("(?:ab){1,3}", "a.{0,3}b", "[^a]b", r"\d{3}", r"\b\d{1,3}\b", "a|bb", r"\b(?:a|ab|b )\b"),
    *("a?b?c", r"\s1", "[a-c]{3,5}1", r"\n", ". .", "(?i)ß", "é"),
]
TEXTS = st.text("abcAB1 é\nß_", max_size=30)
FAST = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4)


def rules_of(patterns, blocks=()):
    return [pattern_rule(p, p, blocks=p in blocks) for p in patterns]


def is_word(char):
    return char.isalnum() or char == "_"


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
                if begins and i and is_word(text[i - 1]):
                    continue
                if ends and j < len(text) and is_word(text[j]):
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


@given(FAST, cut())
def test_no_more_is_held_back_than_the_window_and_what_is_being_redacted(patterns, case):
    _, chunks = case
    matcher = Matcher(rules_of(patterns))
    stream, came = Matching(matcher), ""
    for chunk in chunks:
        came += chunk
        stream.feed(chunk)
        held = len(stream._held) - 1
        assert held <= matcher.window + sum(end - begin for begin, end in stream._found)


def test_a_block_sends_what_came_before_and_then_ends_the_stream():
    stream = Matching(Matcher(rules_of(["secret", "no"], ["secret"])))
    assert stream.feed("say no sec") == "say "
    assert stream.feed("ret, really") == f"{REDACTED} "
    for call in (stream.end, lambda: stream.feed("more")):
        with pytest.raises(ContentBlocked, match=r"refuses this text \(rule 'secret'\)"):
            call()


def test_a_block_names_the_first_rule_that_matches_there():
    patterns = ["secret", "cret", "secre", "sec"]
    stream = Matching(Matcher(rules_of(patterns, patterns[1:])))
    stream.feed("a secret")
    with pytest.raises(ContentBlocked, match="rule 'secre'"):
        stream.end()


@pytest.mark.parametrize(
    ("patterns", "wrong"),
    [
        (["a+", "a*b", "a.*b", "a{2,}", "a{1000}b", "(?:a{100}){11}"], "can match more than 1,000"),
        (["a?", "a{0,3}", "a?b?", "(?:a|)"], "matches the empty text"),
    ],
)
def test_patterns_that_may_match_too_much_or_nothing_are_refused(patterns, wrong):
    for pattern in patterns:
        with pytest.raises(ConfigError, match=wrong):
            Matcher(rules_of([pattern]))


def test_too_many_rules_are_refused(monkeypatch):
    monkeypatch.setattr(matching, "MAX_MEMORY", 100_000)
    with pytest.raises(ConfigError, match="too large"):
        Matcher(rules_of([f"{i}[ab]{{990}}" for i in range(6)]))


def test_what_makes_other_engines_try_for_ever_is_read_like_all_else():
    matcher = Matcher(rules_of(["(?:a|aa|a{1,3}){1,30}c", "(?:a{1,9}){1,9}b"]))
    text = "a" * 5000
    assert sent(matcher, [text]) == (text, False)


def test_a_text_made_to_be_expensive_is_refused(monkeypatch):
    monkeypatch.setattr(matching, "MAX_MATCHES", 100)
    with pytest.raises(ContentBlocked, match="takes too long"):
        Matching(Matcher(rules_of(["a{1,1000}"]))).feed("a" * 1200)


def test_a_long_text_is_filtered_like_its_pieces():
    matcher = Matcher(rules_of([r"\b\d{2,1000}\b", "end"]))
    text = "".join(f"item {number:0{number % 50 + 1}d}, the end. " for number in range(300))
    assert sent(matcher, [text]) == (redacted_at_once(text), False)
    assert sent(matcher, [text[i : i + 7] for i in range(0, len(text), 7)]) == sent(matcher, [text])


def redacted_at_once(text):
    return re.sub(r"\b\d{2,1000}\b|end", REDACTED, text)


def test_the_character_before_a_word_and_after_it_may_be_of_any_script():
    matcher = Matcher(rules_of([r"\b(?:é|日本)\b"]))
    for text in ("é", "«é»", "a 日本!", "é日本 é"):
        assert REDACTED in sent(matcher, [text])[0]
    for text in ("aé", "éé", "日本語", "é_"):
        assert sent(matcher, [text]) == (text, False)


def test_every_letter_is_found_in_its_other_case():
    letters = [chr(code) for code in range(0x3000)]
    pairs = [(each, each.swapcase()) for each in letters]
    pairs = [(a, b) for a, b in pairs if len(b) == 1 and b.swapcase() == a != b]
    for start in range(0, len(pairs), 100):
        some = pairs[start : start + 100]
        rules = [term_rule("x", a, blocks=False, whole=True, ignores_case=True) for a, _ in some]
        text = " ".join(other for _, other in some)
        assert sent(Matcher(rules), [text])[0] == " ".join([REDACTED] * len(some))


def test_edges_and_escapes_of_a_pattern_are_its_own():
    matcher = Matcher(rules_of([r"x\\b", r"\b(?:foo|ba[|])\b"]))
    assert sent(matcher, [r"ax\b, foo, food, ba|, y"]) == (
        f"a{REDACTED}, {REDACTED}, food, {REDACTED}, y",
        False,
    )


def test_the_rule_that_blocks_is_found_among_hundreds_without_reading_each(monkeypatch):
    patterns = [f"(?i)\\bterm {number:03d}\\b" for number in range(200)]
    matcher, read = Matcher(rules_of(patterns, patterns)), []
    compiled = matching._compiled
    monkeypatch.setattr(matching, "_compiled", lambda some: read.append(some) or compiled(some))
    for number in (0, 123, 199):
        stream = Matching(matcher)
        stream.feed(f"the TERM {number:03d}, then")
        with pytest.raises(ContentBlocked, match=f"term {number:03d}"):
            stream.end()
    assert len(read) <= 3 * 8


def test_without_re2_rules_are_refused_and_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ConfigError, match="need RE2") as refused:
        Matcher(rules_of(["a"]))
    assert "pip install 'google-re2>=" in refused.value.hint
