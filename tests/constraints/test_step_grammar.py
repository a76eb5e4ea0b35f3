"""The grammar of a step, read by the checker of the engine host and by a reader of its own."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.constraints.languages import nodes

from tts.constraints import answer_constraint
from tts.constraints.regular import Seq, chars, chars_of
from tts.constraints.step_grammar import ebnf, rule_after, step_grammar
from tts.engines.guide_grammar import check_grammar

# An escaped character is one token; a box is one that a brace follows at once (grading.extract).
TEXTS = st.lists(
    st.sampled_from(["\\", "b", "f", "o", "x", "e", "d", "boxed", "\\boxed{1}", "\n", "{", "}"]),
    max_size=12,
).map("".join)


def opened(text: str) -> bool:
    """Whether a text ends right after a word that opens a box."""
    tokens = re.findall(r"\\(?:boxed|fbox)|\\.|[^\\]|\\", text, re.DOTALL)
    return bool(tokens) and tokens[-1] in ("\\boxed", "\\fbox")


@given(TEXTS)
def test_a_box_is_known_to_open_wherever_the_steps_were_cut(text):
    if re.search(r"\\(boxed|fbox)(?!\{1\}|$)", text):
        return  # a box that no constrained text holds
    assert (rule_after(text) == "box") == opened(text)


@given(TEXTS, TEXTS)
def test_only_what_follows_the_last_line_break_counts(before, after):
    assert rule_after(f"{before}\\boxed{{1}}a\n{after}") == rule_after(after)


@given(nodes("ab{}[]^-\\\"é '"), TEXTS)
def test_every_grammar_passes_the_check_of_the_engine(node, before):
    check_grammar(step_grammar({"answer": node}, rule_after(before)))


def test_the_grammar_of_whole_numbers():
    constraint = answer_constraint(r"-?\d+", None, "\n\n")
    assert constraint
    lines = constraint.guide().text.splitlines()
    assert lines[:3] == [
        "root ::= text",
        r'text ::= [^\\]* ("\\" escape)?',
        r'escape ::= "" | [^bf] text | "b" afterb | "f" afterf',
    ]
    assert lines[-2:] == ['box ::= "{" answer "}" text', r'answer ::= "\U0000002d"? [0-9]+']
    assert constraint.guide("1.\n\nso \\box").text.startswith("root ::= afterbox\n")
    assert constraint.guide("\n\n") is constraint.guide()


def test_an_escape_ends_before_hexadecimal_digits_that_follow():
    """Xgrammar reads all of them into one character, so that \\x22a would be U+022A."""
    schema = '{"type": "object", "properties": {"answer": {"type": "integer"}}}'
    constraint = answer_constraint(None, schema, "\n\n")
    assert constraint
    grammar = constraint.guide().text
    assert "\\U00000022answer\\U00000022" in grammar
    assert "\\x" not in grammar
    with pytest.raises(ValueError, match="line 1"):
        check_grammar('root ::= "\\x22a"')


def test_names_of_rules_are_those_that_llama_cpp_reads():
    constraint = answer_constraint("[ab]", None, "\n\n")
    assert constraint
    names = [line.partition(" ::= ")[0] for line in constraint.guide().text.splitlines()]
    assert all(re.fullmatch("[a-z]+", name) for name in names)


def test_texts_on_both_sides_of_a_part_stand_on_their_own_sides():
    parts = chars_of("a"), chars_of("b"), chars((ord("a"), ord("z"))), chars_of("c")
    assert ebnf(Seq(parts)) == '"ab" [a-z] "c"'


CODES = st.integers(0x20, 0xD7FF) | st.integers(0xE000, 0x10FFFF)


@given(CODES, CODES)
def test_a_range_is_written_in_parts_whose_bytes_are_alike(one, other):
    low, high = sorted((one, other))
    ranges = chars((low, min(high, 0xD7FF)), (0xE000, high)) if low < 0xD800 <= high else None
    written = ebnf(ranges or chars((low, high)))
    parts = re.findall(r"(\\U.{8}|.)(?:-(\\U.{8}|.))?", written.strip('"[]'), re.DOTALL)
    found = [(code_of(first), code_of(last or first)) for first, last in parts]
    assert (found[0][0], found[-1][1]) == (low, high)
    for first, last in found:
        begin, end = chr(first).encode(), chr(last).encode()
        assert len(begin) == len(end)
        if begin[0] != end[0] and len(begin) > 1:  # then every second byte may follow
            for lead in range(begin[0] + 1, end[0]):
                assert lead not in (0xE0, 0xED, 0xF0, 0xF4)
    assert all(after[0] > before[1] for before, after in itertools.pairwise(found))


def code_of(text):
    return int(text[2:], 16) if len(text) > 1 else ord(text)
