"""What is written for a node by a generator that thinks: thoughts, and how they were asked for."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tokenizers import AddedToken
from tokenizers import Tokenizer as Rust

from tts.base.errors import CheckpointError
from tts.build.spec.generator import ThinkingSpec
from tts.build.thinking import thinking_of
from tts.build.thinking_families import FAMILIES, answer_part
from tts.build.tokenizer import Tokenizer
from tts.problem import Problem, Turn
from tts.prompting import Context, Models
from tts.prompting.thinking import writing
from tts.search import Expand, Sampling, Stop

CLOSES = "</think>"
THINKS = "{{ '<|assistant|>' }}{% if enable_thinking is defined and not enable_thinking %}" + (
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}"
)
OPENS = "{{ '<|assistant|><think>' }}"


def thinking_folder(folder, tokenizer_folder, generation_prompt, *, added):
    """A checkpoint folder whose template thinks; `added`: its marks are tokens of their own."""
    folder.mkdir()
    rust = Rust.from_file(str(tokenizer_folder / "tokenizer.json"))
    if added:
        rust.add_tokens([AddedToken(mark) for mark in ("<think>", CLOSES)])
    rust.save(str(folder / "tokenizer.json"))
    config = json.loads((tokenizer_folder / "tokenizer_config.json").read_text())
    config["chat_template"] = config["chat_template"].replace(
        "{{ '<|assistant|>' }}", generation_prompt
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module", params=[True, False], ids=["added", "spelled"])
def thinking_models(request, tmp_path_factory, tokenizer_folder, tiny_deployment):
    """Models whose generator thinks, by its section `thinking`."""
    folder = thinking_folder(
        tmp_path_factory.mktemp("thinks") / "c", tokenizer_folder, THINKS, added=request.param
    )

    def models(reads="none", **thinking):
        generator = tiny_deployment.generator.model_copy(
            update={"checkpoint": folder, "thinking": ThinkingSpec(**thinking), "max_seq_len": 4096}
        )
        verifier = tiny_deployment.verifier.model_copy(update={"reads_thinking": reads})
        update = {"generator": generator, "verifier": verifier}
        return Models.load(tiny_deployment.model_copy(update=update))

    return models


class Writer:
    """A generator that writes a thought and an answer, one token after the other.

    `thought` holds the mark that closes it, or it goes on to its end.
    """

    def __init__(self, models, thought, answer):
        self.models, self.thought, self.answer = models, thought, answer
        self.prompt = len(Context.of(models, PROBLEM).generator_ids(()))
        self.calls = []

    def generate(self, call):
        self.calls.append(call)
        encode, ids = self.models.generator.encode, []
        written = call.input_ids[self.prompt :].tolist()
        while len(ids) < call.max_new_tokens:
            so_far = [*written, *ids]
            end = self.models.thinking.end(so_far)
            script = encode(self.thought) if end is None else encode(self.answer)
            if end is None and self.thought.endswith(CLOSES):
                script = [*encode(self.thought.removesuffix(CLOSES)), *encode(CLOSES)]
            at = len(so_far) - (end or 0)
            if end is not None and not self.answer.startswith("\n"):  # behind a closing text
                closing = self.models.thinking.closing_ids
                at -= len(closing) - self.models.thinking.end(closing)
            if at >= len(script):
                break
            ids.append(script[at])
            if any(tuple(ids[-len(word) :]) == word for word in call.stop_words):
                break
            if call.stop_at_step and "\n\n" in self.models.generator.decode(ids):
                break
        return ids


PROBLEM = Problem("p", "Compute 1 + 1.")


def run(models, context, writer, node, *, whole=False, max_tokens=2000, budget=None, most=None):
    """What is written for a node, which is added to the context.

    Every request has the ids of the path and of what was written for the node so far.
    """
    sampling = Sampling(0.8, 1.0, max_tokens, thinking_budget=budget)
    parts = writing(context, Expand(node, 7, sampling, whole, most=most))
    asked, reply, path = [], None, context.generator_ids(node[:-1]).tolist()
    while True:
        try:
            call = parts.send(reply)
        except StopIteration as end:
            written = end.value
            break
        asked.append(call.input_ids.tolist())
        reply = writer.generate(call)
    path += [token for thought in written.thoughts for token in thought.token_ids]
    assert all(ids == path[: len(ids)] for ids in asked)
    for thought in written.thoughts:
        context.add(node, thought)
        node = (*node, 0)
    return written


def size(written):
    return sum(len(thought.token_ids) for thought in written.thoughts)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("thinking", "budget"), [({}, None), ({}, 14), ({"steps": "paragraphs", "step_tokens": 3}, 24)]
)
@pytest.mark.parametrize("thought", [f"1 + 1\n\nAdd 5 = 5\n\n1{CLOSES}", "1 + 1 = 2 " * 9])
def test_what_is_of_use_is_written_as_ever_and_of_the_rest_one_token_more(
    thinking_models, thinking, budget, thought, whole
):
    models = thinking_models(**thinking)
    answer = "\n\nAdd 5\n\nSo 5."

    def write(most):
        writer = Writer(models, thought, answer)
        context = Context.of(models, PROBLEM)
        return run(models, context, writer, (0,), whole=whole, budget=budget, most=most)

    free = write(None)
    closing = len(models.thinking.closing_ids)
    for most in range(1, size(free) + 3):
        limited = write(most)
        if size(free) <= most:
            assert limited == free
        else:
            assert most < size(limited) <= most + 1 + closing
            assert limited.tokens <= most + 1


words = st.lists(st.sampled_from(["1 + 1", " = 2", "\n\n", "\n", "Add 1", "5"]), max_size=12)


@settings(max_examples=amount(20, everything=300), deadline=None)
@given(thought=words.map("".join), steps=st.lists(st.integers(1, 99), max_size=4))
def test_steps_are_those_of_the_whole_chain_and_white_space_belongs_to_the_thinking(
    thinking_models, thought, steps
):
    models = thinking_models()
    answer = "\n\n" + "".join(f"Add {n}\n\n" for n in steps) + "So 5."
    whole_context, context = Context.of(models, PROBLEM), Context.of(models, PROBLEM)
    whole = run(models, whole_context, Writer(models, thought + CLOSES, answer), (0,), whole=True)
    writer, found, node = Writer(models, thought + CLOSES, answer), [], (0,)
    while not found or found[-1].stop is Stop.STEP:
        new = run(models, context, writer, node).thoughts
        found += new
        node = (*node, *(0,) * len(new))
    assert tuple(found) == whole.thoughts
    assert [each.thinking for each in found] == [True, *[False] * (len(steps) + 1)]
    assert found[0].stop is Stop.STEP
    assert "".join(each.text for each in found[1:]) == answer.lstrip("\n")
    assert not any(call.stop_at_step for call in writer.calls[:1])
    assert len({call.seed for call in writer.calls[:3]}) == 3
    first = context.verifier_ids((0, 0)).tolist()
    assert first == models.verifier.first(PROBLEM.question, found[1].text.strip()).tolist()
    assert context.can_be_scored((0, 0))
    assert not context.can_be_scored((0,))


@pytest.mark.parametrize("whole", [True, False])
def test_a_budget_closes_the_thinking_and_counts_the_closing_text(thinking_models, whole):
    models = thinking_models(budget_tokens=20)
    closing = models.thinking.closing_ids
    writer = Writer(models, "1 + 1 = " * 100, "So 5.")
    for budget, most in ((None, 20), (12, 12), (len(closing), len(closing))):
        context = Context.of(models, PROBLEM)
        written = run(models, context, writer, (0,), whole=whole, budget=budget)
        thinking, answer = written.thoughts
        assert len(thinking.token_ids) == most
        assert thinking.token_ids[-len(closing) :] == closing
        assert (thinking.stop, answer.text, answer.stop) == (Stop.STEP, "So 5.", Stop.END)
        assert written.tokens == most - len(closing) + len(answer.token_ids)


@pytest.mark.parametrize(
    ("thought", "max_tokens", "stop"),
    [("1 + 1", 2000, Stop.END), ("1 + 1 = " * 100, 30, Stop.LENGTH)],
)
@pytest.mark.parametrize("whole", [True, False])
def test_thinking_that_is_not_closed_is_an_unfinished_chain(
    thinking_models, thought, max_tokens, stop, whole
):
    models = thinking_models()
    context = Context.of(models, PROBLEM)
    writer = Writer(models, thought, "So 5.")
    (only,) = run(models, context, writer, (0,), whole=whole, max_tokens=max_tokens).thoughts
    assert (only.thinking, only.stop, only.goes_on) == (True, stop, False)
    assert not context.can_be_scored((0,))


@pytest.mark.parametrize("more", ["", "1", "1 1 1 1 1 1 1 1", "1 1 1 1 1 1 1 1 1 1 1 1 1 1"])
def test_paragraphs_are_steps_of_the_least_length_and_the_verifier_reads_them(
    thinking_models, more
):
    models = thinking_models(reads="all", steps="paragraphs", step_tokens=12)
    thought = "1 + 1 = 2\n\nAdd 1\n\n" * 6 + more
    writer = Writer(models, thought + CLOSES, "\n\nAdd 1\n\nSo 5.")
    context, found, node = Context.of(models, PROBLEM), [], (0,)
    while not found or found[-1].stop is Stop.STEP:
        new = run(models, context, writer, node).thoughts
        found += new
        node = (*node, *(0,) * len(new))
    thinking = [each for each in found if each.thinking]
    assert "".join(each.text for each in thinking).startswith(thought)
    assert all(len(each.token_ids) >= 12 for each in thinking[:-1])
    assert all(each.text.endswith("\n\n") for each in thinking)
    assert [each.text for each in found if not each.thinking] == ["Add 1\n\n", "So 5."]
    assert len(thinking) > 2
    assert context.can_be_scored((0,))
    assert context.verifier_ids((0,)).tolist() != context.verifier_ids((0, 0)).tolist()


def test_a_verifier_reads_the_last_tokens_of_the_thinking(thinking_models):
    models = thinking_models(reads=3)
    context = Context.of(models, PROBLEM)
    writer = Writer(models, "1 + 1 = 22" + CLOSES, "\n\nSo 5.")
    thinking, _ = run(models, context, writer, (0,)).thoughts
    last = models.generator.decode(thinking.token_ids[-3:]).strip()
    alone = models.verifier.first(PROBLEM.question, last)
    assert context.verifier_ids((0,)).tolist() == alone.tolist()


def test_what_an_engine_wrote_beyond_the_end_of_the_thinking_is_thrown_away(thinking_models):
    models = thinking_models(budget_tokens=50)

    class RunsOn(Writer):
        def generate(self, call):
            reply = super().generate(call)
            ends = models.thinking.end(reply) is not None
            return [*reply, *models.generator.encode("5 5 5")] if ends else reply

    written = run(
        models, Context.of(models, PROBLEM), RunsOn(models, "1" + CLOSES, "\n\nSo 5."), (0,)
    )
    assert [each.text for each in written.thoughts if not each.thinking] == ["So 5."]


def test_the_prompt_opens_the_thinking_once_unless_it_is_switched_off(tmp_path, tokenizer_folder):
    question = [{"role": "user", "content": "1?"}]
    for number, (prompt, kwargs, state) in enumerate(
        [
            (THINKS, {}, "none"),
            (OPENS, {}, "open"),
            (THINKS, {"enable_thinking": False}, "closed"),
            (THINKS, {"enable_thinking": ["no"]}, "none"),
        ]
    ):
        folder = thinking_folder(tmp_path / str(number), tokenizer_folder, prompt, added=True)
        tokenizer = Tokenizer(folder, kwargs)
        found = thinking_of(tokenizer, ThinkingSpec())
        if state == "closed":
            assert found is None
            continue
        text = found.prompt(tokenizer.chat(question, generation_prompt=True))
        assert text.count("<think>") == 1
        assert text.endswith("<think>")


@pytest.mark.parametrize(
    ("prompt", "kwargs", "spec", "named"),
    [
        (OPENS, {}, {"enabled": False}, "generator.thinking.enabled is false"),
        (OPENS, {}, {"opens": "[T]", "closes": "[/T]"}, "generator.thinking.opens"),
        (THINKS, {"enable_thinking": False}, {"budget_tokens": 9}, "budget_tokens"),
        ("{{ '<|assistant|>' }}", {}, {"budget_tokens": 9}, "budget_tokens"),
        (THINKS, {}, {"closing_text": "Enough."}, "closing_text"),
        (THINKS, {}, {"budget_tokens": 1}, "generator.thinking.budget_tokens is 1"),
    ],
)
def test_a_section_that_says_otherwise_than_the_template_is_refused(
    tmp_path, tokenizer_folder, prompt, kwargs, spec, named
):
    folder = thinking_folder(tmp_path / "c", tokenizer_folder, prompt, added=True)
    with pytest.raises(CheckpointError, match=named):
        thinking_of(Tokenizer(folder, kwargs), ThinkingSpec(**spec))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("no marks 5", "no marks 5"),
        ("<think>5</think>7", "7"),
        ("5</think>7", "7"),
        ("<think>a</think><think>c", None),
        ("The mark is <think>. So 5.", "The mark is <think>. So 5."),
        ("<|channel|>analysis<|message|>5" + FAMILIES[-1].closes + "7", "7"),
        ("analysis<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>7", "7"),
        ("[THINK]5", None),
    ],
)
def test_the_answer_of_a_text_stands_behind_its_thinking(text, answer):
    assert answer_part(text) == answer


def test_a_problem_may_switch_thinking_off_and_a_typo_is_refused(thinking_models):
    models = thinking_models()
    off = Problem("p", PROBLEM.question, chat_template_kwargs={"enable_thinking": False})
    context = Context.of(models, off)
    parts = writing(context, Expand((0,), 7, Sampling(0.8, 1.0, 100)))
    call = next(parts)
    assert not call.stop_words
    assert models.generator.spelled(call.input_ids.tolist()).endswith("</think>\n\n")
    with pytest.raises(StopIteration) as end:
        parts.send(models.generator.encode("So 5."))
    assert [thought.thinking for thought in end.value.value.thoughts] == [False]
    typo = Problem("p", PROBLEM.question, chat_template_kwargs={"enable_thinkin": False})
    with pytest.raises(CheckpointError, match="enable_thinkin") as refused:
        Context.of(models, typo)
    assert "enable_thinking" in refused.value.hint


@pytest.mark.parametrize("reads", ["none", "all"])
def test_a_chain_without_an_answer_is_not_scored(thinking_models, reads):
    models = thinking_models(reads=reads)
    context = Context.of(models, PROBLEM)
    cases = [("1 + 1", "So 5.", 2000), ("1 + 1 = " * 99, "", 9), ("1" + CLOSES, "\n\n", 2000)]
    for child, (thought, answer, most) in enumerate(cases):
        writer = Writer(models, thought, answer)
        thoughts = run(models, context, writer, (child,), max_tokens=most).thoughts
        assert not context.can_be_scored((child, *(0,) * (len(thoughts) - 1)))
    run(models, context, Writer(models, "1" + CLOSES, "\n\nSo 5."), (3,))
    assert context.can_be_scored((3, 0))
    steps = ("So 5.",) if reads == "none" else ("1" + CLOSES * (reads == "all"), "So 5.")
    said = context.score_call((3, 0)).steps
    assert said[-1] == steps[-1]
    assert len(said) == len(steps)


def test_a_budget_that_the_context_cannot_hold_is_a_chain_cut_off(thinking_models):
    models = thinking_models(budget_tokens=30)
    room = len(models.thinking.closing_ids)
    prompt = len(Context.of(models, PROBLEM).generator_ids(()))
    for budget in (room, 30):
        small = models.with_context(prompt + room)
        writer = Writer(small, "1 + 1 = " * 100, "So 5.")
        (only,) = run(small, Context.of(small, PROBLEM), writer, (0,), budget=budget).thoughts
        assert (only.thinking, only.stop) == (True, Stop.LENGTH)


def test_a_system_prompt_may_switch_thinking_off(tmp_path, tokenizer_folder, tiny_deployment):
    switched = THINKS.replace("enable_thinking is defined and not enable_thinking", "messages[1]")
    folder = thinking_folder(tmp_path / "c", tokenizer_folder, switched, added=True)
    generator = tiny_deployment.generator.model_copy(update={"checkpoint": folder})
    loaded = Models.load(tiny_deployment.model_copy(update={"generator": generator}))
    off = Problem("p", PROBLEM.question, history=(Turn("system", "/no_think"),))
    for problem, thinks in ((PROBLEM, True), (off, False)):
        context = Context.of(loaded, problem)
        assert (context.models.thinking is not None) == thinks
        assert (context.thought_tokens(()) is not None) == thinks
        assert (
            loaded.generator.spelled(context.generator_ids(()).tolist()).endswith("<think>")
            == thinks
        )
