"""Numbers of any size, in any spelling and anywhere in an answer, against exact fractions."""

import random
from fractions import Fraction
from math import factorial

import pytest
from tests.amounts import amount

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SHAPES = (
    *("{0}", "-{0}", "({0}, 7)", "(1, {0}, x)", "[{0}, 10^{{3000}}]", r"\left({0}, \infty\right)"),
    *(r"\{{{0}, y\}}", "{0}, z", r"\begin{{pmatrix}}1\\{0}\end{{pmatrix}}", r"{0}\text{{ m}}"),
    *("y = {0} x", "x < {0}", "{0} x", "x^2 + {0} y", "{0} f(x)", r"{0}\pi", r"\sqrt{{{0}}}"),
    *(r"({0}, 10^{{3000}}) \cup \{{-1\}}", r"1, {0}, \ldots, n", r"\{{{0}, \dots, 2n-1\}}"),
    *("x = {0}", "$[{0}, 10^{{3000}})$", r"1 + {0} + \cdots + n", r"x \in [{0}, 10^{{3000}}]"),
)


def power_of_ten(digits, exponent):
    """A number with its spellings."""
    value = digits * Fraction(10) ** exponent
    text = str(digits)
    lead, rest = text[0], text[1:] or "0"
    size = exponent + len(text) - 1
    mantissa = f"{lead}.{rest}"
    yield value, rf"{mantissa} \times 10^{{{size}}}"
    yield value, rf"{mantissa}\cdot 10^{{{size}}}"
    yield value, f"{mantissa}e{size}"
    yield value, f"{mantissa}E{size:+03d}"
    yield value, f"{mantissa} * 10^{size}"
    yield value, f"{mantissa}*10**{size}"
    yield value, f"{mantissa}×10{str(size).translate(RAISED)}"
    yield value, rf"{digits} \times 10^{{{exponent}}}"
    if exponent < 0:
        yield value, rf"\frac{{{digits}}}{{10^{{{-exponent}}}}}"
        yield value, f"0.{text.zfill(-exponent)}" if len(text) <= -exponent else fraction_of(value)
    else:
        yield value, text + "0" * exponent


def fraction_of(value):
    return f"{value.numerator}/{value.denominator}"


def closed_form(n):
    yield Fraction(1, factorial(n)), rf"\frac{{1}}{{{n}!}}"
    yield Fraction(1, factorial(n)), rf"\frac{{{n + 1}}}{{{n + 1}!}}"
    yield Fraction(factorial(n)), f"{n}!"
    yield Fraction(factorial(n)), rf"{n} \cdot {n - 1}!"
    yield Fraction(2) ** n, f"2^{{{n}}}"
    yield Fraction(2) ** (2 * n), f"4^{{{n}}}"
    yield Fraction(2) ** n + 1, f"2^{{{n}}} + 1"
    yield Fraction(1, 2**n), f"2^{{-{n}}}"
    yield Fraction(1, 2**n), rf"\left(\frac{{1}}{{2}}\right)^{{{n}}}"


def spelled(draw):
    """Some numbers near each other, of a size that is drawn, each in several spellings."""
    if draw.random() < 0.3:
        n = draw.choice([12, 30, 170, 400, 900])
        return [*closed_form(n), *closed_form(n + 1)]
    digits, exponent = draw.randrange(11, 999), draw.choice([-1, 1]) * draw.randrange(4, 320)
    near = [(digits, exponent), (digits + 1, exponent), (2 * digits, exponent)]
    return [
        *(form for pair in near for form in power_of_ten(*pair)),
        *power_of_ten(digits, exponent + 1),
        *power_of_ten(10000 * digits + 1, exponent - 4),
    ]


def pairs(seed, same):
    draw = random.Random(seed)
    while True:
        (one, left), (two, right) = draw.sample(spelled(draw), 2)
        if (one == two) is same:
            shape = draw.choice(SHAPES)
            if same and (r"\cup" in shape or r"\in " in shape):
                continue  # math-verify compares unions as they are written
            if ("{0} f" in shape or "+ {0}" in shape) and "+" in left + right:
                continue  # a factor would need brackets
            yield shape.format(left), shape.format(right)


def test_no_two_numbers_that_differ_are_equal_wherever_they_stand(grader):
    cases = pairs(0, same=False)
    for one, other in (next(cases) for _ in range(amount(30, 2000))):
        verdict = grader.equal_sync(one, other)
        assert not verdict.equal, (one, other)
        assert not verdict.undecided, (one, other)


def test_one_number_is_equal_to_itself_in_another_spelling(grader):
    cases = pairs(1, same=True)
    for one, other in (next(cases) for _ in range(amount(30, 1000))):
        assert grader.equal_sync(one, other).equal, (one, other)


DIFFERENT = [
    (r"\frac{1}{2006!}", r"\frac{1}{2004!}"),
    (r"1.6 \times 10^{-19}", r"1.6 \times 10^{-20}"),
    ("1.6e-19", "1.602e-19"),
    ("10^{-20}", "0"),
    ("10^{20}", "10^{20}+1"),
    ("2^{1000}+1", "4^{500}"),
    ("2006!", "2006!+1"),
    ("1+1.6e-19", "1+3.2e-19"),
    ("2^{-2^{10}}", "2^{-2^{11}}"),
    ("e^{-50}", "e^{-51}"),
    (r"\max(10^{-20},0)", r"\max(10^{-21},0)"),
    (r"1.6e-19\%", r"3.2e-19\%"),
    (r"26.8\%", r"0.268\%"),
    (r"26.8\%", "2.68"),
    (r"\int_0^1 10^{-20} dx", r"\int_0^1 10^{-21} dx"),
    ("x^2=10^{-20}", "x^2=10^{-21}"),
    ("1, 3, 5, \\ldots, 2n-1", "1, 2, \\ldots, n"),
    (r"1,2,\dots,n", r"2,1,\dots,n"),
    (r"1+2+\cdots+n", "n+3"),
    ("1, 2, 3, ...", "2"),
    (r"\forall x>0, f(x)=0", "f(x)=0"),
    (r"\sqrt{x^2}", "x"),
    ("5 ∪ 6", "6"),  # of a formula that cannot be parsed no number is taken
]
EQUAL = [
    ("0.08333333", r"\frac{1}{12}"),
    ("0.333333...", r"\frac13"),
    ("1.66667e-6", r"\frac{1}{600000}"),
    ("1e3", "1000"),
    ("1e3", "1,000"),
    (r"1.6\mathrm{e}{-19}", r"1.6e-19 \text{ C}"),
    ("2/1.6e-19", r"1.25 \times 10^{19}"),
    ("6.02214076e23", r"602214076 \times 10^{15}"),
    ("0.1x+0.2x", "0.3x"),
    (r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}"),
    (r"\{1, 2, \dots, n\}", "$1, 2, \\ldots, n$"),
    ("1+2+...+n", r"1+2+\cdots+n"),
    ("≈ 5", "5"),
    (r"26.8\%", "26.8"),
    (r"26.8\%", "0.268"),
    ("$5", "5"),
]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [(*pair, False) for pair in DIFFERENT] + [(*pair, True) for pair in EQUAL],
)
def test_what_is_small_or_left_out_counts(grader, one, other, equal):
    for prediction, reference in ((one, other), (other, one)):
        verdict = grader.equal_sync(prediction, reference)
        assert verdict.equal is equal
        assert not verdict.undecided
