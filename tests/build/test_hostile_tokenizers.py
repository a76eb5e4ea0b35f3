"""A tokenizer.json from a stranger: what it asks for beside its vocabulary is not obeyed."""

import json
import stat
from copy import deepcopy
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount

from tts.base import paths
from tts.base.errors import CheckpointError
from tts.build import tokenizer_check
from tts.build.tokenizer import Tokenizer
from tts.build.tokenizer_check import MAX_TOKENS

PADDING = {
    "strategy": {"Fixed": 100_000_000},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "a",
}
TRUNCATION = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    """No file is known from another test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tokenizer_check, "_passed", set())


def parts(**changed):
    """The smallest tokenizer.json, with fields of it or of its model changed."""
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    file = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
    }
    return {
        **file,
        **{name: value for name, value in changed.items() if name in file},
        "model": model | {name: value for name, value in changed.items() if name not in file},
    }


def load(folder, file):
    (folder / "tokenizer.json").write_text(json.dumps(file))
    return Tokenizer(folder)


def test_neither_truncation_nor_padding_is_obeyed_or_written(tmp_path):
    tokenizer = load(tmp_path, parts(padding=PADDING, truncation=TRUNCATION))
    assert tokenizer.encode("abab") == [0, 1, 0, 1]
    written = tokenizer.specification
    assert (written["padding"], written["truncation"]) == (None, None)


def test_merges_are_not_left_out_at_random(tmp_path):
    file = parts(vocab={"a": 0, "b": 1, "ab": 2}, merges=[["a", "b"]], dropout=0.5)
    tokenizer = load(tmp_path, file)
    assert [tokenizer.encode("ab") for _ in range(20)] == [[2]] * 20


@pytest.mark.parametrize("token", [2**31, 2**32 - 1, MAX_TOKENS])
def test_an_id_that_is_none_is_named(tmp_path, token):
    said = r"tokenizer\.json cannot be used: the id of 'b' is"
    with pytest.raises(CheckpointError, match=said):
        load(tmp_path, parts(vocab={"a": 0, "b": token}))


@pytest.mark.parametrize("token", [2**32, -1, True, 1.0, "1", None])
def test_what_is_no_id_is_refused(tmp_path, token):
    with pytest.raises(CheckpointError, match="cannot be used: the library refuses it"):
        load(tmp_path, parts(vocab={"a": 0, "b": token}))


DOUBLING = [{"type": "Replace", "pattern": {"String": "1"}, "content": "11"}] * 40


@pytest.fixture
def little_memory(monkeypatch):
    """Files are tried in less memory, which is full sooner."""
    started = partial(tokenizer_check.WorkerProcess, memory_mb=400)

    def start(module, does, *, cpu_s, memory_mb):
        return started(module, does, cpu_s=cpu_s)

    monkeypatch.setattr(tokenizer_check, "WorkerProcess", start)


@pytest.mark.parametrize(
    "normalizer",
    [{"type": "Prepend", "prepend": "a" * 100_000}, {"type": "Sequence", "normalizers": DOUBLING}],
    ids=["in front", "doubling"],
)
def test_a_text_that_grows_without_bounds_is_refused(tmp_path, little_memory, normalizer):
    load(tmp_path, parts())  # for which it is enough
    with pytest.raises(CheckpointError, match="cannot be used: "):
        load(tmp_path, parts(normalizer=normalizer))


def test_a_pattern_that_gives_up_on_a_text_is_a_sentence(tmp_path, capfd):
    """The library panics, which is no Exception."""
    tokenizer = load(tmp_path, split_by("(abc|abcd?)+$"))
    assert tokenizer.encode("ab") == [0, 1]
    with pytest.raises(CheckpointError, match=r"cannot encode a text: .*retry-limit"):
        tokenizer.encode("abc" * 40 + "b")
    capfd.readouterr()


def split_by(pattern):
    """The smallest tokenizer, which first splits a text by a pattern."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return parts(pre_tokenizer={**split, "invert": False})


EXPONENTIAL = ["(a|a?)+$", r"(\w+)+$", "(ab|ab?)+$", "(x+x+)+y", r"(\s|\n)*x", "(é|é?)+x"]


@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_a_pattern_that_takes_exponential_time_is_refused(tmp_path, pattern):
    with pytest.raises(CheckpointError, match=r"the library refuses it: .*retry-limit"):
        load(tmp_path, split_by(pattern))


