"""`tts init`: options, defaults, and what it does not overwrite."""

import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import get_args

import pytest
import yaml
from tests.cli.runner import tts
from tests.endpoints.openai.stand_in import StandIn, answering

from tts.base import paths
from tts.build.nvidia import NvidiaGpu
from tts.build.spec import PRECISIONS, load_deployment
from tts.checks import BEFORE_BUILD, has_errors, lint
from tts.cli import drafting
from tts.cli.drafting import this_machine
from tts.cli.init import Target, _name

CHECKPOINTS = paths.deployments_dir().parent / "checkpoints"
GENERATOR, VERIFIER = (CHECKPOINTS / f"demo-{role}" for role in ("generator", "verifier"))
ONE_B, PRM = "meta-llama/Llama-3.2-1B-Instruct", "RLHFlow/Llama3.1-8B-PRM-Deepseek-Data"
ON_GPU = ("--target", "tensorrt", "--gpu", "h100")


@pytest.fixture(scope="module")
def url():
    with answering(StandIn("vllm")) as found:
        yield found


@pytest.fixture
def init(tmp_path, monkeypatch):
    """`tts init` in a folder of its own; what it wrote, as plain data, and how it ended."""
    monkeypatch.chdir(tmp_path)

    def init(*arguments, file="mine.yaml"):
        done = tts("init", file, *arguments)
        assert done.code == 0, done.said
        return yaml.safe_load((tmp_path / file).read_text()), done

    return init


def test_the_targets_are_those_of_a_deployment():
    assert set(get_args(Target)) == PRECISIONS.keys()


def test_without_options_it_writes_the_demo_pair(init, tmp_path):
    _, done = init()
    assert done.out.splitlines()[-3:] == [
        "Next:",
        "  tts lint mine.yaml",
        "  tts build-engines mine.yaml",
    ]
    assert "This machine: " in done.err
    deployment = load_deployment(tmp_path / "mine.yaml")
    assert deployment.generator.checkpoint == GENERATOR
    assert deployment.verifier.checkpoint == VERIFIER
    assert not has_errors(lint(deployment))


def test_a_file_that_is_there_is_kept(init, tmp_path):
    (tmp_path / "mine.yaml").write_text("precious")
    done = tts("init", "mine.yaml", "--generator", "http://nobody.is.asked")
    assert (done.code, "--force" in done.err) == (2, True)
    assert (tmp_path / "mine.yaml").read_text() == "precious"
    assert init("--force")[0]["name"] == "mine"


@pytest.mark.parametrize("verifier", ["verifier", "value", "classification"])
def test_checkpoints_that_are_here_pass_lint(init, tmp_path, verifier):
    values, _ = init("--generator", GENERATOR, "--verifier", CHECKPOINTS / f"demo-{verifier}")
    assert values["verifier"]["format"] == {
        "verifier": "rlhflow",
        "value": "skywork-o1-prm",
        "classification": "custom",
    }.get(verifier)
    assert not has_errors(lint(load_deployment(tmp_path / "mine.yaml")))


def test_a_classifier_of_answers_is_asked_with_a_chat(init, tmp_path):
    folder = Path(shutil.copytree(VERIFIER, tmp_path / "reward"))
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["LlamaForSequenceClassification"], "num_labels": 1}
    (folder / "config.json").write_text(json.dumps(config))
    values, _ = init("--generator", GENERATOR, "--verifier", folder)
    assert values["verifier"]["format"] == "chat"


def test_without_a_verifier_the_generator_scores_itself(init, tmp_path):
    values, _ = init("--generator", GENERATOR)
    assert values["verifier"]["checkpoint"] == values["generator"]["checkpoint"]
    assert not has_errors(lint(load_deployment(tmp_path / "mine.yaml")))


def test_paths_are_relative_to_the_file(init, tmp_path):
    (tmp_path / "models").symlink_to(CHECKPOINTS)
    (tmp_path / "below").mkdir()
    values, _ = init("--generator", "models/demo-generator", file="below/mine.yaml")
    assert not Path(values["generator"]["checkpoint"]).is_absolute()
    assert load_deployment(tmp_path / "below" / "mine.yaml").generator.checkpoint == GENERATOR


def test_names_of_the_hub_are_downloaded_first(init, tmp_path):
    values, done = init("--generator", ONE_B, "--verifier", PRM, *ON_GPU)
    assert values["generator"]["checkpoint"] == "checkpoints/Llama-3.2-1B-Instruct"
    assert f"hf download {ONE_B} --local-dir checkpoints/Llama-3.2-1B-Instruct" in done.out
    assert values["tensorrt"] == {"gpu": "h100"}
    assert "boxed" in values["generator"]["system_prompt"]
    assert values["verifier"]["format"] == "rlhflow"
    assert not has_errors(lint(load_deployment(tmp_path / "mine.yaml")))
    assert "kv_cache.tokens in the file: as planned." in tts("plan", "mine.yaml").out


