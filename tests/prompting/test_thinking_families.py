"""Families of models that think: their prompts with each switch, as transformers renders them.

Templates are short ones that write the marks of a family as its published one does. TTS_TEMPLATES
names a folder of published ones (`*.jinja`), which are then rendered as well.
"""

import os
from pathlib import Path

import pytest

from tts.base.errors import CheckpointError
from tts.build.chat_template import TEMPLATE_DATE
from tts.build.spec.generator import ThinkingSpec
from tts.build.thinking import thinking_of, unknown_thinking
from tts.build.thinking_families import FAMILIES, answer_part
from tts.build.tokenizer import Tokenizer
from tts.prompting.chat import chat_prompt, require_messages, shown_chat

TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
SYSTEM = "{% set s = messages[0].content if messages[0].role == 'system' else '' %}"
ON, OFF = {"enable_thinking": True}, {"enable_thinking": False}
HIGH, LOW = {"reasoning_effort": "high"}, {"reasoning_effort": "low"}


def unless(condition, closed, opened=""):
    """What an answer's prompt ends with."""
    return TURNS + f"[bot]{{% if {condition} %}}{closed}{{% else %}}{opened}{{% endif %}}"


DEFINED = "enable_thinking is defined and "
MARKS = {marks.opens: marks for marks in FAMILIES}
# a template; variables that switch on and off; what the system says to switch; what each prompt
# ends with: by default, on, off, by the system ("": none of its own, the mark is written behind;
# None: no thinking)
CLOSED = "<think>\n\n</think>\n\n"
CASES = {
    "Qwen3": (unless(DEFINED + "not enable_thinking", CLOSED), ON, OFF, "", ("", "", None, "")),
    "SmolLM3": (
        SYSTEM + "{% set off = enable_thinking is false or '/no_think' in s %}"
        "{% for m in messages %}[{{ m.role }}]{{ m.content.replace('/no_think', '').rstrip() }}"
        "{% endfor %}[bot]{% if off %}<think>\n\n</think>\n{% endif %}",
        *(ON, OFF, "/no_think", ("", "", None, None)),
    ),
    "Nemotron Nano v2": (
        "{% set ns = namespace(off=false) %}{% for m in messages %}"
        "{% if '/no_think' in m.content %}{% set ns.off = true %}{% endif %}"
        "[{{ m.role }}]{{ m.content.replace('/think', '').replace('/no_think', '').strip() }}"
        "{% endfor %}[bot]{% if ns.off %}<think></think>{% else %}<think>\n{% endif %}",
        *({}, {}, "/no_think", ("<think>\n", "<think>\n", "<think>\n", None)),
    ),
    "R1": (TURNS + "[bot]{{ '<think>\n' }}", {}, {}, "", ("<think>\n",) * 4),
    "GLM-4.7": (
        unless(DEFINED + "not enable_thinking", "</think>", "<think>"),
        *(ON, OFF, "", ("<think>", "<think>", None, "<think>")),
    ),
    "DeepSeek-V3.1": (
        unless("not thinking", "</think>", "<think>"),
        *({"thinking": True}, {"thinking": False}, "", (None, "<think>", None, None)),
    ),
    "Bielik": (
        unless("not enable_thinking", "", "<think>\n"),
        *(ON, OFF, "", (None, "<think>\n", None, None)),
    ),
    "Ministral": (TURNS + "{{ '[THINK]' if false }}[bot]", {}, {}, "", ("",) * 4),
    "Seed-OSS": (
        unless("thinking_budget == 0", "<seed:think></seed:think>"),
        *({"thinking_budget": 9}, {"thinking_budget": 0}, "", ("", "", None, "")),
    ),
    "Command R7B": (
        unless("not enable_thinking", "<|START_THINKING|><|END_THINKING|>"),
        *(ON, OFF, "", (None, "", None, None)),
    ),
    "Gemma 4": (
        unless("not enable_thinking", "<|channel>thought\n<channel|>", "{{ '<|think|>' if 0 }}"),
        *(ON, OFF, "", (None, "", None, None)),
    ),
    "Hy3": (
        "{% set name = ':opensource' %}"
        "{% set begin, end = '<think{}>'.format(name), '</think{}>'.format(name) %}"
        "{% set on = reasoning_effort is defined and reasoning_effort in ['low', 'high'] %}"
        + unless("on", "{{ begin }}", "{{ begin }}{{ end }}"),
        *(HIGH, {"reasoning_effort": "no_think"}, ""),
        (None, "<think:opensource>", None, None),
    ),
    "MiniMax-M3": (
        unless("thinking_mode == 'disabled'", "</mm:think>", "{{ '<mm:think>' if 0 }}"),
        *({"thinking_mode": "enabled"}, {"thinking_mode": "disabled"}, "", ("", "", None, "")),
    ),
    "Kimi-K3": (
        "{% if thinking is undefined %}{% set thinking = true %}{% endif %}{% macro tag(name) %}"
        "<|open|>{{ name }}<|sep|>{% endmacro %}"
        + TURNS
        + "[bot]{{ tag('think' if thinking else 'response') }}",
        *({"thinking": True}, {"thinking": False}, ""),
        ("<|open|>think<|sep|>", "<|open|>think<|sep|>", None, "<|open|>think<|sep|>"),
    ),
    "Solar-Open": (
        "{% for m in messages %}<|begin|>{{ m.role }}<|content|>{{ m.content }}<|end|>{% endfor %}"
        "{% if reasoning_effort == 'low' %}<|begin|>assistant<|think|><|end|>{% endif %}"
        "<|begin|>assistant",
        *(HIGH, LOW, "", ("", "", None, "")),
    ),
    "Apriel-1.6": (
        "Answer after the marker [BEGIN FINAL RESPONSE]."
        + TURNS
        + "[bot]{{ 'Here are my reasoning steps:\n' }}",
        *({}, {}, "", ("Here are my reasoning steps:\n",) * 4),
    ),
    "gpt-oss": (
        "{{ reasoning_effort }}{{ '<|channel|>analysis<|message|>' if 0 }}" + TURNS + "[bot]",
        *(HIGH, LOW, "", ("",) * 4),
    ),
}


