"""The check of grammars: what it lets through compiles, and the rest is named by its place."""

import re

import pytest

from tts.engines.guide_grammar import check_grammar

RIGHT = [
    'root ::= "a"',
    'root ::= "a" | "" | ("b" [^c-e]{2,3})*\n',
    'root ::= text\ntext ::= [^\\\\]* ("\\\\" text)?',
    'root ::= "\\x22\\U0000e9ab" [\\x5d\\-a]{2} [a]{3,}',
    'root ::= a b\na ::= "x" a | "y"\nb ::= a',
]
WRONG = [
    ("", "line 1 does not begin with a rule's name"),
    ('root = "a"', "line 1 does not begin with a rule's name"),
    ('foo ::= "a"', "it has no rule root"),
    ('root ::= "a"\nroot ::= "b"', "line 2 defines root again"),
    ('root ::= "a', "line 1, column 10"),
    ('root ::= "\\q"', "line 1, column 10"),
    ("root ::= x", "rule root uses x, which is not defined"),
    ("root ::= [^", "line 1, column 10"),
    ("root ::= []", "line 1, column 10"),
    ("root ::= [z-a]", "z-a is no range"),
    ("root ::= [\\x62-\\x61]", "is no range"),
    ('root ::= "a" | ', "an empty option"),
    ('root ::= ("a"', "a ) was expected"),
    ('root ::= "a")', "nothing can stand here"),
    ('root ::= "a"{3,2}', "no number of repetitions"),
    ('root ::= "a"{0}', "no number of repetitions"),
    ('root ::= (("a"){1000}){1000}', "more than 100,000 parts"),
    ('root ::= root "a"', "root may begin with itself"),
    ('root ::= a\na ::= "b"? root', "may begin with itself"),
    ("root ::= " + "(" * 70 + '"a"' + ")" * 70, "60 levels deep"),
]


@pytest.mark.parametrize("grammar", RIGHT)
def test_grammars_are_let_through(grammar):
    check_grammar(grammar)


@pytest.mark.parametrize(("grammar", "complaint"), WRONG)
def test_what_is_wrong_is_named(grammar, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)):
        check_grammar(grammar)
