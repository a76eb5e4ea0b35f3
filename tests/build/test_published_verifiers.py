"""Families of published verifiers: the ids of their own code, and its scores on random weights."""

import json

import numpy as np
import pytest
from tests.build.conftest import SHAPE, pair
from tests.build.openvino_build import logits
from tests.build.test_dialogue import gpt

from tts.build.checkpoint import open_checkpoint
from tts.build.inputs import EngineInputs
from tts.build.openvino.target import score_columns
from tts.build.openvino.transformer import Transformer, save_model
from tts.build.spec import Deployment
from tts.build.verifiers.dialogue import what_is_scored
from tts.prompting import Models
from tts.prompting.score_calls import score_calls

QUESTION = "What is (3 - 4) * 5?"
STEPS = ["So 3 - 4 = -1.", "Step 2: we have\n-1 * 5 = -5", "So the answer is: $-5$."]
SYSTEM = r"Please reason step by step, and put your final answer within \boxed{}."
QWEN = (  # as Qwen2.5-Math's, with a system message where none is given
    "{% if messages[0].role != 'system' %}<|im_start|>system\n" + SYSTEM + ""
    "<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def of_the_whole(tokenizer, steps):
    """Skywork-Reward's card: the chat template's text, without its beginning-of-sequence token."""
    chat = [("user", QUESTION), ("assistant", "\n\n".join(steps))]
    messages = [{"role": role, "content": content} for role, content in chat]
    return tokenizer(tokenizer.apply_chat_template(messages, tokenize=False)).input_ids


def pro_rag(tokenizer, steps):
    """build_full_prompt of prorag/prm/train.py, without its instructions to the model."""
    head = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n<think>\n</think>\n"
    return tokenizer(head + "\n\n".join(steps) + tokenizer.eos_token).input_ids


def universal(tokenizer, steps):
    """The card of infly/Universal-PRM-7B, without a reference answer."""
    asked = (
        QUESTION + "\n\n###\n\nThe reference answer is: "
        "There is no reference answer for this question."
    )
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": asked},
    ]
    chat = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    said = tokenizer("\n\n".join(steps) + "\n\n").input_ids
    return [*tokenizer(chat).input_ids, *said, tokenizer.eos_token_id]


def of_the_trainer(tokenizer, steps):
    """tokenize_row of TRL's PRMTrainer, and PURE's process_bench.py: everything by itself."""
    ids = tokenizer(QUESTION, add_special_tokens=False).input_ids
    for step in steps:
        ids += tokenizer(step, add_special_tokens=False).input_ids
        ids += tokenizer.encode("\n", add_special_tokens=False)
    return ids


def with_markers(tokenizer, steps):
    """The cards of Qwen2.5-Math-PRM and ReasonFlux-PRM-7B, up to the last marker."""
    said = "".join(f"{step}<extra_0>" for step in steps)
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": said}]
    ids = tokenizer(tokenizer.apply_chat_template(messages, tokenize=False)).input_ids
    marker = tokenizer.convert_tokens_to_ids("<extra_0>")
    return ids[: len(ids) - ids[::-1].index(marker)]


def versa(tokenizer, steps):
    """tokenize_one_question of VersaPRM's model_train/prm_datasets.py."""
    ids = tokenizer(f"{QUESTION} \n\n").input_ids
    for step in steps:
        ids += tokenizer(f"{step} \n\n\n\n", add_special_tokens=False).input_ids
    return ids


