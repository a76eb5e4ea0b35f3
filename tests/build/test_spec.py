"""The deployment file: what it means, and how a mistake in it is explained."""

import os
import sys
from pathlib import Path

import pytest
import yaml
from tests.forks import said_in_a_fork

from tts.base import paths
from tts.base.errors import ConfigError
from tts.build.inputs import EngineInputs
from tts.build.openvino.target import settings_for
from tts.build.spec import Deployment, bundled_deployments, load_deployment


@pytest.fixture
def load(tmp_path):
    """Load demo.yaml with fields changed: load({"generator.precision": "int8"}); ... removes."""

    def change(fields):
        data = yaml.safe_load((paths.deployments_dir() / "demo.yaml").read_text())
        for path, value in fields.items():
            *folders, last = path.split(".")
            place = data
            for name in folders:
                place = place[name]
            if value is ...:
                del place[last]
            else:
                place[last] = value
        file = tmp_path / "changed.yaml"
        file.write_text(yaml.safe_dump(data))
        return load_deployment(file)

    return change


def test_bundled_demo_loads_without_its_checkpoints():
    assert "demo" in bundled_deployments()
    demo = load_deployment("demo")
    assert demo.target == "openvino"
    assert list(demo.engines()) == ["generator", "verifier"]
    for spec in demo.engines().values():
        assert spec.checkpoint.is_absolute()
        assert spec.checkpoint.parent.name == "checkpoints"


def test_checkpoints_are_relative_to_the_file(load, tmp_path):
    demo = load({"generator.checkpoint": "model", "verifier.checkpoint": "/models/prm"})
    assert demo.generator.checkpoint == tmp_path / "model"
    assert demo.verifier.checkpoint == Path("/models/prm")


TEMPLATE = {"head": "{question} ", "answer": " ки", "turn": "\n"}


def custom(**changes):
    """A verifier of format custom whose template is changed; ... removes."""
    template = {name: text for name, text in (TEMPLATE | changes).items() if text is not ...}
    return {"verifier.format": "custom", "verifier.template": template}


def critic(labels):
    """A verifier of format critique whose verdict is one of these words."""
    return {
        "verifier.format": "critique",
        "verifier.in_flight_tokens": None,
        "verifier.in_flight_requests": 4,
        "verifier.critique": {"verdict": {"after": "=", "labels": labels}},
        "verifier.prompt": "{question} {steps} {step}",
    }


def shared(**fields):
    """A verifier that is the generator's engine."""
    return {"verifier": {"same_as": "generator", "in_flight_tokens": 512, **fields}}


TENSORRT = {
    "target": "tensorrt",
    "generator.precision": "bf16",
    "verifier.precision": "fp8",
    "tensorrt": {"gpu": "h100"},
}


def placed(**fields):
    return {**TENSORRT, "generator.tensorrt": fields}


