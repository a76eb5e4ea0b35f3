"""The exported engine in the pipeline that serves it: OpenVINO GenAI's continuous batching."""

import numpy as np
import pytest

from tts.build.builder import build_engines
from tts.build.manifest import read_engine_config
from tts.build.openvino.runtime import BF16_FLAG, cpu_flags, plugin_properties


def pipeline(folder):
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = 32
    properties = plugin_properties(read_engine_config(folder).precision)
    return genai.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties, {})


def generate(engine, prompt, tokens):
    return generate_all(engine, [prompt], tokens)[0]


def generate_all(engine, prompts, tokens):
    import openvino
    import openvino_genai as genai

    config = genai.GenerationConfig(
        max_new_tokens=tokens, do_sample=False, eos_token_id=2, stop_token_ids={2}, logprobs=1
    )
    handles = [
        engine.add_request(number, openvino.Tensor(np.array([prompt], np.int64)), config)
        for number, prompt in enumerate(prompts)
    ]
    while engine.has_non_finished_requests():
        engine.step()
    return [handle.read_all()[0] for handle in handles]


def build(deployment, role):
    (report,) = build_engines(deployment, roles=[role], verify=False, say=print)
    return report.folder


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("LlamaForCausalLM", {}),
        ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
        ("Qwen3ForCausalLM", {}),
    ],
)
def test_greedy_tokens_are_those_of_transformers(
    torch, deployment, make_checkpoint, make_model, architecture, options
):
    prompt = [1, 17, 90, 45, 6]
    model, expected = make_model(architecture, **options), list(prompt)
    with torch.no_grad():
        while len(expected) < len(prompt) + 24 and expected[-1] != 2:
            expected.append(int(model(torch.tensor([expected])).logits[0, -1].argmax()))
    checkpoint = make_checkpoint(architecture, **options)
    folder = build(deployment(checkpoint=checkpoint), "generator")
    result = generate(pipeline(folder), prompt, 24)
    assert list(result.generated_ids) == expected[len(prompt) :]


runs_bf16 = pytest.mark.skipif(BF16_FLAG not in cpu_flags(), reason=f"this CPU has no {BF16_FLAG}")


@pytest.mark.parametrize(
    ("precision", "limit"),
    [("fp32", 1e-5), pytest.param("bf16", 0.05, marks=runs_bf16), ("int8", 0.05)],
)
def test_verifier_probability_is_that_of_transformers(
    torch, deployment, make_model, precision, limit
):
    prompt = [1, 17, 90, 45, 6, 33]
    with torch.no_grad():
        labels = make_model()(torch.tensor([prompt])).logits[0, -1, [3, 4]]
    expected = float(torch.softmax(labels, -1)[0])
    folder = build(deployment(precision=precision), "verifier")
    result = generate(pipeline(folder), prompt, 1)
    likely = float(np.exp(result.generated_log_probs[0]))
    positive = likely if result.generated_ids[0] == 0 else 1 - likely
    assert abs(positive - expected) < limit


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_sequence_does_not_depend_on_its_neighbours(deployment, precision):
    """Activations that are quantised have a scale of their own token, not of the batch."""
    prompts = [[1, 17 + number, 90, 45 - number] for number in range(8)]
    folder = build(deployment(precision=precision), "generator")
    alone, together = pipeline(folder), pipeline(folder)
    expected = [generate(alone, prompt, 12) for prompt in prompts]
    for one, other in zip(generate_all(together, prompts, 12), expected, strict=True):
        assert one.generated_ids == other.generated_ids
        assert np.allclose(one.generated_log_probs, other.generated_log_probs, atol=1e-4)
