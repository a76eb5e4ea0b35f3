"""Chat templates are programs from strangers: they end in time, and in little memory."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from tests.base.limits import let_take
from tests.conftest import CHAT_TEMPLATE, write_tokenizer
from tests.interrupts import InterruptedAt

from tts.base import worker_process
from tts.base.errors import CheckpointError
from tts.build import chat_template
from tts.build.chat_template import TemplateFailed, render
from tts.build.tokenizer import Tokenizer
from tts.prompting.chat import chat_prompt

PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
HOSTILE = {
    "nested loops": "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3,
    "doubling": "{% set n = namespace(t='xx') %}{% for i in range(60) %}"
    "{% set n.t = n.t ~ n.t %}{% endfor %}",
    "padding": "{{ 'x'.center(10**11) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "an include": "{% include 'tokenizer.json' %}",
    "a long text": "{% for a in range(99999) %}{{ 'x' * 99 }}{% endfor %}",
    "a power": "{{ 9 ** (9 ** 9) }}",
    "a division": "{{ 1 / 0 }}",
    "a reach for the interpreter": "{{ messages.__class__.__mro__[1].__subclasses__() }}",
}
HANGING = ("nested loops", "a power")


@contextmanager
def impatience(name):
    """The worker gives up after a part of the time that a user's template has, if one hangs."""
    worker = chat_template._WORKER
    if name in HANGING:
        worker.reap()
        let_take(0.2, worker)
    yield
    let_take(worker._cpu_s, worker)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_ends_with_a_reason_and_the_next_one_renders(name):
    with impatience(name), pytest.raises(TemplateFailed) as error:
        render(HOSTILE[name], {"messages": []})
    assert str(error.value)
    chats = [{"messages": [{"content": each}]} for each in ("Hi", "Ho")]
    assert render(PLAIN, *chats) == ["Hi", "Ho"]


def test_a_template_that_is_not_valid_is_told_from_one_that_fails():
    for source, kind in (("{% for %}", "invalid"), ("{{ raise_exception('no') }}", "failed")):
        with pytest.raises(TemplateFailed) as error:
            render(source, {})
        assert error.value.kind == kind


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ strftime_now('%d %B %Y, %H:%M') }}", "26 July 2024, 00:00"),
        ("{% generation %}{{ m.b }}{% endgeneration %}!", "é!"),
        ("{{ m | tojson }}", '{"b": "é", "a": 1}'),
        ("{{ m | tojson(ensure_ascii=False) }}", '{"b": "é", "a": 1}'),
        ("{{ m | tojson(True) }}", '{"b": "\\u00e9", "a": 1}'),
        ("{{ m | tojson(separators=(',', ':'), sort_keys=True) }}", '{"a":1,"b":"é"}'),
        ("{{ m | tojson(indent=1) }}", '{\n "b": "é",\n "a": 1\n}'),
    ],
)
def test_what_published_templates_read_is_there(source: str, text: str):
    assert render(source, {"m": {"b": "é", "a": 1}}) == [text]


def test_a_template_renders_under_a_limit_of_the_user_s_own():
    """Lower than the one that is set here, and one that no process can raise again."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))\n"
        "from tts.build.chat_template import render; print(*render('{{ 1 + 1 }}', {}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout == "2\n", done.stderr


def with_template(folder, source):
    write_tokenizer(folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": source}))
    return Tokenizer(folder)


def test_variables_of_a_deployment_reach_its_template_and_a_typo_is_refused(tmp_path):
    source = "{% if enable_thinking is defined and not enable_thinking %}no{% endif %}"
    with_template(tmp_path, source)
    off = Tokenizer(tmp_path, {"enable_thinking": False})
    assert off.chat([], generation_prompt=True) == "no"
    with pytest.raises(CheckpointError, match="Did you mean enable_thinking"):
        Tokenizer(tmp_path, {"enable_thinkin": False})
    with pytest.raises(CheckpointError, match="does not read"):
        Tokenizer(tmp_path, {"messages": []})


def test_the_date_of_a_template_is_the_deployment_s(tmp_path):
    with_template(tmp_path, "{{ strftime_now('%d %B %Y') }}")
    dated = Tokenizer(tmp_path, {"strftime_now": "2026-01-31"})
    assert dated.chat([], generation_prompt=True) == "31 January 2026"
    assert Tokenizer(tmp_path).chat([], generation_prompt=True) == "26 July 2024"
    with pytest.raises(CheckpointError, match="strftime_now is 'today'"):
        Tokenizer(tmp_path, {"strftime_now": "today"})


def test_a_template_that_hangs_is_named_with_its_checkpoint(tmp_path):
    tokenizer = with_template(tmp_path / "hangs", HOSTILE["nested loops"])
    complaint = r"chat template of .*hangs failed: it took more"
    with impatience("nested loops"), pytest.raises(CheckpointError, match=complaint):
        tokenizer.chat([{"role": "user", "content": "Hi"}], generation_prompt=True)


def conversation(*contents):
    """Turns of user and assistant, which end with the user's."""
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(contents)]


def test_after_ctrl_c_a_conversation_is_not_sent_with_another_s_history(tmp_path):
    """Both end with the same question, so a check of that alone would see no difference."""
    tokenizer = with_template(tmp_path / "checkpoint", CHAT_TEMPLATE)
    cut, place = True, 0
    while cut:
        one, other = (conversation(f"{n} of {place}", "Yes.", "And then?") for n in ("one", "two"))
        cut = False
        try:
            with InterruptedAt(worker_process, place):
                chat_prompt(tokenizer, one)
        except KeyboardInterrupt:
            cut = True
        text = tokenizer.decode(chat_prompt(tokenizer, other))
        assert text == f"two of {place}Yes.And then?"
        place += 2
    assert place > 20


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ messages[-1].content }}", "changes message 1 of 4.*what the system has said there"),
        ("{{ messages[0].content }}{{ messages[-1].content }}", "message 2 of 4.*the user has"),
        (
            "{{ messages[0].content }}{% for m in messages[1:] | reverse %}{{ m.content }}"
            "{% endfor %}",
            "message 3 of 4.*the assistant has said",
        ),
        ("{% for m in messages[:3] %}{{ m.content }}{% endfor %}", "the last message.*question"),
    ],
)
def test_a_template_that_loses_any_message_is_refused(tmp_path, source, said):
    system = {"role": "system", "content": "Be brief."}
    tokenizer = with_template(tmp_path / "checkpoint", source)
    with pytest.raises(CheckpointError, match=said):
        chat_prompt(tokenizer, [system, *conversation("Compute 1.", "It is 1.", "And 2?")])


@pytest.mark.parametrize(
    "source",
    [
        # the system message in front of the last question, as Mistral's
        "{% for m in messages[1:] %}{% if loop.last %}{{ messages[0].content }}{% endif %}"
        "{{ m.content }}{% endfor %}",
        # earlier answers without their reasoning, as Qwen's
        "{% for m in messages %}{{ m.content.split('</think>')[-1] | trim }}{% endfor %}",
    ],
)
def test_what_published_templates_do_to_a_conversation_is_no_loss(tmp_path, source):
    system = {"role": "system", "content": "Be brief."}
    tokenizer = with_template(tmp_path / "checkpoint", source)
    turns = conversation("Compute 1.", "<think>Hm.</think>\n\nIt is 1.", "And 2?")
    assert "It is 1.And 2?" in tokenizer.decode(chat_prompt(tokenizer, [system, *turns])).replace(
        "Be brief.", ""
    )