WRONG = [
    # unknown, missing and mistyped fields
    ({"generator.max_batch": 3}, ["max_batch = 3: unknown", "did you mean max_batch_size?"]),
    ({"generator.kv_cache.token": 3}, ["kv_cache.token = 3: unknown", "did you mean tokens?"]),
    ({"generators": {}}, ["generators: unknown field", "did you mean generator?"]),
    ({"sizes": {}}, ["sizes: unknown field", "allowed here: name, target, generator"]),
    ({"generator": ...}, ["generator: this field is required"]),
    ({"verifier.checkpoint": ...}, ["verifier.checkpoint: this field is required"]),
    ({"generator": None}, ["generator = None: must be a mapping"]),
    ({"generator.max_batch_size": 0}, ["generator.max_batch_size = 0: must be at least 1"]),
    # numbers beyond what any machine has, before anything is made of them
    ({"generator.threads": 1_000_000}, ["generator.threads = 1000000: must be at most 1024"]),
    ({"verifier.kv_cache.tokens": 10**15}, ["kv_cache.tokens = 10", "must be at most 1000000000"]),
    ({"generator.max_seq_len": 2**31}, ["max_seq_len = 2147483648: must be at most 2147483647"]),
    ({"generator.tensorrt": {"tensor_parallel": 10**9}}, ["tensor_parallel", "at most 1024"]),
    # paths and addresses that cannot be
    ({"generator.checkpoint": "a\0b"}, ["generator.checkpoint = 'a\\x00b'", "NUL"]),
    ({"generator.checkpoint": "a" * 5000}, ["generator.checkpoint = 'aaaa", "4,095 bytes"]),
    ({"generator.checkpoint": "~no-such-user/a"}, ["no home folder for '~no-such-user'"]),
    ({"server": {"host": "999.1.1.1"}}, ["server.host = '999.1.1.1'", "IPv4 address or a host"]),
    ({"server": {"host": "my host"}}, ["server.host = 'my host'", "IPv4 address or a host name"]),
    ({"server": {"host": ""}}, ["server.host = ''", "IPv4 address or a host name"]),
    ({"server": {"host": "::1"}}, ["server.host = '::1'", "IPv4 address or a host name"]),
    ({"strategies": {"greedy": {1: 2}}}, ["strategies.greedy.1", "must be a text"]),
    ({"generator.max_batch_size": "64"}, ["max_batch_size = '64': must be a whole number"]),
    ({"generator.max_batch_size": True}, ["max_batch_size = True: must be a whole number"]),
    ({"generator.max_seq_len": 1.5}, ["max_seq_len = 1.5: must be a whole number"]),
    ({"generator.chunked_context": "on"}, ["chunked_context = 'on': must be true or false"]),
    ({"generator.step_delimiter": ""}, ["step_delimiter = '': must not be empty"]),
    ({"generator.checkpoint": 5}, ["generator.checkpoint = 5: must be a path"]),
    ({"server.host": 5}, ["server.host = 5: must be a text"]),
    ({"name": "Demo Two"}, ["name = 'Demo Two': must match"]),
    # choices
    ({"target": "gpu"}, ["target = 'gpu': allowed: openvino, tensorrt"]),
    ({"generator.precision": "int4"}, ["precision = 'int4': allowed: fp32, fp16, bf16"]),
    ({"verifier.format": "talk"}, ["format = 'talk': allowed: rlhflow, math-shepherd, custom"]),
    ({"server.grpc_port": "any"}, ["server.grpc_port = 'any': must be auto or a port number"]),
    ({"server.http_port": 70000}, ["server.http_port = 70000: must be auto or a port number"]),
    # what contradicts something else
    ({"generator.precision": "fp8"}, ["generator.precision is 'fp8'", "allows fp32, bf16, int8"]),
    ({"target": "tensorrt"}, ["generator.precision is 'fp32'", "tensorrt allows fp16, bf16, fp8"]),
    ({"generator.kv_cache.block_size": 64}, ["block_size is 64; target openvino allows 32"]),
    ({"generator.kv_cache.block_size": 48}, ["generator.kv_cache: block_size is 48", "power of"]),
    ({"generator.kv_cache.tokens": 64}, ["kv_cache.tokens is 64 but max_seq_len is 320"]),
    ({"generator.chunked_context": False, "generator.max_num_tokens": 256}, ["(256)", "(320)"]),
    ({"generator.scheduling_policy": "max_utilization"}, ["allows guaranteed_no_evict"]),
    ({"verifier.in_flight_tokens": 100}, ["in_flight_tokens is 100 but max_seq_len is 512"]),
    ({"verifier.labels": ["-", "-"]}, ["verifier.labels = ['-', '-']: '-' stands twice"]),
    ({"verifier.labels": [["a"], "b"]}, ["verifier.labels = [['a'], 'b']: must be texts"]),
    ({"verifier.labels": []}, ["verifier: labels are empty, but format rlhflow reads them"]),
    ({"verifier.format": ["rlhflow"]}, ["verifier.format = ['rlhflow']: allowed"]),
    ({"verifier.labels": {"a": 1, "b": 1}}, ["verifier.labels: must be two labels or more"]),
    # what could have no effect, or another than it says
    ({"answer_timeout_s": 1e-9}, ["answer_timeout_s = 1e-09: must be at least 1"]),
    ({"verifier.labels": {"+": "1", "-": 0}}, ["labels.+ = '1': must be a number"]),
    (
        {"verifier.calibration": {"final": [[0, 0], [1, True]]}},
        ["calibration.final.1.1 = True: must be a number"],
    ),
    ({"generator.thinking": {"budget_tokens": 320}}, ["max_seq_len, which includes it, is 320"]),
    (
        {"generator.thinking": {"opens": "<t>", "closes": "<t>"}},
        ["generator.thinking: opens and closes are the same mark"],
    ),
    (critic({"Right": 1, "right": 0}), ["verdict: labels are words in any case"]),
    ({"verifier.criteria": ["a", " "]}, ["verifier.criteria = ['a', ' ']: must be different"]),
    ({"verifier.criteria": ["a", "a "]}, ["verifier.criteria = ['a', 'a ']: must be different"]),
    # what a verifier's format asks for
    ({"verifier.step_tag": "ки"}, ["verifier: step_tag is 'ки', but format is rlhflow"]),
    ({**custom(), "verifier.step_tag": "ки"}, ["step_tag is 'ки', but format is custom"]),
    (
        {"verifier.format": "math-shepherd", "verifier.step_tag": ""},
        ["verifier.step_tag = '': must not be empty"],
    ),
    ({"verifier.step_tag": 5}, ["verifier.step_tag = 5: must be a text"]),
    ({"verifier.template": TEMPLATE}, ["verifier: template is given, but format is rlhflow"]),
    ({"verifier.format": "custom"}, ["verifier: format is custom, so template is required: head"]),
    ({**custom(), "verifier.template": "x"}, ["verifier.template = 'x': must be a mapping"]),
    (custom(answer=...), ["verifier.template.answer: this field is required"]),
    (custom(tail="x"), ["verifier.template.tail = 'x': unknown", "here: head, answer, turn"]),
    (custom(head="Q: "), ["verifier.template.head = 'Q: ': must hold {question} exactly once"]),
    (custom(head="{question}{question}"), ["template.head = ", "exactly once"]),
    (custom(head="{question} {step}"), ["template.head = ", "must not hold {step}"]),
    (custom(answer="{label}"), ["template.answer = '{label}': must not hold {label}"]),
    (custom(answer="{number}"), ["template.answer = '{number}': must not hold {number}"]),
    (custom(turn="{question}"), ["template.turn = '{question}': must not hold {question}"]),
    (
        custom(turn="\n{label}"),
        ["template.turn = ", "may hold {label} once, at its very beginning"],
    ),
    # what the generator's own engine cannot be asked
    (shared(format="likelihood"), ["verifier: format likelihood needs"]),
    (shared(head="value"), ["verifier: head is value, but the generator's engine has none"]),
    ({"server.grpc_port": 8001, "server.http_port": 8001}, ["server: grpc_port, http_port and"]),
    # parameters of strategies are scalars
    ({"strategies": {"beam": {"n": [1]}}}, ["strategies.beam.n = [1]: must be a number, a text"]),
    ({"strategies": {"beam": {"n": None}}}, ["strategies.beam.n = None: must be a number"]),
    ({"strategies": {"beam": 4}}, ["strategies.beam = 4: must be a mapping of fields"]),
    ({"strategies": ["beam"]}, ["strategies = ['beam']: must be a mapping of fields"]),
    # target tensorrt
    ({**TENSORRT, "generator.threads": 2}, ["generator.threads applies to target openvino only"]),
    ({**TENSORRT, "tensorrt": None}, ["target tensorrt needs the block tensorrt"]),
    ({**TENSORRT, "tensorrt": {"gpu": "v100"}}, ["tensorrt.gpu = 'v100': allowed: a100-40g"]),
    ({**TENSORRT, "tensorrt": {"gpu": "h100", "container": "26.03"}}, ["'26.03': allowed"]),
    (placed(tensor_parallel=2, gpus=[[0]]), ["must name 2 different"]),
    (placed(tensor_parallel=2, gpus=[[1, 1]]), ["must name 2 different"]),
    (placed(expert_parallel=2), ["expert_parallel is 2; it must divide"]),
    (placed(kv_precision="fp8"), ["KV reuse", "precision 'bf16'"]),
    ({"tensorrt": {"gpu": "h100"}}, ["the block tensorrt is for target tensorrt"]),
]


