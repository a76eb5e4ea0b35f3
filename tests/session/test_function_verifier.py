"""A deployment whose verifier is a Python function: what executes it, and what refuses it."""

import asyncio

import pytest
from tests.cli.runner import asked_runs, tts

from tts.base import paths
from tts.base.errors import ConfigError
from tts.build.spec import VerifierCalibration, VerifierFunction, load_deployment
from tts.lab.bench.single_run import prepare
from tts.lab.observer import Observer
from tts.runs.config import RunConfig
from tts.session import AsyncSession, Session
from tts.session.functions import sources_of

QUESTION = "Compute 1 + 2."
PRM = "CALLS = []\n\n\ndef score(question, steps):\n    CALLS.append(steps)\n    return 0.25\n"


@pytest.fixture
def file(tmp_path):
    """The file of a deployment whose generator is the demo's, beside that of its function."""
    demo = paths.deployments_dir() / "demo.yaml"
    before, _, after = demo.read_text().partition("verifier: ")
    server = after.partition("server:")[2]
    text = f"{before}verifier: {{function: prm_of_a_file.py:score}}\n\nserver:{server}"
    checkpoints = demo.parent.parent / "checkpoints"
    (tmp_path / "prm_of_a_file.py").write_text(PRM)
    written = tmp_path / "mine.yaml"
    written.write_text(
        text.replace("name: demo", "name: mine").replace("../checkpoints", str(checkpoints))
    )
    return written


@pytest.fixture
def deployment(file, tiny_deployment):
    """The tiny deployment with that function."""
    return tiny_deployment.model_copy(update={"verifier": load_deployment(file).verifier})


def test_the_path_starts_at_the_file_and_nothing_is_executed(file, tmp_path, monkeypatch):
    (tmp_path / "prm_of_a_file.py").write_text(
        "raise RuntimeError('executed')\ndef score(question, steps): ..."
    )
    monkeypatch.chdir("/")
    spec = load_deployment(file)
    assert spec.verifier == VerifierFunction(function=f"{tmp_path}/prm_of_a_file.py:score")
    assert list(spec.engines()) == list(spec.roles()) == ["generator"]
    assert [tts(command, file).code for command in ("lint", "plan")] == [0, 0]


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ("{function: my_prm}", "must be FILE.py:NAME"),
        ("{function: 'my_prm.py:'}", "must be FILE.py:NAME"),
        ("{function: 'm.py:score', format: rlhflow}", "unknown field; allowed here: "),
        ("{function: 7}", "must be a text"),
    ],
)
def test_mistakes_are_explained_as_those_of_a_function(file, section, complaint):
    file.write_text(file.read_text().replace("{function: prm_of_a_file.py:score}", section))
    with pytest.raises(ConfigError, match=complaint):
        load_deployment(file)


def test_beside_it_only_a_cpu_compiles(file):
    file.write_text(file.read_text().replace("target: openvino", "target: tensorrt"))
    with pytest.raises(
        ConfigError, match="beside a function or a command one can be compiled for target openv"
    ):
        load_deployment(file)


def calibrated(deployment):
    measured = VerifierCalibration(final=[(0.0, 0.5), (1.0, 1.0)])
    verifier = deployment.verifier.model_copy(update={"calibration": measured})
    return deployment.model_copy(update={"verifier": verifier})


def test_a_session_is_scored_by_it_unless_it_is_given_another(deployment, endpoints):
    generator = endpoints["generator"]
    with Session.open(calibrated(deployment), generator=generator) as session:
        result = session.solve(QUESTION, n=4)
        assert {each.probability for each in result.completions} == {0.625}
        assert {each.score for each in result.completions} == {0.25}
        assert {score for each in result.completions for score in each.step_scores} == {0.25}
        assert session.score(QUESTION, ["1 + 2 = 3"]).completions[0].score == 0.25
    with Session.open(deployment, generator=generator, verifier=lambda q, steps: 0.75) as session:
        assert session.score(QUESTION, ["1 + 2 = 3"]).completions[0].score == 0.75


def test_what_did_not_load_it_searches_with_nothing_else(deployment, endpoints, file):
    async def opened():
        async with AsyncSession(deployment, generator=endpoints["generator"]):
            pass

    with pytest.raises(ConfigError, match=r"the verifier is .*prm_of_a_file\.py:score"):
        asyncio.run(opened())
    config = RunConfig(deployment_source=str(file), dataset="demo", limit=1)
    with pytest.raises(ConfigError, match="only if the command names"):
        prepare(config, Observer(), problems=[])


@pytest.mark.parametrize("command", [["bench"], ["solve", QUESTION, "--deployment"]])
def test_a_command_that_names_the_deployment_names_its_function(
    file, tmp_path, monkeypatch, command
):
    asked = asked_runs(monkeypatch)
    tts(*command, file)
    other = tmp_path / "other_prm.py"
    other.write_text(PRM)
    tts(*command, file, "--verifier", f"{other}:score")
    assert [config.sources["verifier"].file for config in asked] == [
        str(tmp_path / "prm_of_a_file.py"),
        str(other),
    ]
    assert asked[0].sources == sources_of(load_deployment(file))


def test_the_doctor_asks_the_generators_server_alone(file):
    checkpoints = paths.deployments_dir().parent / "checkpoints"
    file.write_text(
        "name: mine\ntarget: openai\ngenerator:\n  url: http://127.0.0.1:9\n"
        f"  tokenizer: {checkpoints / 'demo-generator'}\n  max_seq_len: 320\n"
        "  in_flight_requests: 4\nverifier: {function: prm_of_a_file.py:score}\n"
    )
    said = tts("doctor", file).said
    assert "generator at http://127.0.0.1:9" in said
    assert "verifier at" not in said


def test_a_calibration_does_not_count_for_a_function_in_place_of_a_model(
    tiny_deployment, endpoints
):
    spec = calibrated(tiny_deployment)
    generator = endpoints["generator"]
    with Session.open(spec, generator=generator, verifier=lambda q, steps: 0.25) as session:
        result = session.solve(QUESTION, n=4)
    assert {each.score for each in result.completions} == {0.25}
