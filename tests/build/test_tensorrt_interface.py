"""What the container offers is recorded and compared with the facts before anything is spent."""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.build.stand_in_build import Deploy, Misbehave, build, calls, conversions, option_of
from tests.build.tensorrt_deployments import WORK, deployments, model

from tts.build.errors import BuildError
from tts.build.spec import Deployment
from tts.build.tensorrt import contract, in_container
from tts.build.tensorrt.commands import calls as calls_of
from tts.build.tensorrt.commands import steps
from tts.build.tensorrt.interface import (
    ToolDifference,
    algorithm_differences,
    call_differences,
    help_differences,
    parse_help,
    require_interface,
)


def help_of(flags: dict[str, contract.Flag], width: int = 200) -> str:
    """The help that argparse prints for a trtllm-build with these flags."""
    parser = argparse.ArgumentParser(
        "trtllm-build",
        formatter_class=lambda prog: argparse.ArgumentDefaultsHelpFormatter(prog, width=width),
    )
    for name, flag in flags.items():
        if flag.type == "switch":
            parser.add_argument(name, *flag.aliases, action="store_true", help="see --other_flag.")
        else:
            kind: Any = {"nargs": "+"} if flag.type == "texts" else {}
            shown = f"instead of --old_{flag.type}; a sentence. " * 4
            parser.add_argument(name, *flag.aliases, choices=flag.choices, help=shown, **kind)
    return parser.format_help()


def compilation(deployment: Deployment, role: Any) -> list[str]:
    return list(steps(deployment, role, model(), WORK)[-1].command[1:])


roles = st.sampled_from(["generator", "verifier"])


@given(deployments(), roles, st.integers(80, 300))
def test_a_container_as_the_facts_have_it_differs_in_nothing(
    deployment: Deployment, role: Any, width: int
) -> None:
    text = help_of(dict(contract.build_flags()), width)
    assert list(help_differences(text, compilation(deployment, role))) == []


@given(deployments(), roles, st.data())
def test_a_flag_that_is_gone_stops_the_builds_that_give_it_and_no_others(
    deployment: Deployment, role: Any, data: Any
) -> None:
    arguments = compilation(deployment, role)
    gone = data.draw(st.sampled_from(sorted(contract.build_flags())))
    flags = {name: flag for name, flag in contract.build_flags().items() if name != gone}
    (difference,) = help_differences(help_of(flags), arguments)
    assert difference.stops == (gone in arguments)
    assert gone in difference.what


@given(deployments(), roles, st.data())
def test_a_choice_that_is_gone_stops_the_builds_that_make_it(
    deployment: Deployment, role: Any, data: Any
) -> None:
    arguments = compilation(deployment, role)
    chosen = [
        (name, value)
        for name, value in itertools.pairwise(arguments)
        if name in contract.build_flags() and value in (contract.build_flags()[name].choices or ())
    ]
    name, value = data.draw(st.sampled_from(chosen))
    flags = dict(contract.build_flags())
    left = tuple(choice for choice in flags[name].choices or () if choice != value)
    flags[name] = flags[name].model_copy(update={"choices": left})
    found = list(help_differences(help_of(flags), arguments))
    assert [f"not {value}" in difference.what for difference in found if difference.stops] == [True]


def test_a_flag_of_another_kind_stops_the_build() -> None:
    flags = dict(contract.build_flags())
    switch, value = contract.Flag(type="switch"), contract.Flag(type="text")
    flags["--gather_generation_logits"], flags["--max_batch_size"] = value, switch
    given_ = ["--gather_generation_logits", "--max_batch_size", "8"]
    found = [d.what for d in help_differences(help_of(flags), given_) if d.stops]
    assert found == [
        "--gather_generation_logits of trtllm-build takes a value; none is given",
        "--max_batch_size of trtllm-build takes no value; one is given",
    ]


def test_new_flags_are_noted_and_an_unreadable_help_stops_nothing() -> None:
    flags = dict(contract.build_flags()) | {"--quite_new": contract.Flag(type="int")}
    (difference,) = help_differences(help_of(flags), [])
    assert difference == ToolDifference("trtllm-build also has --quite_new", stops=False)
    (difference,) = help_differences("no help today", ["--max_batch_size", "8"])
    assert not difference.stops


