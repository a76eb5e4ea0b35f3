r"""The final answer written in a text. Pure, and linear in the length of any text.

A completion states its answer in `\boxed{...}`. One without a complete box states it where lm-eval
and math-verify look first: in `<answer>`, after "final answer is", "Answer:" or "####", and, where
there is none of these, in a sentence "The answer is 5." that states mathematics; and so in Spanish,
German, French and Chinese. Beyond these words nothing is guessed: "the last number" rewards
rambling, and makes accuracies incomparable. math-verify's own extraction may take any time; a test
compares with it.
"""

from __future__ import annotations

import re

from tts.build.thinking_families import answer_part

# An escaped character is one token, so that \{ and \\ never look like the braces of a group.
_TOKEN = re.compile(r"\\(?P<box>boxed|fbox)(?![A-Za-z])\s*|\\.|[{}]", re.DOTALL)

# Without braces only a number or one letter is taken: "put it in \boxed format" is prose.
_UNBRACED = re.compile(r"(?P<answer>-?\d[\d.,/]*|[A-Za-z](?![A-Za-z]))")

# What announces an answer, from the most certain words to the least. Sources: math-verify's regular
# expressions that are anchored at "final answer is" and "answer:", and those of lm-eval for Minerva
# ("final answer is ... I hope it is correct") and GSM8K ("####").
_IS = (
    r"(?:\b(?:(?:the|our|my) answer is|la respuesta (?:correcta )?es|die antwort (?:ist|lautet)"
    r"|la réponse est(?: donc)?)|答案[是为為])"
)
_ANNOUNCED = (
    re.compile(
        r"(?:\b(?:final answer|respuesta final|endgültige antwort|réponse finale)"
        r"(?:\s+(?:is|es|ist|lautet|est)\b|[*_]*\s?:)|最[终後后]答案[*_]*\s?[是为為:：])"
        r"[*_]*[:：]?\s*[*_]*",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:^[ \t>#*_]*(?:(?:the )?answer|respuesta|antwort|réponse|答案)[*_]*\s?[:：]"
        rf"|{_IS}[:：]|^[#*][ \t#*_]*(?:final )?answer[*_]*$)[*_]*\s*[*_]*",
        re.IGNORECASE | re.MULTILINE,
    ),
)
_TAGGED = re.compile(r"<answer>([^<]*(?:<(?!/?answer>)[^<]*)*)</answer>")  # as R1 writes it
# The sentence that ends the solutions of lm-eval's few-shot prompts for GSM8K. A step may say it of
# a part of the problem, so it counts only where nothing more certain is announced.
_IN_A_SENTENCE = re.compile(
    rf"{_IS}[ \t]*(?=[*_]*(?:\$|-?\\|[-€£(]*\d|\((?-i:[A-J])\)))", re.IGNORECASE
)
_AFTER_HASHES = re.compile(r"^####[ \t]+([$€£]?-?\d[\d.,]*%?)[ \t]*$", re.MULTILINE)

_MOST_STATED = 500  # characters of an answer without a box; a limit for the patterns below
_FENCED = r"(?:\$\$[^$]+\$\$|\$(?:[^$\n\\]|\\.)+\$|\\\([^\n]+?\\\)|\\\[.+?\\\])"
_SENTENCE = re.compile(rf"(?:{_FENCED}|[^\n.。，]|\.(?=\S)|，(?![\u4e00-\u9fff]))+", re.DOTALL)
_LIST = re.compile(
    rf"(?P<first>{_FENCED})(?P<more>(?:\s*(?:,|,?\s*and|,?\s*or)\s*{_FENCED})*)", re.DOTALL
)
_UNIT = re.compile(
    r"(?:\s+(?!and|or|not|less|more|plus|minus|times)[^\W\d_]+){0,3}|\s*,.*", re.DOTALL
)
_CHOICE = re.compile(r"\(([A-J])\)")
# "The largest $n$ is 34" says it after its verb; "is not 34" does not.
_AFTER_A_VERB = re.compile(
    rf".*\b(?:is|are|equals)\s+(?P<answer>{_FENCED}|-?\d[\d.,/]*)", re.DOTALL
)
_FENCE = re.compile(r"(?!^)(?<!\\)\$|^\$(?!\d)|\\[(\[]")
_WORD = re.compile(r"[^\W\d_]")
_TWO_WORDS = re.compile(r"[^\W\d_]{2,}[\s,]+[^\W\d_]{2,}|\A[\u4e00-\u9fff]+[^\u4e00-\u9fff]")


def extract_answer(text: str) -> str | None:
    """The answer behind a completion's thinking: `boxed_answer`, else `stated_answer`."""
    if (solution := answer_part(text)) is None:
        return None
    answer = boxed_answer(solution)
    return stated_answer(solution) if answer is None else answer


def boxed_answer(text: str) -> str | None:
    r"""Content of the last complete `\boxed{...}` or `\fbox{...}`, stripped; None if there is none.

    The last box is the one that opens last, so of nested boxes it is the inner one. A box that is
    empty, or cut off before its closing brace, does not count: an earlier complete one stands.
    `\boxed 5` (a number or a single letter without braces) is accepted.
    """
    open_groups: list[int | None] = []  # per open brace: where its content starts if it is a box
    box_brace = -1  # where the brace that opens a box was seen
    answer_start = -1
    answer = None
    for token in _TOKEN.finditer(text):
        if token["box"]:
            if text.startswith("{", token.end()):
                box_brace = token.end()
            elif unbraced := _UNBRACED.match(text, token.end()):
                answer_start, answer = token.start(), unbraced["answer"].rstrip(".,/")
        elif token[0] == "{":
            is_box = token.start() == box_brace
            open_groups.append(token.end() if is_box else None)
        elif token[0] == "}" and open_groups:
            start = open_groups.pop()
            if start is not None and start > answer_start:
                content = text[start : token.start()].strip()
                if content:
                    answer_start, answer = start, content
    return answer


def stated_answer(text: str) -> str | None:
    """What a text announces in words as its answer; None if it announces none.

    The last announcement of the most certain kind counts, and of it the rest of the sentence if
    that is mathematics or one word: "the final answer is greater than $5$" states no answer.
    """
    if tagged := _TAGGED.findall(text):
        return stated_answer(tagged[-1]) or _answer_at(tagged[-1].strip(), 0)
    for announcement in _ANNOUNCED:
        ends = [match.end() for match in announcement.finditer(text)]
        if ends:
            return _answer_at(text, ends[-1])
    if numbers := _AFTER_HASHES.findall(text):
        return str(numbers[-1]).rstrip(".,")
    ends = [match.end() for match in _IN_A_SENTENCE.finditer(text)]
    answer = _answer_at(text, ends[-1]) if ends else None
    return None if answer and (several := _LIST.match(answer)) and several["more"] else answer


def _answer_at(text: str, start: int) -> str | None:
    """The answer that a sentence consists of, which begins there."""
    sentence = _SENTENCE.match(text[start : start + _MOST_STATED])
    if sentence is None or sentence.end() == _MOST_STATED:
        return None
    answer = sentence[0].strip("*_ \t").removesuffix(".").rstrip("*_ \t")
    if "boxed" in answer or "fbox" in answer:  # a box that is empty or was cut off
        return None
    if fenced := _LIST.match(answer):
        rest = answer[fenced.end() :]
        if not _UNIT.fullmatch(rest):
            return None
        if rest and not rest.lstrip().startswith(","):
            return answer
        return fenced[0] if fenced["more"] else _without_fences(fenced["first"])
    if choice := _CHOICE.fullmatch(answer):
        return choice[1]
    if _FENCE.search(answer) or (_WORD.match(answer) and _TWO_WORDS.search(answer)):
        if not (match := _AFTER_A_VERB.fullmatch(answer)):
            return None
        answer = match["answer"]
        return _without_fences(answer) if answer[0] in "$\\" else answer
    return answer if answer.strip(".…") else None


def _without_fences(environment: str) -> str | None:
    width = 1 if environment[0] == "$" and environment[1] != "$" else 2
    return environment[width:-width].strip() or None


def extract_gsm8k_answer(text: str) -> str | None:
    """The number after the last `####` of a GSM8K solution, without thousands commas, or None."""
    _, mark, answer = text.rpartition("####")
    answer = answer.strip().partition("\n")[0].replace(",", "").strip()
    return answer if mark and answer else None
