"""A report tells what is needed to find a fault, and neither secrets nor prompts."""

import json
import platform
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.spec import load_deployment
from tts.checks.first_run.excerpts import MAX_COLUMNS, MAX_LINES, scrubbed, telling_lines
from tts.serving.contract import start_log_forms

DEPLOYMENT = load_deployment("llama-1b-prm-8b-h100-bf16")
PROMPT = DEPLOYMENT.generator.system_prompt or ""
letters = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=12)
keys = st.sampled_from(
    ["HF_TOKEN=", "token: ", "password=", "api_key: ", "API-KEY=", "secret = ", '"token": "']
)
forms = st.sampled_from(["hf_", "nvapi-", "sk-", "ghp_", "github_pat_"])


@given(st.text(max_size=50), forms, letters, st.text(max_size=50))
def test_no_token_gets_into_a_report(before, form, secret, after):
    text = f"{before} {form}{secret} {after}"
    assert form + secret not in scrubbed(text, DEPLOYMENT)


@given(keys, letters.filter(lambda text: not text.isdecimal()))
def test_nothing_behind_the_name_of_a_secret_gets_into_a_report(key, secret):
    assert secret not in scrubbed(f"failed: {key}{secret} and so on", DEPLOYMENT)


@given(letters, letters)
def test_no_password_of_an_address_gets_into_a_report(user, password):
    text = scrubbed(f"cannot reach https://{user}:{password}@nvcr.io/v2/", DEPLOYMENT)
    assert password not in text
    assert "nvcr.io/v2/" in text


def test_headers_of_requests_are_removed():
    for text in ("Authorization: Bearer abcdef123", "authorization: Basic Zm9v", "bearer abc.def"):
        assert not re.search(r"abcdef123|Zm9v|abc\.def", scrubbed(text, DEPLOYMENT))


@pytest.mark.parametrize(
    "text",
    [
        "kv_cache.tokens: 370816",
        "{'block_size': 32, 'tokens': 370816, 'reuse': True}",
        "max_num_tokens: 4096",
        *(form.example for form in start_log_forms().values()),
        "| KV pool of the generator | 370,816 tokens |",
    ],
)
def test_numbers_of_tokens_are_no_secrets(text):
    assert scrubbed(text, DEPLOYMENT) == text


@pytest.mark.parametrize("prompt", [PROMPT, 'Say "yes", not \\no, to é.\nThen end.'])
@pytest.mark.parametrize("form", [str, repr, json.dumps])
def test_neither_a_prompt_nor_a_line_of_it_gets_into_a_report(prompt, form):
    generator = DEPLOYMENT.generator.model_copy(update={"system_prompt": prompt})
    deployment = DEPLOYMENT.model_copy(update={"generator": generator})
    for part in (prompt, *(line for line in prompt.splitlines() if len(line) > 7)):
        shown = scrubbed(f"error: cannot render {form(part)}", deployment)
        assert re.fullmatch(r"""error: cannot render ['"]?\s*\[prompt\]\s*['"]?""", shown)


def test_home_and_machine_are_not_named():
    text = f"{Path.home()}/engines on {platform.node()}"
    shown = scrubbed(text, DEPLOYMENT)
    assert str(Path.home()) not in shown
    assert len(platform.node()) < 4 or platform.node() not in shown


@given(st.lists(st.text(max_size=400), max_size=3 * MAX_LINES))
def test_an_excerpt_is_bounded(lines):
    told = telling_lines([f"error {line}" for line in lines])
    assert len(told) <= MAX_LINES + 1
    assert all(len(line) <= MAX_COLUMNS for line in told)


def test_only_telling_lines_are_taken():
    lines = [
        "[TensorRT-LLM][INFO] Engine version 1.2.1 found",
        start_log_forms()["pool"].example,
        "[TensorRT-LLM][WARNING] something doubtful",
        "E0101 00:00:00.000000 1 model.cc:1] no such thing",
        "# tts: MPI did not start",
        "Solve the following math problem",
    ]
    assert telling_lines(lines) == lines[1:5]
