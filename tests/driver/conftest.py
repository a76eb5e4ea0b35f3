"""What the scripted engines write."""

import pytest

from tts.build.tokenizer import Tokenizer

WORDS = ("1", "22", "a", " + ", "")


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer(tokenizer_folder)


@pytest.fixture(scope="module")
def words(tokenizer):
    return [tokenizer.encode(word) for word in WORDS], tokenizer.encode("\n\n")


@pytest.fixture(scope="module")
def agreeing(tokenizer):
    """All chains give one answer."""
    return [tokenizer.encode(r"\boxed{5}")], tokenizer.encode("\n\n")
