r"""The grammar that a step obeys: free text in which every box holds an answer. Pure.

EBNF as xgrammar reads it, which OpenVINO GenAI, TensorRT-LLM and vLLM carry, and llama.cpp, whose
names have no underscores. The whole output of a request has to follow it, so it describes the free
text, too. That text is right-linear: a rule for each place in the words that open a box.

    text ──\──► escape ──b──► \b ──o──► \bo ── ... ──► \boxed ──{──► answer ──}──► text

After `\boxed` and `\fbox` a brace must follow (TeX would take one letter or digit without), and an
escaped backslash opens nothing, as in `tts.grading.extract`. Each rule but the one before a brace
may end the output: at the end of the sequence, at a stop word, or at the request's limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tts.base.errors import ConfigError
from tts.engines.generate_request import MAX_GUIDE_BYTES
from tts.engines.guide_grammar import check_grammar

from .counts import in_blocks
from .regular import Chars, Choice, Node, Ref, Repeat, Seq

BOXES = ("\\boxed", "\\fbox")
TEXT_RULE = "text"
_ESCAPE_RULE = "escape"
_BOX_RULE = "box"
_SPECIAL = {ord(char) for char in '"\\]^-['}
_UTF8_BLOCKS = (0x80, 0x800, 0x1000, 0xD000, 0xE000, 0x10000, 0x40000, 0x100000)
"""Where the bytes of UTF-8 change their number, or what may follow the first of them."""


def step_grammar(answer: Mapping[str, Node], start: str = TEXT_RULE) -> str:
    """The grammar of a text in which every box holds an answer; `start` is from `rule_after`.

    `answer` are the rules of an answer, the first of which is called `answer`.
    """
    rules = {
        "root": start,
        TEXT_RULE: f'[^\\\\]* ("\\\\" {_ESCAPE_RULE})?',
        _ESCAPE_RULE: _escape_rule(),
        **_letter_rules(),
        _BOX_RULE: f'"{{" answer "}}" {TEXT_RULE}',
        **{name: ebnf(node) for name, node in in_blocks(answer).items()},
    }
    return "".join(f"{name} ::= {rule}\n" for name, rule in rules.items())


def whole_grammar(rules: Mapping[str, Node]) -> str:
    """The grammar of an output that is a text of the rule `root`, and nothing else.

    Raises ConfigError for one that engines refuse.
    """
    rules = in_blocks(rules)
    text = "".join(f"{name} ::= {ebnf(rule)}\n" for name, rule in rules.items())
    if len(text) > MAX_GUIDE_BYTES:
        raise ConfigError(
            f"The grammar of the form has {len(text):,} characters; engines take "
            f"{MAX_GUIDE_BYTES:,}."
        )
    try:
        check_grammar(text)
    except ValueError as error:
        raise ConfigError(f"The form makes a grammar that engines refuse: {error}.") from error
    return text


def rule_after(text: str) -> str:
    """The rule in which a text goes on whose boxes are all closed.

    It depends on the end of the text alone: after a line break it is `TEXT_RULE`, unless a
    backslash escapes the break.
    """
    rule = TEXT_RULE
    for char in text:
        rule = _follow(rule, char)
    return rule


def _follow(rule: str, char: str) -> str:
    if rule == _BOX_RULE:  # only a brace can follow; what is in the box opens no other
        return TEXT_RULE
    if rule == _ESCAPE_RULE:
        return next((_rule(box[:2]) for box in BOXES if box[1] == char), TEXT_RULE)
    if char == "\\":
        return _ESCAPE_RULE
    for box in BOXES:
        for length in range(2, len(box)):
            if rule == _rule(box[:length]) and box[length] == char:
                return _rule(box[: length + 1])
    return TEXT_RULE


def _rule(read: str) -> str:
    """The rule that follows when this much of a box's word has been read."""
    return _BOX_RULE if read in BOXES else f"after{read[1:]}"


def _escape_rule() -> str:
    firsts = [box[1] for box in BOXES]
    starts = " | ".join(f'"{box[1]}" {_rule(box[:2])}' for box in BOXES)
    return f'"" | [^{"".join(firsts)}] {TEXT_RULE} | {starts}'


def _letter_rules() -> dict[str, str]:
    return {
        _rule(box[:length]): (
            f'"" | "\\\\" {_ESCAPE_RULE} | [^{box[length]}\\\\] {TEXT_RULE} | '
            f'"{box[length]}" {_rule(box[: length + 1])}'
        )
        for box in BOXES
        for length in range(2, len(box))
    }


def ebnf(node: Node) -> str:
    """A regular language as the right side of a rule."""
    if isinstance(node, Chars):
        if len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
            return f'"{_char(node.ranges[0][0])}"'
        ranges = (each for low, high in node.ranges for each in _utf8_blocks(low, high))
        return "[" + "".join(_range(low, high) for low, high in ranges) + "]"
    if isinstance(node, Seq):
        return " ".join(_pieces(node)) or '""'
    if isinstance(node, Choice):
        return "(" + " | ".join(ebnf(option) for option in node.options) + ")"
    return node.name if isinstance(node, Ref) else _repeat(node)


def _pieces(node: Seq) -> list[str]:
    """The parts of a sequence; single characters in a row become one text."""
    pieces: list[str] = []
    text = ""
    for part in node.parts:
        if isinstance(part, Chars) and len(part.ranges) == 1 and len(set(part.ranges[0])) == 1:
            text += _char(part.ranges[0][0])
            continue
        if text:
            pieces.append(f'"{text}"')
            text = ""
        pieces.append(ebnf(part))
    return [*pieces, f'"{text}"'] if text else pieces


def _repeat(node: Repeat) -> str:
    inner = ebnf(node.node)
    if not isinstance(node.node, Chars | Choice | Ref):
        inner = f"({inner})"
    least, most = node.least, node.most
    if most == 0:
        return '""'
    if most is None and least < 2:
        return inner + "*+"[least]
    if (least, most) == (0, 1):
        return f"{inner}?"
    if most is None:
        return f"{inner}{{{least},}}"
    return f"{inner}{{{least},{most}}}"


def _utf8_blocks(low: int, high: int) -> Iterator[tuple[int, int]]:
    """A range in parts that UTF-8 spells alike.

    xgrammar takes wrong bytes for a range over several of them (with OpenVINO GenAI 2026.4), such
    as the first byte of a surrogate, after which it allows no token at all.
    """
    for begin in _UTF8_BLOCKS:
        if low < begin <= high:
            yield low, begin - 1
            low = begin
    yield low, high


def _range(low: int, high: int) -> str:
    return _char(low) if low == high else f"{_char(low)}-{_char(high)}"


def _char(code: int) -> str:
    if code in _SPECIAL or not 0x20 <= code < 0x7F:
        return f"\\U{code:08x}"  # of \\x xgrammar takes all hexadecimal digits that follow
    return chr(code)
