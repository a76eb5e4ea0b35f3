"""The facts on TensorRT-LLM, and the script in the container against them."""

import ast
import json
from pathlib import Path
from typing import get_args

import pytest
from tests.build.standin.build_arguments import check_build_arguments

from tts.build.errors import CheckpointError
from tts.build.spec import Gpu, TensorRTSpec
from tts.build.tensorrt import contract, in_container
from tts.build.tensorrt.commands import (
    SCRIPT,
)
from tts.build.tensorrt.model_shape import shape_of


def test_a_checkpoint_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "auto_map": {"AutoModel": "evil.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="brings Python code of its own"):
        shape_of(tmp_path, "tensorrt")


def test_containers_and_gpus_of_the_spec_are_known() -> None:
    tags = get_args(TensorRTSpec.model_fields["container"].annotation)
    assert tuple(contract.containers()) == tags
    for gpu in get_args(Gpu):
        major, _, minor = contract.compute_capability(gpu).partition(".")
        assert (int(major), int(minor)) >= (8, 0)
    assert {c.tensorrt_llm for c in contract.containers().values()} == {contract.TENSORRT_LLM}


def test_every_contract_file_names_its_sources() -> None:
    files = sorted((Path(contract.__file__).parent / "contract").glob("*.json"))
    assert len(files) == 5
    for file in files:
        assert json.loads(file.read_text())["sources"], file.name


CALLED = {
    "Mapping": "tensorrt_llm.Mapping",
    "QuantConfig": "tensorrt_llm.llmapi.QuantConfig",
    "from_hugging_face": "tensorrt_llm.models.LLaMAForCausalLM.from_hugging_face",
    "quantize": "PretrainedModel.quantize",
    "save_checkpoint": "PretrainedModel.save_checkpoint",
}


def test_the_script_in_the_container_calls_the_api_as_it_is() -> None:
    tree = ast.parse(SCRIPT.read_text())
    seen = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if name not in CALLED:
            continue
        seen.add(name)
        call = contract.python_calls()[CALLED[name]]
        keywords = {keyword.arg for keyword in node.keywords if keyword.arg}
        assert len(node.args) <= len(call.positional)
        assert keywords <= {*call.positional, *call.keywords}, name
        assert set(call.required) <= {*call.positional[: len(node.args)], *keywords}
    assert seen == set(CALLED)
    both = [contract.python_calls()[f"tensorrt_llm.models.{name}.from_hugging_face"]
            for name in ("LLaMAForCausalLM", "QWenForCausalLM")]  # fmt: skip
    assert set(both[1].keywords) <= set(both[0].keywords)


def test_the_script_in_the_container_stands_alone() -> None:
    tree = ast.parse(Path(in_container.__file__).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert not (node.module or "").startswith("tts")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("8", "'8' belongs to no flag"),
        ("--quite_new 8", "--quite_new is not a flag of trtllm-build"),
        ("--max_batch_size 8 --max_batch_size 9", "--max_batch_size is given twice"),
        ("--max_batch_size ", "--max_batch_size: is empty"),
        ("--max_batch_size 8 9", "--max_batch_size: takes one value, but has 2"),
        ("--max_batch_size eight", "--max_batch_size: 'eight' is not a whole number"),
        ("--max_batch_size 0", "--max_batch_size: 0 is less than 1"),
        ("--tokens_per_block 33", "--tokens_per_block: 33 is not a power of two"),
        ("--max_input_len 9 --max_seq_len 8", "--max_input_len is larger than --max_seq_len (8)"),
        (
            "--max_num_tokens 65 --max_batch_size 8 --max_seq_len 8",
            "--max_num_tokens is clipped to max_batch_size x max_seq_len (64)",
        ),
        (
            "--context_fmha disable --use_paged_context_fmha enable",
            "--use_paged_context_fmha is switched off by --context_fmha disable",
        ),
    ],
)
def test_what_is_wrong_with_a_build_is_said(arguments: str, problem: str) -> None:
    assert problem in check_build_arguments(arguments.split(" "))


def test_sizes_that_fit_have_no_problem() -> None:
    sizes = "--max_num_tokens 64 --max_batch_size 8 --max_seq_len 8 --max_input_len 8"
    found = check_build_arguments(sizes.split())
    assert [each for each in found if not each.endswith(" is missing")] == []