def try_with(monkeypatch, folder, change):
    """Have files tried by a worker in which a line has changed something."""
    lines = (
        "import tts.build.tokenizer_check as worker",
        change,
        "worker.serve(lambda: worker._answer)",
    )
    (folder / "changed_worker.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(folder)
    start = partial(tokenizer_check.WorkerProcess, "changed_worker")
    monkeypatch.setattr(tokenizer_check, "WorkerProcess", lambda module, *a, **k: start(*a, **k))


def test_a_file_that_fills_the_memory_is_a_sentence(tmp_path, little_memory):
    (tmp_path / "tokenizer.json").write_text(f"[{'[],' * 10_000_000}[]]")
    with pytest.raises(CheckpointError, match=r"cannot be used: (it needs more|reading it ended)"):
        Tokenizer(tmp_path)


def test_a_file_that_takes_for_ever_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_check, "_CPU_S", 0.2)
    try_with(monkeypatch, tmp_path, "worker.parse_json = lambda text: max(iter(int, 1))")
    with pytest.raises(CheckpointError, match="cannot be used: reading it took more than"):
        load(tmp_path, parts())


@pytest.mark.slow  # the library fills gigabytes before it dies
def test_a_file_of_which_the_library_dies_is_a_sentence(tmp_path, monkeypatch):
    """It dies of the gap below a high id when it writes the tokenizer, if nothing else refuses."""
    change = "worker._require_ids = lambda tokenizer: None"
    try_with(monkeypatch, tmp_path, change)
    said = "cannot be used: writing what was loaded ended the process that did it by SIG"
    with pytest.raises(CheckpointError, match=said):
        load(tmp_path, parts(vocab={"a": 0, "b": 2**31}))


def test_a_file_is_tried_once_in_all_processes(tmp_path, monkeypatch):
    tried = []
    attempt = tokenizer_check._try
    monkeypatch.setattr(tokenizer_check, "_try", lambda data: (tried.append(data), attempt(data)))
    for _ in range(2):
        load(tmp_path, parts())
        tokenizer_check._passed.clear()  # as another process begins
    assert len(tried) == 1
    assert stat.S_IMODE((paths.cache_dir() / "tokenizers").stat().st_mode) == 0o700
    load(tmp_path, parts(vocab={"a": 0}))
    assert len(tried) == 2


def test_a_file_that_was_refused_is_tried_again(tmp_path):
    for _ in range(2):
        with pytest.raises(CheckpointError, match="the library refuses it"):
            load(tmp_path, parts(vocab={"b": -1}))
    assert list((paths.cache_dir() / "tokenizers").iterdir()) == []


def test_a_folder_of_marks_that_cannot_be_written_is_gone_without(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("no folder")
    assert load(tmp_path, parts()).encode("ab") == [0, 1]


def test_a_folder_of_marks_of_another_is_not_believed(tmp_path):
    load(tmp_path, parts())
    folder = paths.cache_dir() / "tokenizers"
    folder.rename(folder.with_name("theirs"))
    folder.symlink_to("theirs")
    tokenizer_check._passed.clear()
    assert load(tmp_path, parts()).encode("ab") == [0, 1]
    assert len(list(folder.iterdir())) == 1


VALUES = st.sampled_from(
    [
        None,
        0,
        -1,
        2**31,
        2**40,
        1e308,
        True,
        "",
        "a" * 500,
        "(a|aa)+$",
        "\ud800",
        [],
        {},
        [[]],
        [0] * 9,
    ]
)


@st.composite
def damaged(draw):
    """The bundled tokenizer with a value somewhere in it exchanged."""
    file = deepcopy(json.loads((DEMO / "tokenizer.json").read_bytes()))
    file["model"]["vocab"] = dict(list(file["model"]["vocab"].items())[-300:])
    if draw(st.booleans()):
        file[draw(st.sampled_from(["normalizer", "decoder"]))] = {
            "type": draw(st.sampled_from(["Replace", "Prepend", "Strip", "Fuse", "ByteFallback"])),
            "prepend": draw(VALUES),
            "content": draw(VALUES),
            "pattern": {draw(st.sampled_from(["Regex", "String"])): draw(VALUES)},
            "start": draw(VALUES),
            "stop": 0,
        }
    part, place = file, draw(st.sampled_from(sorted(file)))
    while isinstance(part[place], dict | list) and part[place] and draw(st.booleans()):
        part = part[place]
        keys = sorted(part) if isinstance(part, dict) else list(range(len(part)))
        place = draw(st.sampled_from(keys))
    part[place] = draw(VALUES)
    return dict(file)


DEMO = paths.deployments_dir().parent / "checkpoints" / "demo-generator"


@settings(max_examples=amount(12, 60))
@given(file=damaged())
def test_a_damaged_file_is_refused_in_a_sentence_or_used(tmp_path_factory, file):
    try:
        tokenizer = load(tmp_path_factory.mktemp("damaged"), file)
        ids = tokenizer.encode("1 + 1 = 2")
        tokenizer.decode(ids)
    except CheckpointError:
        return  # any other error fails
    assert all(0 <= token < tokenizer.vocab_size for token in ids)
