"""The grammar of a step, by the checker of the engine host and by a reader of its own; boxes."""

import itertools
import random
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.constraints.languages import accepts, drawn, nodes

from tts.base.errors import ConfigError
from tts.constraints import answer_constraint
from tts.constraints.regex import parse_regex
from tts.constraints.regular import Automaton, Choice, Ref, Repeat, Seq, chars, chars_of, literal
from tts.constraints.step_grammar import (
    BLOCK,
    ebnf,
    in_blocks,
    require_boxable,
    rule_after,
    step_grammar,
)
from tts.engines.guide_grammar import check_grammar
from tts.grading import extract_answer

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


def counts(node, rules):
    """How many times a text of a node holds its letter: the least and the most, without gaps."""
    if isinstance(node, Ref):
        return counts(rules[node.name], rules)
    if isinstance(node, Repeat):
        low, high = counts(node.node, rules)
        return low * node.least, high * node.most
    if isinstance(node, Seq):
        parts = [counts(part, rules) for part in node.parts]
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if isinstance(node, Choice):
        options = sorted(counts(option, rules) for option in node.options)
        assert all(after[0] <= before[1] + 1 for before, after in pairwise(options))
        return options[0][0], options[-1][1]
    return 1, 1


@given(st.integers(0, 40), st.integers(0, 200))
def test_wide_repetitions_are_the_same_in_blocks(least, more):
    most = max(least + more, 1)
    rules = in_blocks({"root": Repeat(literal("a"), least, most)})
    assert counts(rules["root"], rules) == (least, most)
    assert (len(rules) > 1) == (most - least > BLOCK)


@given(st.integers(1, 4), st.integers(0, 1200))
def test_long_sequences_are_the_same_in_blocks(most, length):
    rules = in_blocks({"root": Seq((Repeat(literal("a"), 0, most),) * length)})
    assert counts(rules["root"], rules) == (0, most * length)
    assert (len(rules) > 1) == (length > BLOCK)
    assert all(len(rule.parts) <= BLOCK for rule in rules.values())


BOX = st.sampled_from([r"\boxed{", r"\fbox{"])


@given(nodes("ab{}\\ oxed"), st.integers(), BOX)
def test_what_may_stand_in_a_box_comes_back_out_of_it(node, seed, box):
    try:
        require_boxable(Automaton.of(node), "\n\n")
    except ConfigError:
        return
    choice = random.Random(seed)
    for _ in range(5):
        answer = drawn(node, choice)
        assert extract_answer(f"so {box}{answer}}}. \\boxed") == answer.strip()


@given(nodes("ab{}\\ "))
def test_a_language_is_refused_with_a_text_of_it_that_shows_why(node):
    automaton = Automaton.of(node)
    try:
        require_boxable(automaton, "\n\n")
    except ConfigError as error:
        text = eval(error.message.split(" allows ", 1)[1].split(", which cannot", 1)[0])
        if len(text) < 100:  # else it is shown cut off
            assert accepts(automaton, text)
            assert extract_answer(rf"\boxed{{{text}}}") != text or "\\boxed" in text


@pytest.mark.parametrize(
    ("regex", "text", "why"),
    [
        (".+", "'}'", "braces do not balance"),
        (r"\{*", "'{'", "braces do not balance"),
        (r"x\\", r"'x\\'", "ends in a backslash"),
        ("a*", "''", "an empty box is no answer"),
        (" +", "' '", "an empty box is no answer"),
        (r"\\boxed\{1\}", r"'\\boxed{1}'", "opens a box of its own"),
    ],
)
def test_the_reason_is_named(regex, text, why):
    with pytest.raises(ConfigError, match=why) as caught:
        answer_constraint(regex, None, "\n\n")
    assert f"allows {text}, which" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("delimiter", [". ", "1.", "{"])
def test_an_answer_that_could_hold_the_step_delimiter_is_refused(delimiter):
    with pytest.raises(ConfigError, match="at the step delimiter"):
        answer_constraint(r"\d+\. \d+", None, delimiter)
    assert answer_constraint(r"\d+\. \d+", None, "\n\n")
    assert answer_constraint(r"\d+", None, ". ")


def test_one_form_at_a_time():
    with pytest.raises(ConfigError, match="only one can hold"):
        answer_constraint("a", '{"type": "integer"}', "\n\n")
    assert answer_constraint(None, None, "\n\n") is None


def test_usual_forms_are_allowed():
    for regex, answers in {
        r"-?\d+": ["5", "-12"],
        "[A-E]": ["C"],
        r"-?\d+(\.\d+)?|\\frac\{\d+\}\{\d+\}": ["0.5", r"\frac{1}{2}"],
        r"[^{}\\ ][^{}\\]*": ["x = 3", "é"],
        r"^\$\d{1,3}(,\d{3})*$": ["$1,000"],
    }.items():
        constraint = answer_constraint(regex, None, "\n\n")
        assert constraint
        automaton = Automaton.of(parse_regex(regex))
        assert all(accepts(automaton, answer) for answer in answers)
        assert not accepts(automaton, "}")
