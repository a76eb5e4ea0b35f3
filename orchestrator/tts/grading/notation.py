r"""Notations of one thing, as the LaTeX that math-verify reads. Pure; linear in the text's length.

`in_latex` writes unicode mathematics ("√2", "x²", "3½", "∞", full-width digits) as LaTeX.
`readable` goes on for math-verify alone, to which "1\,000" is a product, "2 1/3" is 1, the line
over the digits of "0.1\overline{6}" a conjugate, and "3.54e-07" a multiple of Euler's number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from unicodedata import normalize

Rewriting = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]


def in_latex(text: str) -> str:
    """`text` with LaTeX in place of unicode mathematics."""
    if text.isascii():
        return text
    return _rewritten(text, _UNICODE).translate(_SYMBOLS)


def readable(text: str) -> str:
    """`text` in LaTeX, with its numbers as math-verify reads them."""
    return _rewritten(text if is_prose(text) else in_latex(text), _NUMBERS)


def is_prose(text: str) -> bool:
    """Whether words stand in front of something, as in "the area is 5"."""
    return _WORD.search(text) is not None


def _rewritten(text: str, table: tuple[Rewriting, ...]) -> str:
    for pattern, latex in table:
        text = pattern.sub(latex, text)
    return text


def _ascii(characters: re.Match[str]) -> str:
    return normalize("NFKC", characters[0])


def _power(raised: re.Match[str]) -> str:
    return f"^{{{_ascii(raised)}}}".replace("−", "-")


def _power_of_ten(number: re.Match[str]) -> str:
    digits = number["decimals"] or number["digits"]
    power = rf"{digits}\times 10^{{{int(number['exponent'])}}}"
    return f"({power})" if number.string[: number.start()].rstrip().endswith("/") else power


def _digits(number: re.Match[str]) -> str:
    return re.sub(r"\D", "", number[0])


def _mixed(number: re.Match[str]) -> str:
    whole, part, parts = number.groups()
    return rf"{whole}\frac{{{part}}}{{{parts}}}" if int(part) < int(parts) else number[0]


def _repeating(number: re.Match[str]) -> str:
    """The fraction that a decimal number with a period is."""
    start, period = number["whole"] + number["once"], re.sub(r"\D", "", number["period"])
    nines = 10 ** len(number["once"]) * (10 ** len(period) - 1)
    value = Fraction(int(start + period) - int(start or "0"), nines)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


_SYMBOLS = str.maketrans(
    {"−": "-", "–": "-", "⁄": "/", "。": ".", "、": ", ", "∞": r"\infty ", "°": r"^{\circ}"}
    | {"≤": r"\leq ", "≥": r"\geq ", "∈": r"\in ", "ℤ": r"\mathbb{Z}", "·": r"\cdot "}
)
_RADICAND = r"\s*(\d+(?:\.\d+)?|\{[^{}]*\}|\((?:[^()]|\([^()]*\))*\)|[^\W\d_])"
_RAISED = r"[⁰¹²³⁴-⁹⁺⁻⁽⁾ⁱⁿ]+"
_UNICODE: tuple[Rewriting, ...] = (
    (re.compile(r"[\u3000\uff01-\uff5e℃℉]"), _ascii),
    (re.compile(_RAISED), _power),
    (re.compile(r"[₀-₎ₐ-ₜ]+"), lambda lowered: f"_{{{_ascii(lowered)}}}"),
    (re.compile(r"[¼-¾⅐-⅞]"), lambda part: r"\frac{{{}}}{{{}}}".format(*_ascii(part).split("⁄"))),
    (re.compile(rf"√{_RADICAND}"), r"\\sqrt{\1}"),
    (re.compile(rf"∛{_RADICAND}"), r"\\sqrt[3]{\1}"),
)
_WORD = re.compile(r"(?<![\\{A-Za-z])(?!and\b|or\b)[A-Za-z]{2,} ")
_GAP = r"(?:[ ~]|\\[,;: ])"
_NUMBERS: tuple[Rewriting, ...] = (
    (re.compile(rf"(?<=\d){_RAISED}"), _power),  # in prose: 10⁻³, but not m²
    (  # as programs print them; "2e-10" may well be twice Euler's number less ten
        re.compile(
            r"(?<![\w.^])(?:(?P<decimals>\d*\.\d+|1)|(?P<digits>\d+(?=[eE]\d|[eE][+-]0|E)))"
            r"\s*(?:[eE]|\\(?:mathrm|text)\{[eE]\})\s*"
            r"(?P<brace>\{)?(?P<exponent>[+-]?\d{1,5})(?(brace)\})(?![\d.])",
            re.ASCII,
        ),
        _power_of_ten,
    ),
    (  # 1\,000\,000
        re.compile(
            rf"(?<![\w.,^/])[1-9]\d{{0,2}}(?P<gap>{_GAP})\d{{3}}(?:(?P=gap)\d{{3}})*(?![\w/])",
            re.ASCII,
        ),
        _digits,
    ),
    (  # 2 1/3
        re.compile(rf"(?<![\w.,^/}}])(\d+){_GAP}+([1-9]\d?)/(\d{{1,3}})(?![\w.^!/])", re.ASCII),
        _mixed,
    ),
    (  # 0.1\overline{6}
        re.compile(
            r"(?<![\d)])(?P<whole>\d{0,40})\.(?P<once>\d{0,40})(?P<period>"
            r"\\(?:overline|bar)\s*\{?\d{1,40}\}?|\\dot\{?\d\}?(?:\d{0,40}\\dot\{?\d\}?)?)",
            re.ASCII,
        ),
        _repeating,
    ),
    (re.compile(r"(?:\^|\*\*)\s*([+-]?\d+)", re.ASCII), r"^{\1}"),
    # the dots of "0.333..." say that the digits go on; in a list they stand for terms
    (re.compile(r"(\.\d+)\s*(?:\\[lc]?dots[cbm]?(?![A-Za-z])|\.{3}|…)"), r"\1"),
)
