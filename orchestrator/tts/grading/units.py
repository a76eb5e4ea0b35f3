r"""Units, money and number bases: answers as the quantities that they are. Pure.

An answer without a unit equals one with any, for the question names the unit: 5 is 5 cm. Two
answers that both name one are compared as quantities: 5 km is 5000 m and not 5 m. math-verify drops
the units that it knows ("5 cm" is "5 m" to it), and reads others as products ("72 km/h").
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from .canonical import canonical, in_latex, is_prose, trimmed, without_dollars

# Names, size and unit; without a unit, the first name is a dimension of its own.
_PREFIXES = "k kilo 1e3; M mega 1e6; G giga 1e9; d deci .1; c centi .01; m milli .001"
_PREFIXES += "; μ micro 1e-6; µ micro 1e-6; n nano 1e-9"
_PREFIXED = "m meter 1; m metre 1 m; g gram 1; s second 1; L liter .001 m^3; l litre .001 m^3"
_PREFIXED += "; W watt 1; J joule 1; N newton 1; Pa pascal 1; Hz hertz 1; V volt 1; A ampere 1"
_PREFIXED += "; mol mole 1; K kelvin 1; B byte 1"
_OTHERS = """sec 秒 1 s; min minute 分钟 60 s; h hr hour 小时 3600 s; day 天 86400 s; week 7 day;
month 1; yr year 12 month; in inch .0254 m; ft foot feet 12 in; yd yard 36 in; mi mile 1760 yd;
mph 1 mi/h; acre 4840 yd^2; ha hectare 1e4 m^2; lb 453.59237 g; oz ounce .0625 lb; ton tonne 1e6 g;
米 1 m; 厘米 .01 m; 毫米 .001 m; 公里 千米 1e3 m; 克 1 g; 公斤 千克 1e3 g; ° deg degree 1; °C 1;
°F 1; $ USD dollar 1; ¢ cent .01 $; € EUR euro 1; £ GBP 1; ¥ JPY yen 1; 元 CNY yuan 1; 角 .1 元;
₹ rupee 1"""
_ENTRY = re.compile(r"([^\d;]+) ([\d.e-]+)(?: ([^\s;]+))?")

_CURRENCY = "[$€£¥₹¢]"
_FACTOR = re.compile(
    r"(?: ?(?P<over>/| per )| ?(?:\*|\\cdot))? ?"
    r"(?:(?:(?P<area>sq(?:uare|\.)?)|(?P<volume>cu(?:bic|\.)?)) )?"
    rf"(?P<name>°[CF]?|{_CURRENCY}|[A-Za-zμµ]+|[\u4e00-\u9fff]+)(?: ?\^ ?\{{?(?P<power>-?\d)\}}?)?"
)
_NUMBER_END = re.compile(r"[\d)}$]|\\pi(?![a-z])")
_MAY_BE_PRODUCT = re.compile(r"[A-Za-z].*| [A-Za-z](?: ?\^.*)?")
_PRICE = re.compile(rf"({_CURRENCY}) ?(-?\d[\d.,]*)")
_CENTS = re.compile(r"(-?\d+),(\d\d)")
_WRAPPED = re.compile(r"\\(?:text(?:rm|bf)?|math(?:rm|bf)|mbox)\s*\{([^{}]*)\}")
_SPACING = re.compile(r"(?:\s|~|\\[,;:! ])+")
_DEGREE = re.compile(r"\^ ?\{? ?\\circ ?\}? ?")
# what Chinese counts with, but no numeral: 3万 is 30000
_COUNTER = re.compile(r"(?<=\d)\s*(?:(?![十百千万萬亿億兆半分倍折成])[\u4e00-\u9fff])+\Z")
_BASED = re.compile(
    r"(?<![\w^.\\{])(?P<digits>\d[\dA-F]{0,200})"
    r"\s*_(?P<brace>\s*\{)?\s*\(?(?P<base>\d{1,2})\)?(?(brace)\s*\}|(?!\d))",
    re.ASCII,
)
_KEPT_QUANTITIES = 1024  # each answer is compared with several

Measure = tuple[Fraction, frozenset[tuple[str, int]]]
"""The size of a unit, and its dimension: powers of base units."""


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A number with its unit; not `is_certain` where the unit may be a product of symbols."""

    number: str
    measure: Measure
    is_certain: bool