ASSISTANT = "<|im_end|>\n<|im_start|>assistant\n"
FAMILIES = {
    "Skywork-Reward": ("LlamaForSequenceClassification", 1, of_the_whole, {"format": "chat"}),
    "a classifier of answers": (
        "MistralForSequenceClassification",
        2,
        of_the_whole,
        {"format": "chat"},
    ),
    "ProRAG_PRM": (
        "Qwen3ForSequenceClassification",
        1,
        pro_rag,
        {
            "head": "<|im_start|>user\n{question}" + ASSISTANT + "<think>\n</think>\n",
            "answer": "<|im_end|>",
        },
    ),
    "Universal-PRM": (
        "Qwen2ForRewardModel",
        1,
        universal,
        {
            "head": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
            "{question}\n\n###\n\nThe reference answer is: There is no reference answer for this "
            "question." + ASSISTANT,
            "answer": "\n\n<|im_end|>",
        },
    ),
    "PURE-PRM": (
        "Qwen2ForTokenClassification",
        2,
        of_the_trainer,
        {"head": "{question}", "answer": "\n", "turn": "", "apart": True},
    ),
    "ReasonFlux-PRM-7B": (
        "Qwen2ForProcessRewardModel",
        2,
        with_markers,
        {"format": "qwen2.5-math-prm"},
    ),
    "markers on Qwen3": (
        "Qwen3ForProcessRewardModel",
        2,
        with_markers,
        {"format": "qwen2.5-math-prm"},
    ),
    "VersaPRM": (
        "LlamaForCausalLM",
        0,
        versa,
        {"head": "{question} \n\n", "answer": " \n\n\n\n", "turn": ""},
    ),
}


@pytest.fixture
def saved(tmp_path, torch, make_model):
    """Save a random checkpoint with a tokenizer; its folder, and the scores of its own model."""
    from tests.build.headed import HeadedModel

    def save(architecture, labels):
        folder, tokenizer = tmp_path / "verifier", gpt()
        shape = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 1024}
        if architecture.endswith("RewardModel"):
            model = HeadedModel(architecture, SHAPE | shape)
            model.save(folder)
            score = model.scores
        else:
            more = {"num_labels": labels} if labels else {}
            more |= {"sliding_window": None} if "Mistral" in architecture else {}
            model = make_model(architecture, **shape, **more)
            model.save_pretrained(folder)
            columns = [tokenizer.token_to_id("-"), tokenizer.token_to_id("+")]

            def score(ids):
                with torch.no_grad():
                    found = model(ids).logits
                found = found.reshape(1, -1, found.shape[-1])[:, -1:]  # one row of a sequence
                if labels == 1:
                    return found.sigmoid()[..., 0]
                return (found if labels else found[..., columns]).softmax(dim=-1)[..., 1]

        tokenizer.save(str(folder / "tokenizer.json"))
        config = {"eos_token": "<|im_end|>", "chat_template": QWEN}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder, lambda ids: score(torch.tensor([ids]))[0, -1].item()

    return save


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_scores_are_those_of_the_published_code(tmp_path, saved, torch, family):
    from transformers import PreTrainedTokenizerFast

    architecture, labels, published, section = FAMILIES[family]
    folder, score = saved(architecture, labels)
    theirs = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|im_end|>", chat_template=QWEN
    )
    whole = {"format": "custom", "template": section} if "head" in section else section
    asked = pair("openvino", folder, max_seq_len=1024, max_num_tokens=1024)
    data = asked.model_dump(mode="json", exclude_unset=True)
    data["verifier"] |= whole
    deployment = Deployment.model_validate(data)

    inputs = EngineInputs(deployment, "verifier")
    save_model(Transformer(inputs.checkpoint, "fp32", score_columns(inputs)).model(), tmp_path)
    calls = score_calls(Models.load(deployment), QUESTION, STEPS)
    found = []
    for length, call in enumerate(calls, start=1):
        ids = published(theirs, STEPS[:length])
        assert call.input_ids.tolist() == ids
        right, wrong = logits(tmp_path, np.array([ids], np.int64))[0, -1]
        found.append(1 / (1 + np.exp(wrong - right)))
        assert found[-1] == pytest.approx(score(ids), abs=1e-4)
    assert np.ptp(found) > 1e-3, "constant scores would agree with anything"
    answers = {"Skywork-Reward", "a classifier of answers", "ProRAG_PRM", "Universal-PRM"}
    kind = what_is_scored(folder, deployment.verifier)
    assert kind == ("answers" if family in answers else "steps")
    assert open_checkpoint(folder).config.architecture.endswith("ForCausalLM")
