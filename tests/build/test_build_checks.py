"""What is refused before anything is built."""

import json

import pytest
from tests.build.openvino_build import build

from tts.base.errors import CheckpointError, ConfigError
from tts.build.builder import require_current
from tts.build.openvino import runtime as openvino_runtime
from tts.build.spec import Deployment


def test_a_format_that_cannot_be_made_stops_building_and_serving(deployment, home):
    data = deployment().model_dump()
    data["verifier"] |= {"format": "math-shepherd", "step_tag": "w7 w8"}
    wrong = Deployment.model_validate(data)
    with pytest.raises(CheckpointError, match=r"verifier\.step_tag: 'w7 w8' is 2 tokens"):
        build(wrong)
    assert not (home / "built" / "test" / "generator").exists()
    build(deployment())
    with pytest.raises(CheckpointError, match=r"verifier\.step_tag: 'w7 w8' is 2 tokens"):
        require_current(wrong)


def test_nothing_is_built_when_one_checkpoint_is_wrong(deployment, home, tmp_path):
    data = deployment().model_dump()
    data["verifier"]["checkpoint"] = tmp_path / "nowhere"
    with pytest.raises(CheckpointError, match="nowhere"):
        build(Deployment.model_validate(data))
    assert not (home / "built" / "test" / "generator").exists()


def test_sequences_longer_than_the_model(deployment):
    with pytest.raises(ConfigError, match=r"generator\.max_seq_len is 513.*embeddings 512"):
        build(deployment(max_seq_len=513))
    build(deployment())
    require_current(deployment(max_seq_len=512))
    with pytest.raises(ConfigError, match=r"generator\.max_seq_len is 513"):
        require_current(deployment(max_seq_len=513))


def verifier(**fields):
    return {"verifier": fields}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            verifier(labels=["w7 w8", "-"]),
            r"labels: 'w7 w8' is 2 tokens",
        ),
        (
            verifier(labels=["good", "bad"]),  # both <unk>
            "'good' and 'bad' are the same token 0",
        ),
        ({"vocab": 1}, "ids up to 128, but the model's vocab_size is 128"),
        ({"eos_token_id": [2, 128]}, "eos_token_id 128 is outside"),
    ],
)
def test_a_tokenizer_that_does_not_go_with_the_model_or_its_labels(
    deployment, llama, change, message
):
    file = llama / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    more = range(128, 128 + change.get("vocab", 0))
    tokenizer["model"]["vocab"] |= {f"more{index}": index for index in more}
    file.write_text(json.dumps(tokenizer))
    ends = {"eos_token_id": change.get("eos_token_id", 2)}
    (llama / "generation_config.json").write_text(json.dumps(ends))
    data = deployment().model_dump()
    data["verifier"] |= change.get("verifier", {})
    with pytest.raises(CheckpointError, match=message):
        build(Deployment.model_validate(data))


def test_bf16_is_refused_where_the_cpu_cannot_serve_it(deployment, monkeypatch, home):
    monkeypatch.setattr(openvino_runtime, "cpu_flags", lambda: {"avx2", "avx512f"})
    with pytest.raises(
        ConfigError, match=r"generator\.precision is 'bf16'.*no AVX512-BF16"
    ) as caught:
        build(deployment(precision="bf16"))
    assert "fp32 or int8" in str(caught.value.hint)
    assert not (home / "built" / "test" / "generator").exists()
    monkeypatch.setattr(openvino_runtime, "cpu_flags", lambda: {"avx2", "avx512f", "avx512_bf16"})
    assert [report.status for report in build(deployment(precision="bf16"))] == ["built"] * 2