def without_unit(answer: str) -> str:
    """`answer` without a unit that is certainly one."""
    quantity = _quantity(answer)
    return quantity.number if quantity and quantity.is_certain else _COUNTER.sub("", answer)


def in_one_measure(prediction: str, reference: str) -> tuple[str, str] | None:
    """Both answers in one unit and base, if both name one; else as they are.

    None if their units measure different things, or if a subscript is no base of its number.
    """
    texts = in_latex(prediction), in_latex(reference)
    bases = [{number["base"] for number in _BASED.finditer(text)} for text in texts]
    if all(bases) and bases[0] != bases[1]:
        try:
            return _BASED.sub(_in_base_ten, texts[0]), _BASED.sub(_in_base_ten, texts[1])
        except ValueError:
            return None
    answer, target = _quantity(prediction), _quantity(reference)
    if answer is None or target is None:
        return prediction, reference
    if answer.measure == target.measure:
        return answer.number, target.number
    one, other = (canonical(each.number.rpartition("=")[2]) for each in (answer, target))
    if answer.measure[1] != target.measure[1] or "," in one + other:
        return None
    ratio = answer.measure[0] / target.measure[0]
    return rf"({one})\cdot\frac{{{ratio.numerator}}}{{{ratio.denominator}}}", other


def _in_base_ten(number: re.Match[str]) -> str:
    return str(int(number["digits"], int(number["base"])))


@lru_cache(_KEPT_QUANTITIES)
def _quantity(answer: str) -> _Quantity | None:
    text = in_latex(without_dollars(trimmed(_WRAPPED.sub(r" \1", answer)))).replace(r"\$", "$")
    text = _DEGREE.sub("°", _SPACING.sub(" ", text).strip().removesuffix("."))
    if price := _PRICE.fullmatch(text):
        text = price[2] + price[1]
    for end in _NUMBER_END.finditer(text):
        number, unit = text[: end.end()], text[end.end() :]
        measure = None if "$" in number and "$" in unit else _measure(unit)  # "$5$ cm" has no money
        if measure:
            break
    else:
        return None
    if is_prose(number):
        return None
    if re.search(_CURRENCY, unit) and (cents := _CENTS.fullmatch(number)):
        number = f"{cents[1]}.{cents[2]}"
    is_certain = not (answer + unit).isascii() or _WRAPPED.search(answer) is not None
    return _Quantity(number, measure, is_certain or not _MAY_BE_PRODUCT.fullmatch(unit))


def _measure(unit: str) -> Measure | None:
    """The measure of "km/h" or "square meters"; None unless every name is one of a unit."""
    size, powers, end = Fraction(1), Counter[str](), 0
    while factor := _FACTOR.match(unit, end):
        names = [factor["name"]]
        if len(names[0]) > 2:
            names += [names[0].lower().removesuffix(plural) for plural in ("", "s", "es")]
        measure = next(filter(None, map(_UNITS.get, names)), None)
        if measure is None or (factor["over"] and not end):
            return None
        power = 2 if factor["area"] else 3 if factor["volume"] else int(factor["power"] or 1)
        power *= -1 if factor["over"] else 1
        size *= measure[0] ** power
        powers.update({base: each * power for base, each in measure[1]})
        end = factor.end()
    dimension = frozenset((base, power) for base, power in powers.items() if power)
    return (size, dimension) if dimension and end == len(unit) else None


_UNITS: dict[str, Measure] = {}


def _define(table: str, prefixes: str = "") -> None:
    for entry, size, unit in _ENTRY.findall(table):
        names = entry.split()
        one = _measure(unit) or (Fraction(1), frozenset({(names[0], 1)}))
        measure = Fraction(size) * one[0], one[1]
        _UNITS.update(dict.fromkeys(names, measure))
        for prefix in filter(None, prefixes.split("; ")):
            *spellings, factor = prefix.split()
            for spelling, name in zip(spellings, names, strict=True):
                _UNITS[spelling + name] = measure[0] * Fraction(factor), measure[1]


_define(_PREFIXED, _PREFIXES)
_define(_OTHERS)
