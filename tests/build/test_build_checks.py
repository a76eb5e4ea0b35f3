"""What is refused before anything is built."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.build.openvino_build import Deploy, build

from tts.build.builder import require_current
from tts.build.errors import CheckpointError, ConfigError
from tts.build.openvino import runtime as openvino_runtime
from tts.build.spec import Deployment


def test_a_format_that_cannot_be_made_stops_building_and_serving(
    deployment: Deploy, home: Path
) -> None:
    data = deployment().model_dump()
    data["verifier"] |= {"format": "math-shepherd", "step_tag": "w7 w8"}
    wrong = Deployment.model_validate(data)
    with pytest.raises(CheckpointError, match=r"verifier\.step_tag: 'w7 w8' is 2 tokens"):
        build(wrong)
    assert not (home / "built" / "test" / "generator").exists()
    build(deployment())
    with pytest.raises(CheckpointError, match=r"verifier\.step_tag: 'w7 w8' is 2 tokens"):
        require_current(wrong)


def test_nothing_is_built_when_one_checkpoint_is_wrong(
    deployment: Deploy, home: Path, tmp_path: Path
) -> None:
    data = deployment().model_dump()
    data["verifier"]["checkpoint"] = tmp_path / "nowhere"
    with pytest.raises(CheckpointError, match="nowhere"):
        build(Deployment.model_validate(data))
    assert not (home / "built" / "test" / "generator").exists()


def test_label_that_is_not_one_token(deployment: Deploy) -> None:
    data = deployment().model_dump()
    data["verifier"]["labels"] = {"positive": "w7 w8", "negative": "-"}
    with pytest.raises(CheckpointError, match=r"labels\.positive: 'w7 w8' is 2 tokens") as caught:
        build(Deployment.model_validate(data))
    assert "Set verifier.labels.positive in the deployment file" in str(caught.value.hint)


def test_labels_that_are_the_same_token(deployment: Deploy) -> None:
    data = deployment().model_dump()
    data["verifier"]["labels"] = {"positive": "good", "negative": "bad"}  # both <unk>
    with pytest.raises(CheckpointError, match="'good', 'bad' are the same token 0"):
        build(Deployment.model_validate(data))


def test_sequences_longer_than_the_model(deployment: Deploy) -> None:
    with pytest.raises(ConfigError, match=r"generator\.max_seq_len is 1024.*embeddings 512"):
        build(deployment(max_seq_len=1024))
    build(deployment())
    with pytest.raises(ConfigError, match=r"generator\.max_seq_len is 1024"):
        require_current(deployment(max_seq_len=1024))


def test_tokenizer_larger_than_the_embedding(deployment: Deploy, llama: Path) -> None:
    file = llama / "tokenizer.json"
    data = json.loads(file.read_text())
    data["model"]["vocab"] |= {f"more{index}": 128 + index for index in range(10)}
    file.write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="ids up to 137, but the model's vocab_size is 128"):
        build(deployment())


def test_end_token_outside_the_vocabulary(deployment: Deploy, llama: Path) -> None:
    (llama / "generation_config.json").write_text('{"eos_token_id": [2, 500]}')
    with pytest.raises(CheckpointError, match="eos_token_id 500 is outside"):
        build(deployment())


def test_bf16_is_refused_where_the_cpu_cannot_serve_it(
    deployment: Deploy, monkeypatch: Any, home: Path
) -> None:
    monkeypatch.setattr(openvino_runtime, "cpu_flags", lambda: {"avx2", "avx512f"})
    with pytest.raises(
        ConfigError, match=r"generator\.precision is 'bf16'.*no AVX512-BF16"
    ) as caught:
        build(deployment(precision="bf16"))
    assert "fp32 or int8" in str(caught.value.hint)
    assert not (home / "built" / "test" / "generator").exists()
    monkeypatch.setattr(openvino_runtime, "cpu_flags", lambda: {"avx2", "avx512f", "avx512_bf16"})
    assert [report.status for report in build(deployment(precision="bf16"))] == ["built"] * 2
