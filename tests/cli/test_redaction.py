"""No secret of a command line is kept, by its form or by what stands before it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.cli.command import without_secrets

letters = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=12)
keys = st.sampled_from(
    ["HF_TOKEN=", "token: ", "password=", "api_key: ", "API-KEY=", "secret = ", '"token": "']
)
forms = st.sampled_from(["hf_", "nvapi-", "sk-", "ghp_", "github_pat_"])


@given(st.text(max_size=50), forms, letters, st.text(max_size=50))
def test_no_token_is_kept(before, form, secret, after):
    assert form + secret not in without_secrets(f"{before} {form}{secret} {after}")


@given(keys, letters.filter(lambda text: not text.isdecimal()))
def test_nothing_behind_the_name_of_a_secret_is_kept(key, secret):
    assert secret not in without_secrets(f"failed: {key}{secret} and so on")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("https://me:PASS@nvcr.io/v2/", "https://[removed]@nvcr.io/v2/"),
        ("Authorization: Bearer PASS", "Authorization: [removed]"),
        ("bearer abc.def", "bearer [removed]"),
        ("max_num_tokens: 4096 'tokens': 370816", "max_num_tokens: 4096 'tokens': 370816"),
    ],
)
def test_addresses_headers_and_numbers_of_tokens(text, kept):
    assert without_secrets(text) == kept