def test_a_server_is_asked_what_it_is(init, url, tmp_path):
    tokenizer = ("--generator-tokenizer", GENERATOR)
    values, done = init("--generator", url, *tokenizer)
    assert values["target"] == "openai"
    assert values["generator"]["max_seq_len"] == 2048, "as the server says"
    assert values["verifier"]["format"] == "likelihood"
    assert "vLLM" in done.said
    assert done.out.splitlines()[-2:] == [
        "  tts doctor mine.yaml",
        '  tts solve mine.yaml "QUESTION"',
    ]
    assert not has_errors(lint(load_deployment(tmp_path / "mine.yaml")))
    assert "vLLM" in tts("doctor", "mine.yaml").out


class AsksForAKey(BaseHTTPRequestHandler):
    """Answers that a key is needed, and that it is busy to the right one."""

    def do_GET(self):
        right = self.headers["Authorization"] == "Bearer secret"
        self.send_response(503 if right else 401)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_server_that_needs_a_key_is_asked_with_it(init, tmp_path, monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), AsksForAKey) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        named = ["--generator", f"http://127.0.0.1:{server.server_port}"]
        named += ["--generator-tokenizer", str(GENERATOR)]
        refused = tts("init", "mine.yaml", *named)
        assert refused.code == 2
        assert "status 401" in refused.said
        assert "--api-key-env NAME" in refused.said
        monkeypatch.delenv("MY_SERVER_KEY", raising=False)
        missing = tts("init", "mine.yaml", *named, "--api-key-env", "MY_SERVER_KEY")
        assert "--api-key-env names MY_SERVER_KEY, which is not in the env" in missing.said
        monkeypatch.setenv("MY_SERVER_KEY", "another")
        wrong = tts("init", "mine.yaml", *named, "--api-key-env", "MY_SERVER_KEY")
        assert "status 401" in wrong.said
        assert "MY_SERVER_KEY does not hold the server's key" in wrong.said
        monkeypatch.setenv("MY_SERVER_KEY", "secret")
        values, done = init(*named, "--api-key-env", "MY_SERVER_KEY")
        server.shutdown()
    assert values["generator"]["api_key_env"] == "MY_SERVER_KEY"
    assert "secret" not in (tmp_path / "mine.yaml").read_text() + done.said


def test_a_function_that_scores_stands_in_the_file(init, url, tmp_path):
    tokenizer = ("--generator-tokenizer", GENERATOR)
    for generator in (["--generator", url, *tokenizer], ["--generator", GENERATOR]):
        (tmp_path / "my_prm.py").write_text("def score(question, steps): ...")
        values, done = init(*generator, "--verifier", "my_prm.py:score", "--force")
        assert values["verifier"] == {"function": "my_prm.py:score"}
        assert values["target"] == ("openai" if url in generator else "openvino")
        assert "guided by my_prm.py:score" in (tmp_path / "mine.yaml").read_text()
        assert "with my_prm.py:score" in done.said
        assert not has_errors(lint(load_deployment(tmp_path / "mine.yaml"), BEFORE_BUILD))
        (tmp_path / "my_prm.py").write_text("scores = 1")
        assert has_errors(lint(load_deployment(tmp_path / "mine.yaml"), BEFORE_BUILD))
        (tmp_path / "my_prm.py").unlink()
        assert has_errors(lint(load_deployment(tmp_path / "mine.yaml"), BEFORE_BUILD))


def test_the_folder_of_a_model_that_is_not_here_is_no_owner_on_the_hub(init):
    values, done = init("--generator", "models/Qwen2.5-1.5B-Instruct")
    assert values["generator"]["checkpoint"] == "models/Qwen2.5-1.5B-Instruct"
    assert "There is no folder models/Qwen2.5-1.5B-Instruct" in done.said
    assert "hf download Qwen/Qwen2.5-1.5B-Instruct --local-dir models/Qwen2.5-1.5B" in done.out


@pytest.mark.parametrize("key", ["sk-12345", "a1b2c3"])
def test_a_key_in_place_of_its_variable_is_not_printed(tmp_path, monkeypatch, key):
    monkeypatch.chdir(tmp_path)
    refused = tts("init", "mine.yaml", "--generator", "http://127.0.0.1:9", "--api-key-env", key)
    assert (refused.code, "may be the key itself" in refused.said) == (2, True)
    assert key not in refused.said


def test_servers_that_do_not_answer_are_written_as_they_are_named(init):
    values, done = init(
        *("--generator", "http://127.0.0.1:9", "--verifier", "http://127.0.0.1:10"),
        *("--generator-tokenizer", "Qwen/Qwen2.5-1.5B-Instruct"),
        *("--verifier-tokenizer", "Qwen/Qwen2.5-7B-Instruct"),
    )
    assert values["target"] == "openai"
    assert values["verifier"]["format"] == "prompted"
    assert "{question}" in values["verifier"]["prompt"]
    assert "Nothing answers at http://127.0.0.1:9" in done.said


