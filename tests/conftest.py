"""What many tests need: a tiny tokenizer, and a deployment that uses it."""

import gc
import json
import os
import re
import signal
from collections.abc import Generator
from copy import deepcopy
from functools import cache
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.testing
from hypothesis import HealthCheck, Phase, settings
from tests.amounts import VARIABLE, amount
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as BareTokenizer

from tts.build.spec import Deployment
from tts.build.spec import load as yaml_reader
from tts.build.tokenizer import Tokenizer

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job
    signal.signal(signal.SIGINT, signal.default_int_handler)

# else the whole command line is made anew for each command of a test, as none is for a user
typer.testing._get_command = cache(typer.main.get_command)  # type: ignore[attr-defined]  # no other way

os.fsync = lambda descriptor: None  # no test cuts the power, and a disk may take long

parsed = cache(yaml_reader.parse_yaml)  # 10 ms for each deployment
yaml_reader.parse_yaml = lambda text: deepcopy(parsed(text))

NUMBERS = count()

SPECIALS = ["<|begin_of_text|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|eot_id|>"]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
TEXTS = ["## Step 1: 37 + 58 = 95\n\n", "the answer is\n\n", "Compute (3 - 4) * 5. What is it?"]


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE tokenizer with a chat template, as a checkpoint would have it."""
    tokenizer = BareTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n\n|\d|[^\d\n]+|\n"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 10, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "bos_token": SPECIALS[0],
        "eos_token": SPECIALS[4],
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 4}))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all", action="store_true", help="the long forms, too: what is slow, and more examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--all"):
        os.environ[VARIABLE] = "1"
    repeatable: dict[str, Any] = {
        "max_examples": amount(30, 100),
        "derandomize": True,
        "database": None,
        "deadline": None,  # no limits of time: a busy machine is no failure
        "suppress_health_check": [HealthCheck.too_slow],
    }
    settings.register_profile("searching")  # new examples in each run
    settings.register_profile("repeatable", **repeatable)
    settings.register_profile(  # a failure is enough, its smallest example is not wanted
        "unshrunk", **repeatable, phases=[Phase.explicit, Phase.generate]
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each worker begin to collect at another place, where all tests are asked for.

    What one worker has prepared for import, which takes longer than the import, the others find.
    """
    config = session.config
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker and config.args_source is config.ArgsSource.TESTPATHS:
        entries = sorted(Path(__file__).parent.glob("[a-z]*"))
        parts = [str(e) for e in entries if e.is_dir() or e.name.startswith("test_")]
        first = len(parts) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args = parts[first:] + parts[:first]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: looking for garbage in it takes longer than the rest.

    Looking for it seldom afterwards takes a fifteenth off the tests.
    """
    gc.disable()
    gc.set_threshold(10_000)
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def has_module_fixtures(item: pytest.Item) -> bool:
    """Whether a test uses what is made once for all of its module."""
    found = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]  # nothing public tells
    return any(definitions[-1].scope == "module" for definitions in found)


FORKING = {
    "test_command_verifier.py",
    "test_embedded.py",
    "test_ending.py",
    "test_forks.py",
    "test_functions.py",
    "test_guard.py",
    "test_ports.py",
    "test_sandbox.py",
    "test_score_run.py",
    "test_shared.py",
    "test_spec.py",
    "test_user_paths.py",
    "test_worker_process.py",
}
"""Files of tests that fork this process: threads that earlier tests have left in libraries would
make a fork crash."""


LONG = {"test_connecting.py", "test_grader.py", "test_schedules.py"}
"""Files whose tests start processes or wait, as tests of real servers do."""
SMALL = {"constraints", "datasets", "endpoints", "prompting", "scheduling", "strategies"}
"""Packages whose tests are so short that all workers end together."""


def order(item: pytest.Item) -> int:
    """Where a test stands in a run: a lower number is earlier."""
    package = item.path.relative_to(Path(__file__).parent).parts[0]
    if item.path.name in FORKING or "torch" in item.fixturenames:  # type: ignore[attr-defined]
        return 0
    if item.get_closest_marker("server") or item.path.name in {package, *LONG}:
        return 1
    return 3 if package in SMALL else 2


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of real servers come first: they wait often, and the many small ones fill the end.

    Before all others comes what takes one process the longest, the tests that need PyTorch, and
    what forks; beside servers come tests of the whole project. Tests that share what is made for
    their module are a group, and so are the others of a file: thousands of groups keep the process
    busy that gives them out. What is slow is left out, unless `--all` or its marker asks for it.
    """
    items.sort(key=lambda item: (order(item), item.path))
    for item in items:
        if "torch" in item.fixturenames:  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.xdist_group("torch"))
        elif not item.get_closest_marker("xdist_group") and (
            order(item) >= 2 or has_module_fixtures(item)
        ):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    if not config.getoption("--all") and "slow" not in config.getoption("-m"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of async tests."""
    return "asyncio"


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's own. pytest's looks at all the others for its number."""
    name = re.sub(r"\W", "_", request.node.name)[:24]
    return tmp_path_factory.mktemp(f"{name}-{next(NUMBERS)}", numbered=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty TTS_HOME, which is not there yet."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch. The tests that ask for it share a process: it and transformers take seconds."""
    import torch

    torch.set_num_threads(1)  # models this small lose more to waking threads than they gain
    return torch


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer and no model."""
    folder = tmp_path_factory.mktemp("checkpoint")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: Path) -> Tokenizer:
    """The tokenizer of that folder."""
    return Tokenizer(tokenizer_folder)


@pytest.fixture(scope="session")
def words(tokenizer: Tokenizer) -> tuple[list[list[int]], list[int]]:
    """What scripted engines write, as token ids: words, and the end of a step."""
    written = [tokenizer.encode(word) for word in ("1", "22", "a", " + ", "")]
    return written, tokenizer.encode("\n\n")


@pytest.fixture(scope="session")
def tiny_deployment(tokenizer_folder: Path) -> Deployment:
    """A deployment whose checkpoints hold a tokenizer only: enough for everything but engines."""
    engine = {
        "checkpoint": tokenizer_folder,
        "precision": "fp32",
        "max_batch_size": 8,
        "max_num_tokens": 256,
        "max_seq_len": 320,
        "kv_cache": {"tokens": 4096},
    }
    return Deployment.model_validate(
        {
            "name": "tiny",
            "target": "openvino",
            "generator": {**engine, "in_flight_requests": 8},
            "verifier": {**engine, "in_flight_tokens": 512},
        }
    )
