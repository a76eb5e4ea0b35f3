"""Sketches: they separate much, and never what math-verify would call equal."""

import json
from itertools import combinations

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert, to_builtins
from tests.amounts import amount

from tts.grading.equivalence import compare, read, sketch_of
from tts.grading.sketch import Kind, Parsed, Sketch, are_separated

SYMBOLS = ["x", "y", "a", "e", r"\pi", "ab", r"\text{ab}"]


def spelled(*forms):
    """A strategy of pairs of these spellings, which may mean the same or not."""
    return st.tuples(st.sampled_from(forms), st.sampled_from(forms))


numbers = st.integers(-12, 12)
numbers_twice = st.one_of(
    numbers.flatmap(lambda n: spelled(f"{n}", f"{n}.0", f"{n}+0", rf"{n}\%", f"{n}00\\%")),
    st.tuples(numbers, st.integers(1, 9)).flatmap(
        lambda p: spelled(rf"\frac{{{p[0]}}}{{{p[1]}}}", f"{p[0]}/{p[1]}", f"{p[0] / p[1]:.6f}")
    ),
    st.integers(2, 20).flatmap(
        lambda n: spelled(rf"\sqrt{{{n}}}", f"{n}^{{1/2}}", rf"\frac{{{n}}}{{\sqrt{{{n}}}}}")
    ),
    st.sampled_from(SYMBOLS).flatmap(lambda s: spelled(s, f"{s}+0", f"1 {s}", s.upper())),
    st.tuples(st.sampled_from("xya"), numbers).flatmap(
        lambda p: spelled(f"({p[0]}+{p[1]})^2", f"{p[0]}^2+{2 * p[1]}{p[0]}+{p[1] ** 2}")
    ),
    st.sampled_from("xy").flatmap(lambda s: spelled(rf"\sqrt{{{s}^2}}", s, f"|{s}|", rf"\pm {s}")),
    spelled("1", r"\sin(x)^2+\cos(x)^2", r"e^{0}", r"\ln(e)", "x/x", "x^0"),
    spelled("0.333333", "0.3333333", "1/3", "33.3333\\%", r"\frac13"),
    spelled(r"\infty", r"-\infty", "10^{20}", r"\frac10"),
    spelled(r"\sum_{k=1}^{4} k", "10", r"\int_0^{2} 5 x dx", r"\prod_{k=1}^{2} 5 k", "50"),
    spelled(r"\int_0^1 x^2 dx", "1/3", r"\int_0^{1/3} 1 dx", r"\sum_{k=1}^{2} \frac{k}{9}"),
    spelled("AB", "BA", r"\text{ab}", "A B", r"\text{A}", "A"),
)


def mixed(pairs):
    """Two spellings of one thing, or spellings of two."""
    return st.one_of(pairs, st.tuples(pairs, pairs).map(lambda two: (two[0][0], two[1][1])))


scalars = mixed(numbers_twice)
SHAPES = (
    *("{0}", "({0},{1})", "[{0},{1}]", "({0},{1}]", r"\{{{0},{1}\}}", "{0},{1}", "{1},{0}"),
    *("x={0}", "y={0}", "{0}=x", "k={0}", "x={0},x={1}", r"\{{{0}\}}", "x<{0}", "{0}=y=x"),
    *(r"({0},{1})\cup({1},9)", r"\begin{{pmatrix}}{0}\\{1}\end{{pmatrix}}", "({0},{1},1)"),
    *(r"x\in[{0},{1}]", r"{0}<x<{1}", r"(-\infty,{0})", "{0}^\\circ", r"\text{{{0}}}", "2{0}=y"),
)
shaped = st.tuples(scalars, scalars).flatmap(
    lambda pairs: st.tuples(st.sampled_from(SHAPES), st.sampled_from(SHAPES), st.booleans()).map(
        lambda shapes: (
            shapes[0].format(pairs[0][0], pairs[1][0]),
            shapes[0 if shapes[2] else 1].format(pairs[0][1], pairs[1][1]),
        )
    )
)


def require_sound(one, other):
    if are_separated(read(one), read(other)):
        assert not compare(one, other).equal
        assert not compare(other, one).equal


@settings(deadline=None, max_examples=amount(15, 150))
@given(scalars, shaped)
def test_no_two_answers_that_math_verify_calls_equal_are_separated(scalar, answer):
    require_sound(*scalar)
    require_sound(*answer)
    for sketch in (read(part).sketch for part in answer):  # and a sketch travels as JSON
        if sketch is not None:
            assert convert(json.loads(json.dumps(to_builtins(sketch))), Sketch) == sketch


