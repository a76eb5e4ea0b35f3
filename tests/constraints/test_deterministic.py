"""Expressions that could be read in many ways, as automata that are read in one."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.constraints.languages import LETTERS, accepts, nodes

from tts.base.errors import ConfigError
from tts.constraints.regex import parse_regex
from tts.constraints.regular import EMPTY, Automaton, _deterministic, is_plain, rules_of


def is_read(rules, text):
    """Whether a text is of the language, as a reader of one state finds out."""
    options = rules["root"].options
    for char in text:
        nexts = [each.parts[1] for each in options if each.parts and char in each.parts[0]]
        if not nexts:
            return False
        (only,) = nexts
        options = rules[only.name].options
    return EMPTY in options


@given(nodes(), st.text(LETTERS, max_size=12), st.integers())
def test_the_rules_read_the_same_language_in_one_way(node, text, seed):
    automaton = Automaton.of(node)
    rules = _deterministic(automaton, "root")
    assert is_read(rules, text) == accepts(automaton, text)
    choice, text, options = random.Random(seed), "", rules["root"].options
    while options and (EMPTY not in options or choice.random() < 0.8):
        step = choice.choice([each for each in options if each.parts] or [EMPTY])
        if step == EMPTY:
            break
        text += chr(step.parts[0].ranges[0][0])
        options = rules[step.parts[1].name].options
        if len(text) > 30:
            return
    assert accepts(automaton, text) == (EMPTY in options)


@pytest.mark.parametrize(
    ("regex", "plain", "states"),
    [
        (r".{0,1000}", True, 1),
        (r"[a-z]{1,500}[a-z0-9]{1,500}", True, 1),
        (r"\d+(\.\d+)?([eE][+-]?\d+)?", False, 10),
        (r"(\w{1,20} ){1,20}", False, 421),
        (r"(([a-z]*)*)*" * 9, False, 2),
        (r"([a-z]{1,40}){1,40}", False, None),
        (r"([a-z]?[b-z]?){0,500}", False, None),
        (r"[a-z]{1,1000}" * 10, False, None),
        (r"a?" * 2000, False, None),
    ],
)
def test_what_can_be_read_in_many_ways_is_read_in_one_or_refused(regex, plain, states):
    node = parse_regex(regex)
    assert is_plain(node) == plain
    if states is None:
        with pytest.raises(ConfigError, match=r"read in too many ways|over 20,000 states"):
            rules_of(node, "root")
    else:
        assert len(rules_of(node, "root")) == states
