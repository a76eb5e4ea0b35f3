"""Which answers a box can hold: each comes back out of it as it was put in, or is refused."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.constraints.languages import accepts, drawn, nodes

from tts.base.errors import ConfigError
from tts.constraints import answer_constraint
from tts.constraints.regex import parse_regex
from tts.constraints.regular import Automaton
from tts.constraints.step_grammar import require_boxable
from tts.grading import extract_answer

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
