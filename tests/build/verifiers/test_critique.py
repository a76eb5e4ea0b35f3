"""Verifiers that write: their prompts beside the published ones, and what their critiques say."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tts.build.errors import CheckpointError, ConfigError
from tts.build.spec import VerifierSpec
from tts.build.spec.critique import CritiqueSpec, VerdictSpec
from tts.build.spec.critique_presets import PRESETS
from tts.build.tokenizer import Tokenizer
from tts.build.verifiers.critique import critic
from tts.build.verifiers.verdict import reader

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
QUESTION = "How many legs have 3 cats? {step}"
STEPS = ("A cat has 4 legs.", "So 3 * 4 = 12.", "The answer is \\boxed{12}.")


@pytest.fixture(scope="module")
def load(tokenizer_folder, tmp_path_factory):
    """A tokenizer with a chat template, whose labels are tokens of their own."""
    made = {}

    def of(template):
        if template not in made:
            folder = tmp_path_factory.mktemp("writer")
            data = json.loads((tokenizer_folder / "tokenizer.json").read_text())
            known = {token["id"] for token in data["added_tokens"]}
            words = [" Yes", " No", "Yes", "No", "</think>", "<|im_end|>"]
            first = max([*known, *data["model"]["vocab"].values()]) + 1
            for at, word in enumerate(words, first):
                flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
                special = word == "<|im_end|>"
                data["added_tokens"].append(
                    {"id": at, "content": word, "special": special, **flags}
                )
            (folder / "tokenizer.json").write_text(json.dumps(data))
            config = {"eos_token": "<|im_end|>", "chat_template": template}
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            made[template] = Tokenizer(folder)
        return made[template]

    return of


def spec(prompt=None, **critique):
    """The part of a verifier's section that says how it is asked."""
    return VerifierSpec.model_construct(
        prompt=prompt, prompt_file=None, critique=CritiqueSpec.model_validate(critique)
    )


def turn(role, content):
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def thinkprm(question, steps):
    """utils/helper.py and ThinkPRM.process_example of mukhal/ThinkPRM."""
    template = (
        "You are given a math problem and a proposed step-by-step solution:\n\n[Math Problem]\n\n"
        "{problem}\n\n[Solution]\n\n{solution}\n\n{_instruction}"
    )
    instruction = (
        "Review and critique each step in the proposed solution to determine whether each step is "
        "correct. If the solution is incomplete, only verify the provided steps."
    )
    solution = "".join(f"Step {at}: {step}\n" for at, step in enumerate(steps, 1)).strip()
    content = template.replace("{_instruction}", instruction).replace("{solution}", solution)
    return turn("user", content.replace("{problem}", question)) + "<|im_start|>assistant\n"


def genprm(question, steps):
    """build_prompt and GenPRM.inference of RyanLiu112/GenPRM, with short replies before the last.

    The end of the last turn is cut off, as they do.
    """
    system = (
        "You are a math teacher. Your task is to review and critique the paragraphs in solution "
        "step by step."
    )
    first, *later = [f"Question: {question}\n\n{steps[0]}", *steps[1:]]
    text = turn("system", system) + turn("user", first)
    for step in later:
        text += turn("assistant", "<output>\n**Judgement**: $\\boxed{Yes}$\n</output>\n")
        text += turn("user", step)
    start = "<analyze>\nLet's analyze the Paragraph {cur_step} step by step: "
    return text.removesuffix("<|im_end|>\n") + start.format(cur_step=len(steps))


R_PRM_BLOB = "a1f983e07a773cf78cadf0158a75eda1db2f278d"
"""Git's name of src/prompts/GenPRM/GenPRM-evaluate-new-for-train3.txt in NJUNLP/R-PRM."""


def r_prm(question, steps):
    """The chat of GenPRM-evaluate-new3-qwen.txt of NJUNLP/R-PRM, filled by evaluate-PRM-CoT.py."""
    template = PRESETS["r-prm"].user
    for place in ("question", "steps", "step"):
        template = template.replace(f"{{{place}}}", "{}")
    data = template.encode()
    assert hashlib.sha1(b"blob %d\0%s" % (len(data), data)).hexdigest() == R_PRM_BLOB
    *before, now = [f"Step {at}: {step}" for at, step in enumerate(steps, 1)]
    previous = "\n".join(before) or (
        "Since the Now Step is the first step, there are no Previous Steps."
    )
    asked = turn("user", template.format(question, previous, now))
    return turn("system", "You are a helpful assistant.") + asked + "<|im_start|>assistant\n"


@pytest.mark.parametrize("count", [1, 3])
def test_presets_ask_as_the_published_code_does(load, count):
    tokenizer, steps = load(CHATML), STEPS[:count]
    for name, published in {"thinkprm": thinkprm, "genprm": genprm, "r-prm": r_prm}.items():
        asked = critic(tokenizer, spec(preset=name))
        text = published(QUESTION, steps)
        assert asked.text(QUESTION, steps) == text, name
        ids = asked.prompt(QUESTION, steps)
        assert (str(ids.dtype), ids.tolist()) == ("int32", tokenizer.encode(text))