class FixedDate:
    """Instead of today."""

    @staticmethod
    def now():
        return TEMPLATE_DATE


@pytest.fixture
def rendered(monkeypatch):
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    monkeypatch.setattr(utils, "datetime", FixedDate)

    def text(template, messages, variables):
        (said,), _ = utils.render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=True, **variables
        )
        return said

    return text


def chat_of(system):
    said = [{"role": "system", "content": system}] if system else []
    return [*said, {"role": "user", "content": "Is it <think> or 5?"}]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_switch_gives_the_prompt_of_transformers(case, tokenizer_folder, rendered):
    template, on, off, system, ends = case
    switches = ({}, ""), (on, ""), (off, ""), ({}, f"Be brief. {system}")
    for (variables, said), end in zip(switches, ends, strict=True):
        tokenizer = Tokenizer(tokenizer_folder, variables, template)
        messages = chat_of(said)
        thinking = thinking_of(tokenizer, ThinkingSpec(), messages, may_be_off=True)
        text = rendered(template, messages, variables)
        assert tokenizer.chat(messages, generation_prompt=True) == text
        assert (thinking is None) == (end is None)
        if thinking:
            assert thinking.starts_open == bool(end)
            assert text.endswith(f"[bot]{end}") or "[bot]" not in text
            text = thinking.prompt(text)
            assert thinking.marks.state(text) == "open"
        plain = [{"role": "user", "content": "5?"}]
        ids = chat_prompt(tokenizer, plain, thinking).tolist()
        wanted = rendered(template, plain, variables)
        assert ids == tokenizer.encode(thinking.prompt(wanted) if thinking else wanted)
        require_messages(tokenizer, messages, text)


def test_a_switch_that_the_template_does_not_know_is_no_switch(tokenizer_folder):
    drops = "{{ messages[0].content.replace('_think', '') }}" + "{{ messages[1].content }}"
    for source in (drops.replace("_think", "/nope"), drops):
        tokenizer = Tokenizer(tokenizer_folder, chat_template=source + "{{ '/think' if 0 }}")
        messages = chat_of("/think /no_think")
        text = tokenizer.chat(messages, generation_prompt=True)
        if source == drops:
            with pytest.raises(CheckpointError, match="changes message 1"):
                require_messages(tokenizer, messages, text)
        else:
            require_messages(tokenizer, messages, text)


@pytest.mark.parametrize("marks", FAMILIES, ids=[marks.opens.strip() for marks in FAMILIES])
def test_a_box_in_the_thinking_of_any_family_is_no_answer(marks):
    assert answer_part(f"{marks.opens}try \\boxed{{5}}") is None
    for closing in marks.closings:
        assert answer_part(f"{marks.opens}try \\boxed{{5}}{closing}7") == "7"
    assert marks.state(marks.opens + marks.closing_text) == "closed"


def test_published_templates_are_known_and_render_as_in_transformers(tokenizer_folder, rendered):
    folder = os.environ.get("TTS_TEMPLATES")
    if not folder:
        pytest.skip("TTS_TEMPLATES names no folder of published templates")
    thinking_chats, unlike = 0, []
    for file in sorted(Path(folder).glob("*.jinja")):
        tokenizer = Tokenizer(tokenizer_folder, chat_template=file.read_text())
        if hints := unknown_thinking(tokenizer, ThinkingSpec()):
            print(f"{file.name}: {', '.join(hints)}, and no family")
        switches = [
            *({name: on} for name in ("enable_thinking", "thinking") for on in (True, False))
        ]
        for variables in ({}, *(each for each in switches if {*each} <= tokenizer.chat_variables)):
            for system in ("", "Be brief.", "/no_think", "Be brief. /think"):
                asked = tokenizer.with_template_kwargs(variables)
                chat = shown_chat(asked, chat_of(system))
                try:
                    text = asked.chat(chat, generation_prompt=True)
                except CheckpointError:
                    continue
                values = {"bos_token": asked.special("bos_token"), **variables}
                values["eos_token"] = asked.special("eos_token")
                try:
                    same = rendered(file.read_text(), chat, values) == text
                except Exception as error:  # transformers gives tools as None
                    same = "NoneType" in str(error)
                unlike += [] if same else [(file.name, variables, system)]
                thinking = thinking_of(asked, ThinkingSpec(), chat, may_be_off=True)
                if thinking:
                    thinking_chats += 1
                    assert thinking.marks.state(thinking.prompt(text)) == "open"
    assert thinking_chats
    assert not unlike