def test_no_labelled_answers_that_math_verify_calls_equal_are_separated(shared_lines):
    cases = shared_lines("grader_cases_dev.jsonl")
    cases = [
        (case["prediction"], case["reference"]) for case in cases if case["kind"] == "answer_pair"
    ]
    short = [pair for pair in cases[:: amount(3, 1)] if max(map(len, pair)) < 300]
    assert len(short) > amount(70, 200)
    for pair in short:
        require_sound(*pair)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\sqrt{2}", r"\sqrt{3}"),
        (r"\frac{1}{3}", "0.3334"),
        ("x+1", "x+2"),
        ("x+0", "x+1"),
        ("2x", "2y"),
        ("(1,2)", "(1,3)"),
        ("(1,2)", "[1,2]"),
        ("(1,2)", "(1,2,3)"),
        ("(3, 4)", "5"),
        (r"\{1,2\}", r"\{1,3\}"),
        (r"(-\infty,1)", r"(-\infty,2)"),
        (r"(0,1)\cup(2,3)", "7"),
        ("x=5", "6"),
        ("y=2x+3", "y=2x+4"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "3"),
        (r"\text{Monday}", r"\text{Friday}"),
        ("1+i", "1+2i"),
        ("x^{64}", "x^{63}"),
        (r"(\sqrt{2}-\frac{2}{5})^{2000}", r"(\sqrt{2}-\frac{2}{5})^{1999}"),
    ],
)
def test_what_differs_for_certain_is_separated(one, other):
    assert are_separated(read(one), read(other))
    assert are_separated(read(other), read(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"50\%", "0.5"),
        (r"50\%", "50"),
        ("x>3", "x>4"),
        (r"\int_0^1 x dx", "1/2"),
        ("(1,2)", r"\{1,2\}"),
        ("y=2x+3", "x=(y-3)/2"),
        ("x^2=4", r"\{-2,2\}"),
        (r"\text{abc}", "abc"),
        ("0.0000166667", r"\frac{1}{60000}"),
        (r"\Gamma(x)", r"\Gamma(2x)"),
        (r"1000000\sqrt{3}", r"\frac{3000000}{\sqrt{3}}"),
        ("x^{65}", "x^{63}"),  # a rounding error grows with the power
        (r"(\sqrt{2}-\frac{2}{5})^{2001}", r"(\sqrt{2}-\frac{2}{5})^{1999}"),
    ],
)
def test_what_may_be_equal_is_left_to_math_verify(one, other):
    assert not are_separated(read(one), read(other))
    assert not are_separated(read(other), read(one))


@pytest.mark.parametrize("known", ["integer", "negative"])
def test_a_symbol_of_which_more_is_known_has_no_sketch(known):
    """The points at which values are taken are no integers, and positive."""
    assert sketch_of(sympy.Symbol("x", real=True))
    assert sketch_of(1 + sympy.Symbol("x", **{known: True})) is None


def test_a_union_of_what_is_unknown_is_not_told_from_a_number():
    """It may have no more than one element."""
    unknown = Parsed(("a",), True, Sketch(Kind.UNION, parts=(None, None)))
    number = Parsed(("b",), True, Sketch(Kind.SCALAR, "5", (5 + 0j, 5 + 0j)))
    assert not are_separated(unknown, number)
    assert not are_separated(number, unknown)


def series_of(number):
    """An answer that math-verify takes long to compare with another of its kind."""
    if number % 2:
        return rf"\sum_{{k=1}}^{{{number + 5}}} \frac{{1}}{{k^2+{number}}}"
    return rf"\int_0^1 \frac{{\sin x}}{{x+{number + 1}}} dx"


@pytest.mark.slow
def test_sixty_four_sums_and_integrals_are_told_apart_without_comparing_two():
    parsed = [read(series_of(number)) for number in range(64)]
    assert all(are_separated(a, b) for a, b in combinations(parsed, 2))


@pytest.mark.parametrize(
    "answer",
    [
        r"\int_0^1 \frac{1}{x-0.3} dx",  # a pole
        r"\int_0^1 \frac{1}{x} dx",
        r"\sum_{k=1}^{9} \frac{1}{k-3}",
        r"\sum_{k=1}^{5000} \frac{1}{k}",  # more terms than are added up
        r"\sum_{k=1}^{n} k",
        r"\int x dx",
        r"\int_{-1}^1 x^3 dx",  # what cancels
        r"\int_{-1}^{2} |x| dx",
        r"\int_0^{100000} \sin x dx",
    ],
)
def test_a_sum_or_an_integral_without_a_certain_value_has_no_sketch(answer):
    assert read(answer).sketch is None
