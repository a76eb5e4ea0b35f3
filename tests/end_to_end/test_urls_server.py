"""An engine by its URL, a stand-in: beside one on the real server, and behind a gateway."""

import pytest
import yaml
from tests.end_to_end.commands import quiet, summary
from tests.end_to_end.gateways import gateway, reply
from tests.endpoints.openai.stand_in import StandIn, answering

from tts.base import paths

DEPLOYMENT = paths.deployments_dir() / "demo-beside-openai.yaml"
CHECKPOINTS = paths.deployments_dir().parent / "checkpoints"

pytestmark = pytest.mark.server


@pytest.fixture
def url():
    with answering(StandIn("vllm")) as found:
        yield found


def written(folder, url, **changes):
    """The bundled deployment of a generator by URL, with this one."""
    data = yaml.safe_load(DEPLOYMENT.read_text()) | changes
    tokenizer = str(CHECKPOINTS / "demo-generator")
    data["generator"] |= {"url": url, "tokenizer": tokenizer, "max_seq_len": 160}
    if "checkpoint" in data["verifier"]:
        data["verifier"]["checkpoint"] = str(CHECKPOINTS / "demo-verifier")
    file = folder / "mixed.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


def test_a_generator_by_url_beside_a_verifier_on_triton(url, tmp_path):
    file, run = written(tmp_path, url), tmp_path / "run"
    asked = ("--limit", 3, "--n", 4, "--set", "num_iterations=2", "--set", "max_tokens=8")
    with quiet(tmp_path) as tts:
        tts.done("build-engines", file, "--no-verify")
        out, err = tts.done("plan", file)
        assert "pair" not in out + err
        tts.done("bench", file, *asked, "--out", run)
        before = summary(run)
        assert before["verifier_calls"] > 0
        (run / "summary.json").unlink()
        tts.done("bench", "--resume", run)
        assert summary(run)["tree_digest"] == before["tree_digest"]


def test_a_gateway_in_front_of_engines_by_url(url, tmp_path):
    verifier = {
        "url": url,
        "tokenizer": str(CHECKPOINTS / "demo-verifier"),
        "max_seq_len": 192,
        "in_flight_tokens": 512,
        "format": "rlhflow",
        "labels": ["+", "-"],
    }
    file = written(tmp_path, url, target="openai", verifier=verifier, name="far")
    (tmp_path / "own_prm.py").write_text("def score(question, steps):\n    return 0.25\n")
    options = ("--verifier", f"{tmp_path}/own_prm.py:score")
    with quiet(tmp_path) as tts, gateway(tts, *options, deployment=file) as address:
        body = {
            "model": "far:best-of-n",
            "messages": [{"role": "user", "content": "Compute 12 + 30."}],
            "max_tokens": 8,
            "tts": {"n": 2},
        }
        said = reply(address, "/v1/chat/completions", body).json()
        assert said["choices"][0]["message"]["content"]