def test_every_format_loads(load):
    assert load({}).verifier.format == "rlhflow"
    assert load({"verifier.format": "math-shepherd"}).verifier.step_tag is None
    tag = {"verifier.format": "math-shepherd", "verifier.step_tag": "<step>"}
    assert load(tag).verifier.step_tag == "<step>"
    template = load(custom(turn="{label}\n")).verifier.template
    assert (template.head, template.turn) == ("{question} ", "{label}\n")
    assert not load(custom(turn="\n{number}. ")).verifier.reads_whole
    for whole in (custom(turn=...), {"verifier.format": "chat", "verifier.scores": "steps"}):
        assert load(whole).verifier.reads_whole


@pytest.mark.parametrize(("fields", "words"), WRONG, ids=lambda value: str(value)[:50])
def test_mistakes_are_explained(load, fields, words):
    with pytest.raises(ConfigError, match=r"changed\.yaml is not a valid deployment") as caught:
        load(fields)
    lines = caught.value.message.splitlines()
    assert len(lines) == 2, "one mistake, one line"
    for word in words:
        assert word in lines[1]


def test_target_tensorrt(load):
    deployment = load(placed(tensor_parallel=2, gpus=[[0, 1], [2, 3]]))
    assert deployment.generator.placement.replicas == ((0, 1), (2, 3))
    assert deployment.verifier.placement.replicas == ((0,),)
    assert deployment.tensorrt.container == "26.07"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "not valid YAML"),
        ("- a\n- b\n", "must hold fields, such as target: openvino."),
        ("", "must hold fields, such as target: openvino."),
        ("name: a\nname: b\n", 'duplicate key "name"'),
        (b"\xff\xfe\x00", "Cannot read the deployment file"),
    ],
)
def test_files_that_are_no_deployment(tmp_path, text, problem):
    file = tmp_path / "wrong.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=problem) as caught:
        load_deployment(file)
    assert "wrong.yaml" in caught.value.message


