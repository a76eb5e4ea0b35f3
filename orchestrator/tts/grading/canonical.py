r"""A cheap normal form of an answer: equal forms mean equal answers, never the other way round.

Only spellings that cannot change the meaning are unified: spacing, `\dfrac`, `\left(`, enclosing
dollars, a final full stop, and plain numbers (`1,000`, `+5`, `1.0`). Everything else is left for
math-verify. JSON has a form of its own. The one reading chosen where two exist: an answer that is
nothing but digits in groups of three ("1,200") is a number and not a list.

`in_latex` writes unicode mathematics ("√2", "x²", "3½", "∞", full-width digits) as LaTeX.
`readable` goes on for math-verify alone, to which "1\,000" is a product, "2 1/3" is 1, the line
over the digits of "0.1\overline{6}" a conjugate, and "3.54e-07" a multiple of Euler's number. All
of it is pure, and linear in the text's length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, NoReturn
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

_COMMAND = re.compile(r"\\([A-Za-z]+|!\s*|.)", re.DOTALL)
_RENAMED = dict.fromkeys(["dfrac", "tfrac", "cfrac"], r"\frac")
_RENAMED |= {"le": r"\leq", "ge": r"\geq"}
_RENAMED |= dict.fromkeys([",", ";", ":", " ", "\n", "quad", "qquad"], " ")

# Sizing before | is kept: without it, |a|b|c| could be either of two nestings.
_SIZING = re.compile(r"(?:left|right)$")
_DELIMITER = re.compile(r"\s*(?:[()\[\]]|\\[{}])")

_LETTER = re.compile(r"[^\W\d_]")
_SPACES = re.compile(r"\s+")
_LOOSE_SPACE = re.compile(r"(?<![^\W_]) | (?![^\W_])")  # a space that does not part two words
_FAMILY = re.compile(r"\\\{([^:|,]+?)(?::|\||\\mid ?)([A-Za-z]\\in.+)\\\}")  # {2k : k in Z}
_GROUPED = re.compile(
    r"[+-]?[1-9]\d{0,2}(?P<separator>[ ,]|\{,\})\d{3}(?:(?P=separator)\d{3})*(?:\.\d+)?", re.ASCII
)
_NUMBER = re.compile(r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<decimals>\d*))?", re.ASCII)
_INTEGER = re.compile(r"-?\d+", re.ASCII)


def canonical(answer: str) -> str:
    """The normal form of `answer`; takes time linear in its length."""
    if (form := json_form(answer)) is not None:
        return form
    text = _COMMAND.sub(_rename, without_dollars(trimmed(in_latex(answer))))
    text = _SPACES.sub(" ", text).strip()
    if len(text) > 1 and text.endswith(".") and not text.endswith(".."):
        text = text[:-1]
    if grouped := _GROUPED.fullmatch(text):
        text = text.replace(grouped["separator"], "")
    text = _LOOSE_SPACE.sub("", text)
    if text.endswith(r"\}") and (family := _FAMILY.fullmatch(text)):
        text = f"{family[1]},{family[2]}"
    number = _NUMBER.fullmatch(text)
    return _plain(number) if number else text


def trimmed(answer: str) -> str:
    r"""`answer` without space around it; of `\ ` and `\\` at its end no backslash is left over."""
    return answer.strip().rstrip("\\ \t\r\n")


def is_integer(form: str) -> bool:
    """True if a canonical form is a plain integer; two such forms that differ are two numbers."""
    return _INTEGER.fullmatch(form) is not None


def without_dollars(text: str) -> str:
    """`text` without the dollars, one or two, that enclose it as a whole."""
    for fence in ("$$", "$"):
        if text.startswith(fence) and text.endswith(fence) and len(text) > 2 * len(fence):
            inner = text[len(fence) : -len(fence)]
            if "$" not in inner and not inner.endswith("\\"):
                return inner.strip()
    return text


def _rename(command: re.Match[str]) -> str:
    name = command[1]
    if name.startswith("!"):  # closes a gap: "1,\! 000" is one number, but "\sin\!h" is not "\sinh"
        return " " if _LETTER.match(command.string, command.end()) else ""
    if _SIZING.match(name) and _DELIMITER.match(command.string, command.end()):
        return ""
    return _RENAMED.get(name, command[0])


def _plain(number: re.Match[str]) -> str:
    """A decimal number in its shortest spelling. Strings only: int() refuses long ones."""
    whole, decimals = number["whole"], number["decimals"] or ""
    if not whole and not decimals:
        return number[0]
    digits = (whole.lstrip("0") or "0") + (f".{rest}" if (rest := decimals.rstrip("0")) else "")
    return digits if digits == "0" or number["sign"] != "-" else f"-{digits}"


# exact for every number that an answer of some thousand characters can spell
_EXACT = Context(prec=4000, Emax=999_999, Emin=-999_999)


def json_form(answer: str) -> str | None:
    """The normal form of a JSON answer: an object, or an array with texts in it; else None.

    Such answers are equal where their values are: numbers as numbers, members in any order. Arrays
    of numbers alone stay mathematics, where `[1, 2]` may be an interval or a row.
    """
    text = answer.strip()
    if text[:1] not in ("{", "[") or '"' not in text:
        return None
    try:
        value = json.loads(
            text,
            parse_float=_number,
            parse_int=_number,
            parse_constant=_refuse,
            object_pairs_hook=_members,
        )
        return _json_text(value)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def _number(text: str) -> Decimal:
    number = _EXACT.normalize(_EXACT.create_decimal(text))
    return number if number else abs(number)  # there is one zero


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is given twice")
    return members


def _json_text(value: Any) -> str:
    if isinstance(value, dict):
        members = (f"{json.dumps(name)}:{_json_text(value[name])}" for name in sorted(value))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)