def test_help_of_several_names_and_folded_lines_is_read() -> None:
    options = parse_help(
        "options:\n  -h, --help            show this\n"
        "  --workers WORKERS, -w WORKERS\n                        how many; see --other\n"
        "  --kind {a,b c}        one of\n  --dirs DIRS [DIRS ...]\n  --maybe [MAYBE]  or not\n"
    )
    assert set(options) == {"-h", "--help", "--workers", "-w", "--kind", "--dirs", "--maybe"}
    assert options["--maybe"].takes_value
    assert not options["--maybe"].needs_value
    assert options["--dirs"].needs_value
    assert options["-w"].takes_value
    assert options["--kind"].choices == ("a", "b c")
    assert not options["--help"].takes_value
    assert parse_help("  --one VALUE, --o(ther) VALUE\n") == {}  # not half of a line


def signature(names: list[str], *, kind: str = "POSITIONAL_OR_KEYWORD") -> dict[str, Any]:
    parameters = [{"name": name, "kind": kind, "required": False} for name in names]
    return {"there": True, "text": f"({', '.join(names)})", "parameters": parameters}


made_calls = st.builds(
    contract.CallMade,
    positional=st.integers(0, 2),
    keywords=st.lists(st.sampled_from("pqrst"), unique=True).map(tuple),
)


@given(made_calls, st.data())
def test_a_call_stops_a_build_exactly_when_the_function_would_not_take_it(
    made: contract.CallMade, data: Any
) -> None:
    first = ["a", "b"][: data.draw(st.integers(0, 2))]
    named = data.draw(st.lists(st.sampled_from("pqrst"), unique=True))
    needed = data.draw(st.sets(st.sampled_from([*first, *named]))) if first or named else set()
    takes_any = data.draw(st.booleans())
    found = signature(first, kind="POSITIONAL_ONLY")
    found["parameters"] += signature(named, kind="KEYWORD_ONLY")["parameters"]
    for parameter in found["parameters"]:
        parameter["required"] = parameter["name"] in needed
    if takes_any:
        found["parameters"] += signature(["rest"], kind="VAR_KEYWORD")["parameters"]

    body = ", ".join(
        [
            *(name if name in needed else f"{name}=0" for name in first),
            *(["/"] if first else []),
            *(["*"] if named else []),
            *(name if name in needed else f"{name}=0" for name in named),
            *(["**rest"] if takes_any else []),
        ]
    )
    try:
        function = eval(f"lambda {body}: None")
    except SyntaxError:  # a parameter without a default behind one with: no such function
        return
    try:
        function(*range(made.positional), **dict.fromkeys(made.keywords, 0))
        taken = True
    except TypeError:
        taken = False
    stops = [d.what for d in call_differences({"f": found}, {"f": made}) if d.stops]
    assert taken == (not stops)


def test_a_function_that_is_not_there_stops_the_build() -> None:
    made = {"tensorrt_llm.Mapping": contract.CallMade(positional=0, keywords=())}
    seen: dict[str, Any] = {"there": False, "text": "ImportError: no"}
    (difference,) = call_differences({"tensorrt_llm.Mapping": seen}, made)
    assert difference == ToolDifference(
        "TensorRT-LLM has no tensorrt_llm.Mapping (ImportError: no)", stops=True
    )
    (difference,) = call_differences({"tensorrt_llm.Mapping": seen | {"there": True}}, made)
    assert not difference.stops


@pytest.mark.parametrize(
    ("name", "there", "parameters"),
    [
        ("json.dumps", True, ["obj", "skipkeys"]),
        ("collections.abc.Mapping.get", True, ["key", "default"]),
        ("json.nothing", False, None),
        ("no_such_package.thing", False, None),
        ("builtins.dict.fromkeys", True, ["iterable", "value"]),
        ("builtins.dict.update", True, None),  # which C does not tell
    ],
)
def test_the_script_looks_functions_up_by_their_full_name(
    name: str, there: bool, parameters: list[str] | None
) -> None:
    found = in_container.signature(name)
    assert found["there"] == there
    names = [item["name"] for item in found.get("parameters", [])][:2]
    assert names == (parameters or [])
    assert ("parameters" in found) == (parameters is not None)


