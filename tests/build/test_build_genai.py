"""The exported engine in the pipeline that serves it: OpenVINO GenAI's continuous batching."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tts.build.builder import build_engines
from tts.build.openvino_runtime import plugin_properties


def pipeline(folder: Path) -> Any:
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = 32
    return genai.ContinuousBatchingPipeline(folder, scheduler, "CPU", plugin_properties("fp32"), {})


def generate(engine: Any, prompt: list[int], tokens: int) -> Any:
    import openvino
    import openvino_genai as genai

    config = genai.GenerationConfig(
        max_new_tokens=tokens, do_sample=False, eos_token_id=2, stop_token_ids={2}, logprobs=1
    )
    handle = engine.add_request(0, openvino.Tensor(np.array([prompt], np.int64)), config)
    while engine.has_non_finished_requests():
        engine.step()
    return handle.read_all()[0]


@pytest.fixture
def engines(deployment: Any) -> dict[str, Path]:
    reports = build_engines(deployment(), verify=False, say=print)
    return {report.role: report.folder for report in reports}


def test_greedy_tokens_are_those_of_transformers(engines: dict[str, Path], make_model: Any) -> None:
    import torch

    prompt = [1, 17, 90, 45, 6]
    model, expected = make_model(), list(prompt)
    with torch.no_grad():
        while len(expected) < len(prompt) + 24 and expected[-1] != 2:
            expected.append(int(model(torch.tensor([expected])).logits[0, -1].argmax()))
    result = generate(pipeline(engines["generator"]), prompt, 24)
    assert list(result.generated_ids) == expected[len(prompt) :]


def test_verifier_probability_is_that_of_transformers(
    engines: dict[str, Path], make_model: Any
) -> None:
    import torch

    prompt = [1, 17, 90, 45, 6, 33]
    with torch.no_grad():
        labels = make_model()(torch.tensor([prompt])).logits[0, -1, [3, 4]]
    expected = float(torch.softmax(labels, -1)[0])
    result = generate(pipeline(engines["verifier"]), prompt, 1)
    likely = float(np.exp(result.generated_log_probs[0]))
    positive = likely if result.generated_ids[0] == 0 else 1 - likely
    assert abs(positive - expected) < 1e-5
