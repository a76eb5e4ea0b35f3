"""The log of a start: how far it is, why it failed, and what it says of memory."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving.conftest import let_initialize, make_deployment

from tts.base.errors import ServerError
from tts.build.spec import Deployment
from tts.engines.loading import COMPILING, OPEN, READING, Stage
from tts.serving.contract import start_log_forms
from tts.serving.server import start, triton_log
from tts.serving.server.start import OPEN_STALL_S, Watchdog, start_server
from tts.serving.server.state import identify
from tts.serving.server.triton import Triton
from tts.serving.server.triton_log import (
    LOADING,
    WAITING,
    WARMING_UP,
    Loading,
    read_loading,
    read_start_log,
)

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


ROLES = ("generator", "verifier")


def service_with(log: Path) -> Triton:
    service = Triton(make_deployment())
    service.log = log
    return service


TRITON = 'I1122 02:47:31.192164 1239 model_lifecycle.cc:{line}] "{text}"\n'


def begun(model: str) -> str:
    return TRITON.format(line=472, text=f"loading: {model}:1")


def loaded(model: str) -> str:
    return TRITON.format(line=839, text=f"successfully loaded '{model}'")


def test_each_engine_is_where_the_last_line_about_it_says(tmp_path: Path):
    log = tmp_path / "triton.log"

    def stages() -> dict[str, tuple[str, float | None]]:
        found = read_loading(log, 3.0, ROLES)
        assert found.seconds == 3.0
        return {role: (stage.doing, stage.fraction) for role, stage in found.engines.items()}

    assert stages() == {"generator": (WAITING, None), "verifier": (WAITING, None)}
    lines = [begun("generator"), begun("prm_engine"), begun("prm_score"), loaded("prm_score")]
    log.write_text("".join(lines))
    assert stages() == {"generator": (LOADING, None), "verifier": (LOADING, None)}
    with log.open("a") as more:
        print(Stage("generator", READING, 0.0).line(), file=more)
        print(Stage("generator", READING, 0.4).line(), file=more)
        print(Stage("prm_engine", COMPILING).line(), file=more)
        print(Stage("prm_engine", READING).line()[:-5], file=more, end="")  # being written
    assert stages() == {"generator": (READING, 0.4), "verifier": (COMPILING, None)}
    with log.open("a") as more:
        more.write("\n" + loaded("generator"))
    assert stages() == {"generator": (WARMING_UP, None), "verifier": (COMPILING, None)}
    assert not read_loading(log, 3.0, ROLES).is_open
    with log.open("a") as more:
        print(Stage("prm_engine", OPEN).line(), file=more)
    assert stages() == {"generator": (WARMING_UP, None), "verifier": (OPEN, None)}
    assert read_loading(log, 3.0, ROLES).is_open


def test_the_verifier_may_be_one_model_or_the_engine_of_an_ensemble(tmp_path: Path):
    log = tmp_path / "triton.log"
    log.write_text(Stage("prm", COMPILING).line() + "\n")
    assert str(read_loading(log, 3.0, ROLES)) == "generator: waiting, verifier: compiling"
    log.write_text(loaded("prm_engine") + begun("prm"))  # the ensemble comes last
    assert str(read_loading(log, 3.0, ROLES)) == "generator: waiting, verifier: warming up"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(start.time, "monotonic", lambda: now[0])
    return now


def test_a_start_is_given_up_only_when_neither_log_nor_processes_get_on(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
):
    log, computed = tmp_path / "triton.log", [0.0]
    log.write_text(Stage("generator", COMPILING).line() + "\n")
    monkeypatch.setattr(
        start.psutil.Process,
        "cpu_times",
        lambda process: SimpleNamespace(user=computed[0], system=0.0),
    )
    monkeypatch.setattr(start.psutil.Process, "children", lambda process, recursive: [])
    dog = Watchdog(service_with(log), identify(os.getpid()), 60.0)
    for _ in range(1000):  # it computes
        clock[0] += 2.0
        computed[0] += 1.0
        dog.check()
    for _ in range(100):  # it waits, and says something now and then
        clock[0] += 50.0
        computed[0] += 0.1
        log.write_text(log.read_text() + "still there\n")
        dog.check()
    clock[0] += 50.0
    dog.check()
    clock[0] += 11.0
    computed[0] += 1.0  # less than a tenth of a core
    said = r"has done nothing for 60 s \(generator: compiling, verifier: waiting\)"
    with pytest.raises(ServerError, match=said) as error:
        dog.check()
    assert str(log) in error.value.hint


def test_a_start_that_stands_still_with_open_engines_is_given_up_soon(
    tmp_path: Path, clock: list[float]
):
    log = tmp_path / "triton.log"
    log.write_text(
        "".join(Stage(model, OPEN).line() + "\n" for model in ("generator", "prm_engine"))
    )
    gone = replace(identify(os.getpid()), started_ticks=0)
    dog = Watchdog(service_with(log), gone)
    clock[0] += OPEN_STALL_S
    dog.check()
    clock[0] += 2.0
    with pytest.raises(ServerError, match=r"nothing for 30 s \(generator: open, verifier: open\)"):
        dog.check()


@pytest.mark.server
def test_a_real_start_tells_what_its_engines_do(
    echo: Callable[..., Deployment], templates: Path, tmp_path: Path
):
    seen = tmp_path / "seen"
    telling = (
        "import pathlib, time\n"
        "from tts.engines.loading import Stage, tell\n"
        "tell(Stage(args['model_name'], 'reading weights', 0.5))\n"
        f"while not pathlib.Path({str(seen)!r}).exists(): time.sleep(0.01)"
    )
    let_initialize(templates, telling, "openvino/generator")
    told: list[Loading] = []

    def on_loading(loading: Loading) -> None:
        told.append(loading)
        if loading.engines["generator"] == Stage("generator", READING, 0.5):
            seen.touch()

    with start_server(Triton(echo()), on_loading=on_loading):
        pass
    assert seen.exists()
    assert [each.seconds for each in told] == sorted(each.seconds for each in told)
