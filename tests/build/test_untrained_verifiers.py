"""Verifiers that were never trained to judge: asked in a prompt, or by the likelihood they give."""

import json

import numpy as np
import pytest
import tokenizers
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tokenizers import decoders, models, pre_tokenizers

from tts.base import paths
from tts.base.errors import CheckpointError, ConfigError
from tts.build.spec import RemoteVerifier, VerifierSpec, load_deployment
from tts.build.tokenizer import Tokenizer
from tts.build.verifiers.dialogue import column_tokens, verifier_dialogue
from tts.build.verifiers.untrained import STEP_END, last_step

CHECKPOINTS = paths.deployments_dir().parent / "checkpoints"
PROMPT = "Example: 1 + 1 = 3? No.\n\nProblem: {question}\n\nSolution:\n{steps}\n\n{step}\n\nRight?"
SPELLED = "{question} {steps}<|eot_id|><|assistant|>+<|eot_id|><|user|>{step}"
"""The demo verifier's own dialogue, written as a prompt."""

lines = st.lists(st.sampled_from([*"37+-=. ", "## Step", "So", " = ", "\\boxed{3}"]), min_size=1)
texts = lines.map("".join).map(str.strip).filter(bool)
paths_of_steps = st.lists(texts, min_size=1, max_size=5)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(CHECKPOINTS / "demo-verifier")


def fields(**changes):
    """A verifier's part of a deployment."""
    engine = {
        "checkpoint": str(CHECKPOINTS / "demo-verifier"),
        "precision": "fp32",
        "max_batch_size": 8,
        "max_num_tokens": 256,
        "max_seq_len": 320,
        "kv_cache": {"tokens": 4096},
        "in_flight_tokens": 512,
    }
    return engine | changes


def spec(**changes):
    return VerifierSpec.model_validate(fields(**changes))


def asked(tokenizer, prompt=PROMPT):
    labels = ["+", "-"]
    return verifier_dialogue(tokenizer, spec(format="prompted", prompt=prompt, labels=labels))


def by_url(checkpoint=CHECKPOINTS / "demo-verifier", **changes):
    """The part of a verifier that a server runs: format likelihood needs one."""
    lengths = {"max_seq_len": 320, "in_flight_tokens": 512}
    server = {"url": "http://localhost:8000", "tokenizer": str(checkpoint)}
    return RemoteVerifier.model_validate(lengths | server | changes)


def continued(tokenizer, **changes):
    verifier = by_url(tokenizer.checkpoint, format="likelihood", **changes)
    return verifier_dialogue(tokenizer, verifier)


def speaking(folder, template):
    """The demo verifier with another chat template, or none."""
    for name in ("tokenizer.json", "config.json"):
        if not (folder / name).exists():
            (folder / name).symlink_to(CHECKPOINTS / "demo-verifier" / name)
    config = {"chat_template": template} if template else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer(folder)


@settings(max_examples=40)
@given(question=texts, steps=paths_of_steps)
def test_a_longer_path_extends_all_of_a_prompt_but_what_asks_about_the_last_step(
    tokenizer, question, steps
):
    form = asked(tokenizer)
    end = len(form.answer_ids)
    ids = form.first(question, steps[0])
    for count, step in enumerate(steps[1:], 2):
        longer = form.extend(ids, step)
        path = ids[:-end]
        assert longer[: len(path)].tolist() == path.tolist()
        assert longer[-end:].tolist() == ids[-end:].tolist() == list(form.answer_ids)
        text = "\n\n".join(steps[:count])
        assert f"Solution:\n{text}\n\nRight?" in form.decode(longer)
        ids = longer
    assert form.extend(ids, "") is ids, "a step without text is scored as its parent"
    assert len(form.add_turn(ids, "")) > len(ids)


@settings(max_examples=40)
@given(question=texts, steps=paths_of_steps)
def test_a_trained_dialogue_written_as_a_prompt_is_that_dialogue(tokenizer, question, steps):
    trained, form = verifier_dialogue(tokenizer, spec()), asked(tokenizer, SPELLED)
    theirs, ours = trained.first(question, steps[0]), form.first(question, steps[0])
    for step in steps[1:]:
        theirs, ours = trained.extend(theirs, step), form.extend(ours, step)
    assert ours.tolist() == theirs.tolist()


def test_a_prompt_is_one_turn_of_the_chat(tokenizer):
    ids = asked(tokenizer).first("What is 1 + 1?", "1 + 1 = 2")
    content = PROMPT.replace("{steps}\n\n{step}", "1 + 1 = 2").replace(
        "{question}", "What is 1 + 1?"
    )
    chat = tokenizer.chat([{"role": "user", "content": content}], generation_prompt=True)
    assert ids.tolist() == tokenizer.encode(chat)


