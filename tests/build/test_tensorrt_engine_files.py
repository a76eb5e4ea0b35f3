"""An engine is what was asked for, or it is refused."""

import json
import shutil

import pytest
from tests.build.stand_in_build import build, conversions, nothing_half_built

from tts.base.errors import BuildError
from tts.build.model_config import shape_of
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import expected_engine
from tts.build.tensorrt.engine_files import require_as_asked

OVERRIDES = [
    ("build_config.plugin_config.use_paged_context_fmha", False, "neither KV reuse nor chunked"),
    ("build_config.plugin_config.context_fmha", False, "neither KV reuse nor chunked"),
    ("build_config.plugin_config.use_fp8_context_fmha", True, "is true, not false"),
    ("build_config.plugin_config.remove_input_padding", False, "batched in flight"),
    ("build_config.plugin_config.gpt_attention_plugin", None, "is null"),
    ("build_config.plugin_config.tokens_per_block", 64, "is 64, not 32"),
    ("build_config.kv_cache_type", "CONTINUOUS", "without paging"),
    ("build_config.max_batch_size", 4, "is 4, not 8"),
    ("build_config.max_num_tokens", 128, "is 128, not 256"),
    ("build_config.max_seq_len", 64, "is 64, not 128"),
    ("build_config.max_input_len", 100, "prompts beyond it"),
    ("build_config.max_beam_width", 2, "is 2, not 1"),
    ("build_config.gather_generation_logits", True, "is true, not false"),
    ("pretrained_config.logits_dtype", "float16", 'is "float16", not "float32"'),
    ("pretrained_config.dtype", "float16", 'is "float16", not "bfloat16"'),
    ("pretrained_config.quantization.quant_algo", "FP8", 'is "FP8", not null'),
    ("pretrained_config.quantization.kv_cache_quant_algo", "INT8", "another size than planned"),
    ("pretrained_config.mapping.tp_size", 2, "is 2, not 1"),
    ("pretrained_config.mapping.world_size", 2, "one process per rank"),
    ("version", "1.1.0", "it is of TensorRT-LLM 1.1.0, not 1.2.1"),
]


def test_a_silent_override_leaves_nothing(deploy, misbehave, home, state):
    misbehave(override={"build_config.max_batch_size": 4})
    with pytest.raises(BuildError) as caught:
        build(deploy())
    first, problem = caught.value.message.splitlines()
    assert first == "The engine that trtllm-build made is not what was asked for:"
    assert "build_config.max_batch_size is 4, not 8" in problem
    assert nothing_half_built(home)
    misbehave()
    assert build(deploy()).status == "built"
    assert conversions(state) == 1


def test_every_silent_override_is_refused(deploy, tmp_path):
    deployment = deploy()
    folder = build(deployment).folder
    model = shape_of(deployment.generator.checkpoint, "tensorrt")
    expected = expected_engine(deployment.generator, model)
    require_as_asked(folder, expected)
    for path, value, text in OVERRIDES:
        config = json.loads((folder / "config.json").read_text())
        *parents, last = path.split(".")
        place = config
        for parent in parents:
            place = place[parent]
        place[last] = value
        changed = tmp_path / "changed"
        shutil.copytree(folder, changed)
        (changed / "config.json").write_text(json.dumps(config))
        with pytest.raises(BuildError) as caught:
            require_as_asked(changed, expected)
        assert text in caught.value.message
        assert path == "version" or path in caught.value.message
        shutil.rmtree(changed)


def test_every_field_that_is_read_back_has_its_test():
    tested = {path for path, _, _ in OVERRIDES}
    fields = {name: field.path for name, field in contract.engine_fields().items()}
    assert {p for n, p in fields.items() if n not in ("pp_size", "moe_ep_size")} <= tested


@pytest.mark.parametrize("file", ["rank1.engine", "config.json"])
def test_a_missing_file_is_refused(deploy, misbehave, home, file):
    misbehave(without=file)
    with pytest.raises(BuildError, match=rf"{file} is missing|wrote no {file}"):
        build(deploy(tensorrt={"tensor_parallel": 2}))
    assert nothing_half_built(home)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"version": ' + "1" * 5000 + "}", "{"])
def test_a_damaged_config_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(BuildError, match=r"config\.json that is not JSON"):
        require_as_asked(tmp_path, {"world_size": 1})