def test_algorithms_matter_where_they_are_asked_for() -> None:
    known = list(contract.quant_algos())
    assert list(algorithm_differences(known, ["FP8"])) == []
    without = [name for name in known if name != "FP8"]
    assert [d.stops for d in algorithm_differences(without, ["FP8"])] == [True]
    assert [d.stops for d in algorithm_differences([*known, "FP2"], [])] == [False]


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"build_help": 1}'])
def test_a_record_that_cannot_be_read_is_noted_and_stops_nothing(
    tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "interface.json"
    if text is not None:
        file.write_text(text)
    (note,) = require_interface(file, [], {}, [])
    assert "could not be compared" in note


@pytest.mark.parametrize("precision", ["bf16", "int8", "fp8", "int4_awq"])
def test_the_facts_say_what_the_conversion_calls(
    deploy: Deploy, state: Path, precision: str
) -> None:
    deployment = deploy(precision=precision)
    build(deployment)
    lines = (state / "bound.jsonl").read_text().splitlines()
    bound = {name: (count, names) for name, count, names in map(json.loads, lines)}
    base = "PretrainedModel"
    expected = {
        f"{base}.{name.rpartition('.')[2]}"
        if name.rpartition(".")[2] in ("quantize", "save_checkpoint")
        else name: (made.positional, sorted(made.keywords))
        for name, made in calls_of(deployment.generator, model()).items()
    }
    assert bound == expected


def test_the_log_holds_help_and_signatures(deploy: Deploy, home: Path) -> None:
    build(deploy())
    log = (home / "built" / "test" / "generator-build.log").read_text()
    assert "--use_paged_context_fmha" in log.split("tts: converting")[0]
    assert "tensorrt_llm.models.LLaMAForCausalLM.from_hugging_face (hf_model_or_dir, dtype" in log
    assert "other than known" not in log


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"help_without": "--use_fused_mlp"}, "trtllm-build has no --use_fused_mlp"),
    (
        {"api": {"tensorrt_llm.Mapping": {"without": ["pp_size"]}}},
        "tensorrt_llm.Mapping takes no pp_size",
    ),
    (
        {"api": {"PretrainedModel.save_checkpoint": {"needs": ["reason"]}}},
        "save_checkpoint needs reason, which is not given",
    ),
]


@pytest.mark.parametrize(("how", "sentence"), WRONG)
def test_a_difference_that_matters_stops_before_anything_is_converted(
    deploy: Deploy, state: Path, misbehave: Misbehave, how: dict[str, Any], sentence: str
) -> None:
    misbehave(**how)
    with pytest.raises(BuildError, match=r"is not the TensorRT-LLM 1\.2\.1") as error:
        build(deploy())
    assert sentence in error.value.message
    assert "Nothing was built" in str(error.value.hint)
    assert conversions(state) == 0


def test_a_difference_that_does_not_matter_is_a_line_of_the_log(
    deploy: Deploy, home: Path, misbehave: Misbehave
) -> None:
    misbehave(help_without="--monitor_memory")
    assert build(deploy()).status == "built"
    log = (home / "built" / "test" / "generator-build.log").read_text()
    assert (
        "# tts: other than known of TensorRT-LLM 1.2.1: "
        "trtllm-build has no --monitor_memory (not used)" in log
    )


MPI = "It looks like orte_init failed for some reason; your parallel process is"


def test_where_mpi_wants_a_network_the_steps_get_dockers_own(
    deploy: Deploy, state: Path, home: Path, misbehave: Misbehave
) -> None:
    misbehave(isolated=MPI)
    said: list[str] = []
    assert build(deploy(), say=said.append).status == "built"
    steps_run = [
        (str(option_of(call, "--name")).rpartition("-")[2], option_of(call, "--network") == "none")
        for call in calls(state, "docker")
    ]
    # tried without once; what the first step needed, the others are given
    assert steps_run == [("check", True), ("check", False), ("convert", False), ("compile", False)]
    assert all("--env=HF_HUB_OFFLINE=1" in call for call in calls(state, "docker"))
    note = "MPI did not start in a container without a network"
    assert note in (home / "built" / "test" / "generator-build.log").read_text()
    assert [note in line for line in said].count(True) == 1


def test_mpi_that_starts_with_no_network_either_is_said_so(
    deploy: Deploy, state: Path, misbehave: Misbehave
) -> None:
    misbehave(at="check", say=MPI)
    with pytest.raises(BuildError, match=r"failed \(check\)\. MPI does not start in the container"):
        build(deploy())
    assert len(calls(state, "docker")) == 2


def test_any_other_failure_is_not_tried_again(
    deploy: Deploy, state: Path, misbehave: Misbehave
) -> None:
    misbehave(isolated="RuntimeError: something else")
    with pytest.raises(BuildError):
        build(deploy())
    assert len(calls(state, "docker")) == 1