def test_a_prompt_is_answered_yes_or_no_unless_the_deployment_says_otherwise():
    assert spec(format="prompted", prompt=PROMPT).labels == {"Yes": 1, "No": 0}
    grades = spec(format="graded", prompt=PROMPT).labels
    assert list(grades) == list("ABCDEFGHIJKLMNOPQRST")
    assert sum(grades.values()) == pytest.approx(10)
    assert spec().labels == {"+": 1, "-": 0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "prompted"}, "so prompt_file is required"),
        ({"format": "rlhflow", "prompt": PROMPT}, "only format prompted, graded, critique has one"),
        ({"format": "custom", "prompt_file": "x"}, "template is required"),
        ({"format": "prompted", "prompt": "{question} {step}"}, r"\{steps\} is not where"),
        ({"format": "prompted", "prompt": "{question} {step} {steps}"}, r"\{step\} is not where"),
        ({"format": "prompted", "prompt": PROMPT + "{step}"}, r"\{step\} comes twice"),
        ({"format": "graded", "prompt": PROMPT, "criteria": ["x"]}, r"\{criterion\} is not where"),
        ({"format": "graded", "prompt": PROMPT + "{criterion}"}, r"must not hold \{criterion\}"),
        ({"format": "critique"}, "in_flight_requests is required with format critique"),
        (
            {"format": "critique", "in_flight_requests": 2, "in_flight_tokens": None}
            | {"critique": {"samples": 3}},
            "must let the critiques of one score through",
        ),
        ({"in_flight_requests": 8}, "in place of in_flight_requests"),
        ({"format": "rlhflow", "system_prompt": "x"}, "only format likelihood has one"),
        ({"format": "likelihood"}, "serve the model with vLLM or SGLang, and give verifier.url"),
    ],
)
def test_fields_that_do_not_go_with_the_format_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        spec(**changes)


def deployment_file(folder, **verifier):
    generator = fields(checkpoint=str(CHECKPOINTS / "demo-generator"), in_flight_requests=8)
    del generator["in_flight_tokens"]
    data = {
        "name": "asked",
        "target": "openvino",
        "generator": generator,
        "verifier": fields(**verifier),
    }
    file = folder / "asked.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


def test_a_prompt_file_is_read_beside_the_deployment(tmp_path):
    (tmp_path / "judge.txt").write_text(f"\n{PROMPT}\n\n")
    file = deployment_file(tmp_path, format="prompted", prompt_file="judge.txt")
    verifier = load_deployment(file).verifier
    assert verifier.prompt == PROMPT
    assert verifier.prompt_file is None, "a deployment that was loaded needs no file any more"


def test_a_prompt_file_that_cannot_be_used_is_named(tmp_path):
    file = deployment_file(tmp_path, format="prompted", prompt_file="judge.txt")
    with pytest.raises(ConfigError, match=r"prompt_file: .*judge.txt: No such file"):
        load_deployment(file)
    (tmp_path / "judge.txt").write_text("Is {step} right?")
    with pytest.raises(ConfigError, match=r"judge.txt: .* must hold .*\{question\} is not where"):
        load_deployment(file)
    file = deployment_file(tmp_path, format="prompted", prompt_file="judge.txt", prompt=PROMPT)
    with pytest.raises(ConfigError, match="are both given"):
        load_deployment(file)


def test_answers_without_quotes_are_explained(tmp_path):
    file = deployment_file(tmp_path, format="prompted", prompt=PROMPT, labels=[True, "No"])
    with pytest.raises(ConfigError, match=r"labels.* = True: .* put it in quotes"):
        load_deployment(file)


def test_a_deployment_whose_prompt_file_was_not_read_is_refused(tokenizer):
    with pytest.raises(ConfigError, match="has not been read"):
        verifier_dialogue(tokenizer, spec(format="prompted", prompt_file="judge.txt"))


@pytest.mark.parametrize("form", ["prompted", "likelihood"])
@pytest.mark.parametrize(
    ("template", "problem"),
    [
        (None, "no chat template. Verifier format"),
        ("{{ messages[-1]['content'] | upper }}", "verbatim"),
    ],
)
def test_checkpoints_that_cannot_be_asked_are_refused(tmp_path, form, template, problem):
    prompt = {"prompt": PROMPT, "labels": ["+", "-"]}
    changes = {"format": form} | (prompt if form == "prompted" else {})
    with pytest.raises(CheckpointError, match=problem):
        verifier_dialogue(speaking(tmp_path, template), by_url(tmp_path, **changes))


@pytest.mark.parametrize("form", ["prompted", "likelihood"])
def test_a_head_of_its_own_is_neither_asked_nor_continued(form):
    folder = CHECKPOINTS / "demo-value"
    changes = {"prompt": PROMPT} if form == "prompted" else {}
    headed = by_url(folder, format=form, **changes)
    with pytest.raises(CheckpointError, match=f"format is '{form}', but .* judges with a value"):
        verifier_dialogue(Tokenizer(folder), headed)


