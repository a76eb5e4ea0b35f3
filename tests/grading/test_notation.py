"""Notations of one thing are equal, and of two things different, against exact fractions."""

import random
from fractions import Fraction

import pytest
from tests.amounts import amount

from tts.grading import canonical
from tts.grading.canonical import readable
from tts.grading.units import in_one_measure

WIDE = {ord(str(digit)): chr(0xFF10 + digit) for digit in range(10)} | {ord("-"): "－"}
LOWERED = {ord(str(digit)): chr(0x2080 + digit) for digit in range(10)}
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
VULGAR = {Fraction(1, 2): "½", Fraction(2, 3): "⅔", Fraction(3, 4): "¾", Fraction(5, 8): "⅝"}
UNITS = {
    "length": {"mm": 1, "cm": 10, "m": 1000, "km": 10**6, "米": 1000, "meters": 1000},
    "time": {"s": 1, "min": 60, "hours": 3600, "小时": 3600, "days": 86400},
    "area": {"cm²": 1, r"\text{ m}^2": 10**4, "square meters": 10**4, "km^2": 10**10},
    "speed": {"m/s": 18, "km/h": 5, r"\mathrm{km}/\mathrm{h}": 5},
    "money": {"dollars": 100, "cents": 1, "USD": 100},
    "euro": {"€": 1, "euros": 1},
    "warmth": {"°C": 1, r"^\circ\text{C}": 1},
}


def repeating(value):
    """A fraction as a decimal number with its period."""
    whole, rest = divmod(value.numerator, value.denominator)
    digits, seen = "", {}
    while rest and rest not in seen:
        seen[rest] = len(digits)
        digit, rest = divmod(rest * 10, value.denominator)
        digits += str(digit)
    if not rest:
        return f"{whole}.{digits or 0}"
    start = seen[rest]
    return rf"{whole}.{digits[:start]}\overline{{{digits[start:]}}}"


def number_spellings(value):
    """Spellings of a positive fraction."""
    above, below = value.numerator, value.denominator
    if below == 1:
        text = f"{above:,}"
        gaps = (r"\,", r"\ ", " ", "，", "~") if "," in text else ()
        return [str(above), str(above).translate(WIDE), *(text.replace(",", gap) for gap in gaps)]
    whole, part = divmod(above, below)
    mixed = [f"{whole} {part}/{below}", rf"{whole}\frac{{{part}}}{{{below}}}"] if whole else []
    if (vulgar := VULGAR.get(value - whole)) is not None:
        mixed.append(f"{whole or ''}{vulgar}")
    return [f"{above}/{below}", f"{above}⁄{below}".translate(WIDE), repeating(value), *mixed]


def near(draw, value):
    """The value itself, or one that a wrong reading may take for it."""
    whole, part = divmod(value.numerator, value.denominator)
    others = [
        value + 1,
        1 / value,
        value * 10,
        value / 10,
        value / 1000,
        whole + 10 * (value - whole),
    ]
    others += [
        Fraction(whole or 1),
        Fraction(part or 7),
        whole * (value - whole),
        value + Fraction(1, 9),
    ]
    return draw.choice([value, draw.choice([other for other in others if other > 0])])


def number(draw, value):
    return value, draw.choice(number_spellings(value))


def quantity(draw, value):
    dimension = draw.choice(list(UNITS))
    unit, size = draw.choice(list(UNITS[dimension].items()))
    count = value / size if draw.random() < 0.8 else value
    text = repr(float(count)) if count.denominator != 1 else str(count.numerator)
    if "e" in text or Fraction(text) != count:
        text = rf"\frac{{{count.numerator}}}{{{count.denominator}}}"
    return (
        dimension,
        count * size,
    ), f"{text}{draw.choice(['', ' ']) if unit[0] in '^°€' else ' '}{unit}"


