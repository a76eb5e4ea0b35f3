"""The log of a start: why it failed, and what it says of memory, by the forms of the contract."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.serving.contract import start_log_forms
from tts.serving.server import triton_log
from tts.serving.server.triton_log import read_start_log

FORMS = start_log_forms()
PREFIXES = ["", "[TensorRT-LLM][INFO] ", "[TRT-LLM] [I] [batchmgr][RANK 1] ", "[1,0]<stdout>:"]
CONVERSION = re.compile(r"%[\d.]*(?P<kind>l?d|f)")


@pytest.mark.parametrize("name", FORMS)
def test_an_example_is_read_as_its_own_form(name: str):
    (seen,) = read_start_log([FORMS[name].example])
    assert seen.form == name
    assert seen.line == FORMS[name].example
    assert all(number >= 0 for number in seen.numbers.values())


def test_the_numbers_of_the_examples():
    read = {name: read_start_log([form.example])[0].numbers for name, form in FORMS.items()}
    assert read["pool"] == {"tokens": 370816}
    assert (read["blocks"]["blocks"], read["blocks"]["length"]) == (11588, 4096)
    assert read["shortened"] == {"length": 5185}


@given(st.sampled_from(sorted(FORMS)), st.sampled_from(PREFIXES), st.data())
def test_any_line_that_the_sources_print_is_read(name: str, prefix: str, data: st.DataObject):
    printed: list[str] = []

    def value(found: re.Match[str]) -> str:
        match found["kind"]:
            case "f":
                text = found[0] % data.draw(st.floats(0, 99_999))
            case _:
                text = str(data.draw(st.integers(0, 2**40)))
        printed.append(text)
        return text

    line = prefix + CONVERSION.sub(value, FORMS[name].form)
    (seen,) = read_start_log([f"  {line}\n"])
    assert (seen.form, seen.line) == (name, line.strip())
    assert {int(text) for text in printed if text.isdecimal()} == set(seen.numbers.values())


@given(st.lists(st.text(max_size=200)))
def test_no_log_makes_it_fail(lines: list[str]):
    assert read_start_log(lines) == []


@pytest.mark.parametrize("number", ["1.2.3", ".", "..", "9" * 400])
def test_a_number_that_is_none_is_no_line_of_a_form(number: str):
    lines = [f"[MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache ({number})."]
    assert read_start_log(lines) == []


NOISE = (
    'W1120 14:18:49.17 5765 pinned_memory_manager.cc:273] "Unable to allocate"\n'
    'E1120 14:18:49.17 5765 server.cc:241] "CudaDriverHelper has not been initialized."\n'
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "E1120 14:18:50.79 5765 model.cc:642] \"failed to load 'prm_engine' version 1:"
            ' Internal: ValueError: no such engine: /a/b\\n\\nAt:\\n  /m/model.py(3): init\\n"\n'
            "error: creating server: Internal - failed to load all models\n",
            "model prm_engine failed to load: ValueError: no such engine: /a/b",
        ),
        (
            'E1120 14:24:52.77 6946 main.cc:245] "failed to start GRPC service: Unavailable - '
            "Socket '127.0.0.1:18003' already in use \"\n",
            "failed to start GRPC service: Unavailable - Socket '127.0.0.1:18003' already in use",
        ),
        ("error: cannot run /x: Permission denied\n", "cannot run /x: Permission denied"),
        ("tritonserver: cannot open shared object\n", "tritonserver: cannot open shared object"),
    ],
)
def test_reason(tmp_path: Path, text: str, reason: str):
    log = tmp_path / "triton.log"
    log.write_text(NOISE + text)
    assert triton_log.failure(log) == reason
    assert triton_log.port_was_taken(log) == ("already in use" in text)


def test_no_log_is_no_reason(tmp_path: Path):
    assert triton_log.failure(tmp_path / "none.log") == ""