@settings(max_examples=40)
@given(question=texts, steps=paths_of_steps)
def test_the_last_step_of_each_part_of_a_path_is_found_again(tokenizer, question, steps):
    form = continued(tokenizer)
    chat = tokenizer.chat([{"role": "user", "content": question}], generation_prompt=True)
    ids = form.first(question, "")
    assert ids.dtype == np.int32
    assert last_step(ids, form.vocab_size)[1].tolist() == []
    assert ids.tolist() == tokenizer.encode(chat)
    end = len(ids)
    for step in steps:
        longer = form.extend(ids, step)
        assert longer[: len(ids)].tolist() == ids.tolist()
        assert form.extend(longer, "") is longer
        ids = longer
        tokens, places = last_step(ids, form.vocab_size)
        assert places[0] >= end
        assert places.tolist() == list(range(places[0], places[-1] + 1))
        assert form.decode(tokens).endswith(step)
        assert step.startswith(form.decode(tokens[places]).rstrip("\n"))
        assert form.decode(tokens[end : places[0]]) in ("", STEP_END[1:], STEP_END)
        end = places[-1] + 1


def test_the_end_of_a_step_counts_only_where_there_is_nothing_else(tokenizer):
    form = continued(tokenizer)
    ids = form.first("1 + 1?", "1 + 1 = 2")
    assert ids[-1] // form.vocab_size == 1
    empty = form.add_turn(ids, "")
    assert (empty[len(ids) :] // form.vocab_size).tolist() == [0, 2]


LETTERS_AND_SPACE = r" ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
STOPS_WITH_LINES = r" ?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"


@pytest.mark.parametrize(
    ("pattern", "merges", "between"),
    [
        # as in SmolLM2: one token before a digit and at the end, two before a letter
        (LETTERS_AND_SPACE, [("Ċ", "Ċ")], [1, 1, 2, 1, 1]),
        # as in Llama 3: one together with the full stop
        (STOPS_WITH_LINES, [("Ċ", "Ċ"), (".", "ĊĊ")], [2, 2, 2]),
    ],
)
def test_the_ids_between_steps_are_those_of_the_running_text(tmp_path, pattern, merges, between):
    known = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    written = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(known)}, merges))
    written.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    written.decoder = decoders.ByteLevel()
    written.save(str(tmp_path / "tokenizer.json"))
    tokenizer = speaking(tmp_path, "{{ messages[0].content }}: ")
    form = continued(tokenizer)
    steps = ("We add.", "Then 7 of it.", "42 it is.", "So 42")
    ids = form.first("1 + 1?", steps[0])
    for step in steps[1:]:
        ids = form.extend(ids, step)
    tokens = (ids % form.vocab_size).tolist()
    answer = tokenizer.encode(STEP_END.join(steps))
    assert tokens[-len(answer) :] == answer
    assert [n for each in tokens if (n := form.decode(np.asarray([each])).count("\n"))] == between


def test_a_system_prompt_comes_before_the_question(tokenizer, tmp_path):
    chat = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    form = continued(speaking(tmp_path, chat), system_prompt="Be brief.")
    ids = form.first("1 + 1?", "")
    assert ids.tolist() == tokenizer.encode("system: Be brief.\nuser: 1 + 1?\n")
    with pytest.raises(CheckpointError, match="user and assistant only") as refused:
        continued(tokenizer, system_prompt="Be brief.")
    assert "remove verifier.system_prompt" in str(refused.value.hint)


def test_columns_of_a_likelihood_stand_for_no_tokens(tokenizer):
    assert column_tokens(tokenizer, by_url(format="likelihood")) == (0, 1)
    labels = ["+", "-"]
    judge = spec(format="prompted", prompt=PROMPT, labels=labels)
    assert column_tokens(tokenizer, judge) == column_tokens(tokenizer, spec())


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("<think>", "another model"),
        ("{% if enable_thinking %}{% endif %}{# <think> #}", "enable_thinking"),
    ],
)
def test_a_template_that_thinks_before_it_answers_is_refused(tmp_path, written, hint):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((CHECKPOINTS / "demo-verifier" / name).read_bytes())
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text())
    config["chat_template"] = config["chat_template"] + written
    file.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="think before it answers") as refused:
        asked(Tokenizer(tmp_path))
    assert hint in refused.value.hint
    if "enable_thinking" in written:
        config["chat_template"] += "{{ '<think></think>' if enable_thinking is false }}"
        file.write_text(json.dumps(config))
        assert asked(Tokenizer(tmp_path, {"enable_thinking": False})).answer.endswith("</think>")
