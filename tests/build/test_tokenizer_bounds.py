"""What a hostile tokenizer.json may ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from tts.build import tokenizer as tokenizer_module
from tts.build.errors import CheckpointError
from tts.build.input_files import Unreadable
from tts.build.tokenizer_worker import repeats_a_repetition, require_bounded

REAL = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+",
    "deepseek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
    r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "digits by three": r"\p{Nd}{1,3}(?=(?:\p{Nd}{3})*(?:\P{Nd}|$))",
    "spaces": r" {2,}",
}
HOSTILE = [r"(a+)+$", r"(?:\s*\w*)*!", r"((a|b)*c)+", r"(a{2,})*", r"(\w{1,50}x)+?",
           r"(?<x>a\g<x>)", r"(?:[ab]+){1000}", r"(?>a+?)++", r"((((a*))))*"]  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_patterns_of_well_known_tokenizers_are_bounded(name):
    assert not repeats_a_repetition(REAL[name])


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_repetition_of_a_repetition_is_found(pattern):
    assert repeats_a_repetition(pattern)


ATOMS = st.sampled_from(["a", r"\p{L}", r"[()*+\]]", r"[^a[b]]", r"\(", r"\*", ".", r"\x{1F600}"])
SIGNS = st.sampled_from(["", "", "?", "{3}", "{1,3}", "*", "+", "{2,}", "*?", "++", "{0,99}"])


@st.composite
def patterns(draw, depth=3):
    """A pattern, whether it holds a repetition, and whether it repeats one."""
    text, holds, repeats = "", False, False
    for _ in range(draw(st.integers(1, 3))):
        inner = inner_repeats = False
        if depth and draw(st.booleans()):
            item, inner, inner_repeats = draw(patterns(depth=depth - 1))
            item = f"({draw(st.sampled_from(['', '?:', '?=', '?i:']))}{item})"
        else:
            item = draw(ATOMS)
        sign = draw(SIGNS)
        many = sign not in ("", "?", "{3}", "{1,3}")
        repeats |= inner_repeats or (many and inner)
        holds |= inner or many
        text += draw(st.sampled_from(["", "|"])) + item + sign
    return text, holds, repeats


@given(patterns())
def test_a_pattern_is_refused_exactly_if_it_repeats_a_repetition(pattern):
    text, _, repeats = pattern
    assert repeats_a_repetition(text) == repeats


@given(st.text(alphabet="(){}[]*+?|\\pgx<,>0123a"))
def test_no_text_is_too_odd_to_be_judged(text):
    assert repeats_a_repetition(text) in (True, False)


def with_parts(folder, **parts):
    """A checkpoint of a byte-level tokenizer with some of its parts replaced."""
    model = models.BPE({"a": 0, "b": 1}, [])
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_pattern_without_bounds_is_refused_before_it_meets_a_text(tmp_path):
    split = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    checkpoint = with_parts(tmp_path, pre_tokenizer=pre_tokenizers.Sequence([split]))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json.*repeats what repeats already"):
        tokenizer_module.Tokenizer(checkpoint)


def test_replacements_that_double_a_text_again_and_again_are_refused(tmp_path):
    doubling = normalizers.Sequence([normalizers.Replace("a", "aa")] * 40)
    checkpoint = with_parts(tmp_path, normalizer=doubling)
    with pytest.raises(CheckpointError, match="1,099,511,627,776 characters of one"):
        tokenizer_module.Tokenizer(checkpoint)


def test_what_real_normalizers_replace_is_bounded():
    pieces = [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}] * 3
    require_bounded({"normalizers": [*pieces, {"type": "Prepend", "prepend": "▁"}]})
    with pytest.raises(Unreadable, match="500 characters of one"):
        require_bounded({"pattern": {"Regex": ""}, "content": "x" * 500})


def test_a_pattern_that_gives_up_on_a_text_is_a_sentence(tmp_path, capfd):
    """Exponential all the same, by its alternatives: the library panics, which is no Exception."""
    split = pre_tokenizers.Split(Regex("(a|aa)+$"), "isolated")
    tokenizer = tokenizer_module.Tokenizer(with_parts(tmp_path, pre_tokenizer=split))
    assert tokenizer.encode("ab") == [0, 1]
    with pytest.raises(CheckpointError, match=r"cannot encode a text: .*retry-limit"):
        tokenizer.encode("a" * 60 + "b")
    capfd.readouterr()