def test_parameters_of_strategies_are_scalars_and_no_business_of_the_engines(load):
    block = {"anything": {"n": 8, "temperature": 0.5, "how": "min", "early": True}}
    with_block = load({"strategies": block})
    assert with_block.strategies == block
    assert type(with_block.strategies["anything"]["early"]) is bool
    for role in ("generator", "verifier"):
        assert settings_for(EngineInputs(with_block, role)) == settings_for(
            EngineInputs(load({}), role)
        )


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("demmo", r"no deployment 'demmo'(.|\n)*Did you mean demo"),
        ("x" * 5000, "names no deployment: a path may have"),
        ("~no-such-user/x", "no home folder"),
        ("/dev/zero", "a pipe or a device, not a deployment file"),
        ("/tmp", "is a folder, not a deployment file"),
        ("a\0b", "NUL"),
        ("huge.yaml", "at most 1,000,000 are read"),
    ],
)
def test_what_cannot_be_a_deployment_file_is_refused(tmp_path, monkeypatch, name, complaint):
    monkeypatch.chdir(tmp_path)
    with Path("huge.yaml").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(ConfigError, match=complaint):
        load_deployment(name)


def effects():
    """What reading all deployments does beside it, seen by an audit hook, which stays for good."""
    seen = []
    kinds = ("socket.", "subprocess.", "shutil.", "os.mkdir", "os.re", "os.exec")

    def watch(event, arguments):
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        # a module that is imported for the first time is compiled
        if (event.startswith(kinds) or writes) and "__pycache__" not in str(arguments):
            seen.append(f"{event} {arguments}")

    sys.addaudithook(watch)
    for name in bundled_deployments():
        load_deployment(name)
    return seen


def test_reading_a_deployment_has_no_other_effect(home, capfd):
    assert said_in_a_fork(effects) == "[]"
    assert capfd.readouterr() == ("", "")
    assert not home.exists()


def test_many_and_long_mistakes_are_cut_short(tmp_path):
    file = tmp_path / "d.yaml"
    file.write_text("".join(f"field{i}: {'x' * 1000}\n" for i in range(100)))
    with pytest.raises(ConfigError, match="and 84 more") as caught:
        load_deployment(file)
    assert len(str(caught.value)) < 10_000


def test_a_deployment_knows_what_the_user_named_it(tmp_path):
    text = (paths.deployments_dir() / "demo.yaml").read_text()
    file = tmp_path / "my file.yaml"
    file.write_text(text)
    assert load_deployment("demo").argument == "demo"
    assert load_deployment(file).argument == f"'{file}'"
    data = load_deployment("demo").model_dump()
    assert Deployment.model_validate(data).argument == "demo"


def test_an_engine_judges_only_where_it_is_the_verifier_as_well(load):
    own, both = load({}), load(shared())
    mixed = both.model_copy(update={"verifier": own.verifier})
    assert [each.engines()["generator"].judges for each in (own, both, mixed)] == [0, 1, 0]
    Deployment.model_validate(dict(own) | {"verifier": both.verifier})
    assert not own.engines()["generator"].judges
