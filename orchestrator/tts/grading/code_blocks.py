"""The code of a completion: the block that defines what the tests of a problem call.

Nothing is parsed here: what a model writes is read by Python in the sandbox alone.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator

from tts.build.thinking_families import answer_part

_FENCED = re.compile(
    r"^([ \t]*)(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^(?:\1 {0,3}|[ \t]{0,3})\2[ \t]*$|\Z)", re.S | re.M
)
_TAGGED = re.compile(r"\[PYTHON\](.*?)(?:\[/PYTHON\]|\Z)", re.S)
_CODE_LINE = re.compile(
    r"\s|#|$|@|['\"]{3}|[\])}]|(?:async |def |class |import |from \S+ import )"
    r"|(?:return|raise|assert|break|continue|pass|del|global)\b"
    r"|(?:if|elif|for|while|with|except)\b.*:\s*(?:#.*)?$|(?:else|try|finally)\s*:"
    r"|[\w.\[\]'\"]+(?:\s*,\s*[\w.\[\]'\"]+)*\s*(?:[-+*/%@&|^]|//|\*\*|>>|<<)?=(?!=)"
    r"|[A-Za-z_][\w.]*\((?:.*[\])}])?\s*(?:#.*)?$"
)
"""The beginning of a line of a program; prose begins otherwise."""
_INTROSPECTION = re.compile(
    r"\b(?:_getframe|_current_frames|f_back|tb_frame|gi_frame|__eq__|__subclasses__)\b"
    r"|\b(?:import|from)\s+(?:gc|inspect|ctypes)\b|/proc/"
)


def extract_code(text: str, names: Collection[str] = ()) -> str | None:
    """The last block of a completion that defines what is asked for; None if there is nothing.

    Blocks are fenced, or between [PYTHON] tags, or else lines of a program among prose. If none
    defines all of the `names`, it is the last that defines some, else the last that is fenced or
    tagged, else all of the text. It is read behind the completion's thinking. A block that was cut
    off counts.
    """
    answer = answer_part(text)
    if answer is None:
        return None
    answer = answer.replace("\r\n", "\n").replace("\r", "\n")
    blocks = list(_fenced(answer)) or [match[1] for match in _TAGGED.finditer(answer)]
    last = blocks[-1] if blocks else answer
    blocks = [_dedented(block, names) for block in blocks or _programs(answer)]
    for enough in (all, any):
        for block in reversed(blocks):
            if names and enough(defines(block, name) for name in names):
                return block.rstrip().strip("\n")
    return last.rstrip().strip("\n") or None


def _fenced(text: str, *, nested: bool = True) -> Iterator[str]:
    """The fenced blocks of a text, and behind each the blocks in it."""
    for indent, _, content in _FENCED.findall(text):
        lines = [line.removeprefix(indent) for line in content.splitlines()]
        block = "\n".join(lines)
        yield block
        if nested:
            yield from _fenced(block, nested=False)


def _programs(text: str) -> Iterator[str]:
    """The runs of lines that look like a program."""
    lines: list[str] = []
    in_text = False  # between three quotes
    for line in text.splitlines():
        if in_text or (_CODE_LINE.match(line) and (lines or line.strip())):
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
        in_text ^= bool((line.count('"""') + line.count("'''")) % 2)
    yield "\n".join(lines)


def _dedented(block: str, names: Collection[str]) -> str:
    dedented = textwrap.dedent(block)
    return dedented if any(defines(dedented, name) for name in names) else block


def defines(code: str, name: str) -> bool:
    """Whether a name is defined at the top of a program, as far as can be seen without parsing."""
    name = re.escape(name)
    return bool(
        re.search(rf"^(?:(?:async +)?def|class) +{name}\b|^{name} *(?::[^=\n]*)?=(?!=)", code, re.M)
    )


def uses_introspection(code: str) -> bool:
    """Whether code names what code that deceives its tests needs: frames, `gc`, `__eq__`, ..."""
    return bool(_INTROSPECTION.search(code))