def digits_in(value, base):
    return (digits_in(value // base, base) if value >= base else "") + str(value % base)


def based(draw, value):
    whole, base = value.numerator % 500, draw.randrange(2, 10)
    mark = draw.choice([f"_{base}", f"_{{{base}}}", f"_{{({base})}}", str(base).translate(LOWERED)])
    return whole, digits_in(whole, base) + mark


def irrational(draw, value):
    """A root, or a power of a symbol."""
    n = value.numerator % 90 + 2
    if draw.random() < 0.5:
        return ("root", n), draw.choice([f"√{n}", f"√({n})", rf"\sqrt{{{n}}}", f"{n}^{{1/2}}"])
    return ("power", n), draw.choice([f"x{str(n).translate(RAISED)}", f"x^{{{n}}}", f"x^{n}"])


KINDS = (number, number, quantity, based, irrational)


def pairs(seed, same):
    draw = random.Random(seed)
    while True:
        value = Fraction(
            draw.randrange(1, 3000), draw.choice([1, 1, 2, 3, 4, 6, 7, 8, 11, 12, 60, 90])
        )
        kind = draw.choice(KINDS)
        (one, left), (two, right) = kind(draw, value), kind(draw, near(draw, value))
        if (one == two) is same and left != right:
            yield left, right


@pytest.mark.parametrize("same", [True, False])
def test_notations_are_equal_exactly_where_their_values_are(grader, same):
    cases = pairs(int(same), same)
    for one, other in (next(cases) for _ in range(amount(40, 1000))):
        verdict = grader.equal_sync(one, other)
        assert (verdict.equal, verdict.undecided) == (same, False), (one, other)


DIFFERENT = [
    *(("5 cm", "5 m"), ("5 cm", "5 kg"), ("4 m²", "4 m³"), ("$5", "5 €"), ("5 cents", "5 dollars")),
    *(("20 °C", "20 °F"), ("3, 4 m", "3, 4 cm"), ("x = 5 m", "x = 6 m"), ("5元", "5角")),
    *(("5 ft 3 in", "6 ft 3 in"), ("less than 5 m", "more than 5 m"), ("AB = 5 m", "CD = 5 m")),
    *(("4", "4m^2"), ("4", "4 m^2"), ("72", "72km/h"), ("2", "2mg")),  # products of symbols
    *(("3万", "3"), ("3个半", "3"), ("5折", "5"), ("12个", "13个")),
    *(("123_5", "123_6"), ("123_5+10_5", "123_6+10_6"), ("5_1", "5_2"), ("x_2", "x_3")),
    *((r"\log_2 8", r"\log_3 8"), ("3、456", "3456"), ('["1_2", 3]', '["1_3", 3]')),
    *(("0.3", r"0.\overline{3}"), (r"0.3\overline{6}", r"0.\overline{36}"), (r"\bar{x}", "x_1")),
    *(("2 1/3", "21/3"), ("2 5/3", "11/3"), ("1 000/3", "4/3"), ("√23", r"3\sqrt{2}")),
    *(("x²", "x2"), ("x₁", "x1"), ("1，2", "1.2"), ("≥3", "≤3"), ("i^3", "i"), ("x^i", "x")),
    *(("x \\ge 3", r"(3,\infty)"), ("x>1, x<2", r"(-\infty,1)\cup(2,\infty)")),
    (r"\{2k : k\in\mathbb{Z}\}", r"3k, k\in\mathbb{Z}"),
]
EQUAL = [
    *(("5 km", "5000 m"), ("1 000 m", "1 km"), ("2½ hours", "150 minutes"), ("36 km/h", "10 m/s")),
    *(("5", "5 cm"), ("5€", "5"), ("£5", "5"), ("€5,50", "5.50"), ("$2.50", "250 cents")),
    *(("20 °C", "20"), (r"20^\circ\text{C}", "20"), ("4 m²", "4"), ("4 cm^3", r"4\text{ cm}^3")),
    *(("72 km/h", "72"), ("12个", "12"), ("4 m^2", r"4 \text{ square meters}"), ("5 cm.", "5")),
    *(
        ("123_5", "123"),
        ("1111_2", "15_{10}"),
        (r"1\,000\,000", "10^6"),
        (r"2\,500 \text{ m}", "2500"),
    ),
    *(("∞", r"\infty"), ("(−∞, 3]", r"(-\infty,3]"), ("≥3", r"\ge 3"), ("x ≥ 3", r"[3,\infty)")),
    *(("-3½", "-3.5"), ("3½", "3.5"), ("2 1/3", "7/3"), ("-2 1/3", "-7/3"), ("∛8", "2")),
    *((r"0.\overline{3}", "1/3"), (r"0.\dot{1}4285\dot{7}", "1/7"), (r"33.\overline{3}\%", "1/3")),
    *(
        ("（1，2）", "(1,2)"),
        ("ｘ＝３", "3"),
        ("i^2", "-1"),
        (r"e^{i\pi}", "-1"),
        ("x = 2+i", "2+i"),
    ),
    *(("2 \\le x < 5", "[2,5)"), (r"x<-1 \text{ or } x>1", r"(-\infty,-1)\cup(1,\infty)")),
    (r"\{ 2k\pi : k \in \mathbb{Z} \}", r"2k\pi, k \in \mathbb{Z}"),
]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [(*pair, False) for pair in DIFFERENT] + [(*pair, True) for pair in EQUAL],
)
def test_notations_keep_their_meanings(grader, one, other, equal):
    for prediction, reference in ((one, other), (other, one)):
        assert grader.equal_sync(prediction, reference).equal is equal


REPEATED = (
    "5 m^2 ",
    "5 m/",
    "√(",
    "1 ",
    "1 000 ",
    "(5)km ",
    ".5",
    r"\dot1",
    "5个",
    "1_",
    r"\{:k\in",
)


@pytest.mark.parametrize("text", REPEATED)
def test_long_texts_finish(text):
    canonical(text * 100_000)
    readable(text * 100_000)
    in_one_measure(text * (2000 // len(text)), text * (1999 // len(text)))