def test_beside_a_server_the_other_model_is_compiled_for_the_cpu(init, url, tmp_path):
    tokenizer = ("--generator-tokenizer", GENERATOR)
    values, _ = init("--generator", url, *tokenizer, "--verifier", VERIFIER)
    assert values["target"] == "openvino"
    assert not has_errors(lint(load_deployment(tmp_path / "mine.yaml")))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["no/where.yaml"], "There is no folder no"),
        (["."], "is a folder"),
        (["mine.yaml", "--generator", "no/where/x"], "There is no checkpoint"),
        (["mine.yaml", "--generator", "models/x"], "There is no checkpoint"),
        (["mine.yaml", "--generator", "127.0.0.1:80"], "Did you mean http://127.0.0.1:80?"),
        (["mine.yaml", "--verifier", "my_prm.py"], "Give FILE.py:NAME"),
        (["mine.yaml", "--verifier", "my_pmr.py:score"], "There is no file my_pmr.py"),
        (["mine.yaml", "--verifier", "my_prm.py:scor"], "Did you mean score?"),
        (["mine.yaml", "--generator", "empty"], "config.json"),
        (["mine.yaml", "--generator", "http://user@host"], "neither a user"),
        (["mine.yaml", "--generator", "http://127.0.0.1:9"], "--generator-tokenizer"),
        (["mine.yaml", "--generator", GENERATOR, "--format", "likelihood"], "verifier.url"),
        (["mine.yaml", "--format", "rlhflo"], "no verifier format"),
        (["mine.yaml", "--target", "openai"], "compiles nothing"),
        (["mine.yaml", "--target", "tensort"], "--target"),
        (["mine.yaml", "--target", "tensorrt"], "--gpu"),
        (["mine.yaml", *ON_GPU[:3], "h1000"], "no kind of GPU"),
        (["mine.yaml", *ON_GPU, "--generator", ONE_B], "--verifier is missing"),
        (["mine.yaml", *ON_GPU, "--verifier", "my_prm.py:score"], "target openvino only"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path, monkeypatch, words, named):
    monkeypatch.setattr(drafting, "gpus", list)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "my_prm.py").write_text("def score(question, steps): ...")
    done = tts("init", *words)
    assert (done.code, named in done.said) == (2, True), done.said
    assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("name", "memory", "kind"), [("NVIDIA H200", 143771, "h200"), ("Tesla T4", 15360, None)]
)
def test_the_gpus_of_the_machine_are_found(init, monkeypatch, name, memory, kind):
    gpus = [NvidiaGpu(n, name, memory * 2**20, 0, "590.44.01", "9.0") for n in range(2)]
    monkeypatch.setattr(drafting, "gpus", lambda: gpus)
    machine = this_machine()
    assert machine.gpu == kind
    values, done = init("--generator", ONE_B, "--verifier", PRM, "--format", "rlhflow")
    assert values["target"] == ("vllm" if kind else "openvino")
    assert "gpus" not in values["generator"]  # both models have room on the first
    assert name in done.said or f"2 GPUs ({kind})" in done.said


def test_names():
    assert _name(Path("/a/My Project/deployment.yaml")) == "my-project"
    assert _name(Path("/a/b/Llama 3.2.yaml")) == "llama-3.2"
    assert _name(Path("/a/b/---.yaml")) == "deployment"


def test_a_name_is_not_that_of_a_bundled_deployment(init):
    assert init(file="demo.yaml")[0]["name"] == "demo-own"


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (
            ("--verifier", "Qwen/Qwen2.5-Math-PRM-7B", "--engine", "vllm", "--gpu", "h100"),
            {"target": "vllm", "gpu": "h100", "verifier.checkpoint": "Qwen/Qwen2.5-Math-PRM-7B"},
        ),
        (
            ("--engine", "sglang", "--gpu", "l40s"),
            {"target": "sglang", "verifier.same_as": "generator", "generator.max_seq_len": 10240},
        ),
        (("--engine", "vllm"), {"gpu": None, "generator.thinking": {"budget_tokens": 8192}}),
        (("--engine", "vllm", "--gpu", "rtx4090"), {"generator.precision": "fp8"}),
    ],
)
def test_engines_that_are_started_are_sized_by_the_plan(init, tmp_path, arguments, values):
    document, command = init("--generator", "Qwen/Qwen3-8B", *arguments)
    for path, value in values.items():
        section, _, field = path.partition(".")
        assert (document[section].get(field) if field else document.get(section)) == value
    assert "  tts plan mine.yaml" in command.out
    assert not has_errors(lint(load_deployment(tmp_path / "mine.yaml"), BEFORE_BUILD))


def test_a_gguf_file_is_for_llama_cpp(init, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    command = tts("init", "mine.yaml", "--generator", "model.gguf")
    assert (command.code, "--generator-tokenizer is missing" in command.err) == (2, True)
    document, _ = init("--generator", "model.gguf", "--generator-tokenizer", GENERATOR)
    assert document["target"] == "llama.cpp"
    assert document["generator"]["tokenizer"] == str(GENERATOR)


def test_a_head_that_the_engine_lacks_is_refused_at_once():
    words = ("--verifier", "Qwen/Qwen2.5-Math-PRM-7B", "--engine", "sglang", "--gpu", "h100")
    command = tts("init", "mine.yaml", "--generator", "Qwen/Qwen3-8B", *words)
    assert (command.code, "Set verifier.target to vllm or openvino" in command.err) == (2, True)
