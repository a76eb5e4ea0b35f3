"""What is read, from what valid file, and by which function."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from tts.base import paths
from tts.build.checkpoint import FileStamp, open_checkpoint
from tts.build.manifest import (
    CONFIG_FILE,
    MANIFEST_FILE,
    Manifest,
    inspect_engine,
    read_engine_config,
)
from tts.build.spec import load_deployment
from tts.build.tensorrt.engine_files import engine_problems
from tts.build.tokenizer import Tokenizer
from tts.build.weights import Weights
from tts.datasets.load import load_problems
from tts.lab.simulation.workload import read_chains
from tts.lab.tuning.tune import RESULT, read_fits
from tts.reports.terminal import print_report
from tts.runs.checks import read_summary_fields, write_summary
from tts.runs.compare import compare, read_rows
from tts.runs.config import RunConfig, read_run_config
from tts.runs.folder import GROUP, PROBLEMS, SUMMARY, read_config, read_json, read_problems
from tts.runs.groups import GroupConfig, Member, read_whole_group
from tts.runs.log import read_events
from tts.serving.command.ports import Addresses
from tts.serving.server.state import ProcessIdentity, ServerState, parse_state

MESSAGES = ({"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"})


@dataclass(frozen=True)
class Reader:
    """A file of a folder that is read."""

    file: str
    """Its name in the folder."""
    valid: bytes
    read: Callable[[Path], object]
    """Reads it, given the folder."""
    beside: tuple[Path, ...] = ()
    """Files that must lie beside it."""
    header: bool = False
    """Whether the file is its own length as u64, the part that is changed, and `data`."""
    data: bytes = b""


def readers(recorded_run: Path) -> dict[str, Reader]:
    """Every reader by its name; `recorded_run` is a run's folder."""
    return {**_by_users(), **_of_runs(recorded_run), **_of_checkpoints(), **_of_engines()}


def _by_users() -> dict[str, Reader]:
    """What a user writes or brings."""
    deployments = paths.deployments_dir()
    problems = (
        {"problem": "1 + 1?", "answer": "2", "unique_id": "a/1", "level": 3},
        {"question": "2 + 2?", "answer": "so\n#### 4", "id": 7},
    )
    chains = (
        {"text": "first|second", "sep": "|", "step_scores": [0.9, 0.8]},
        {"text": "only", "sep": "|", "step_scores": [0.25]},
    )
    return {
        "deployment": Reader(
            "d.yaml",
            (deployments / "demo.yaml").read_bytes(),
            lambda folder: load_deployment(folder / "d.yaml"),
        ),
        "gpu deployment": Reader(
            "d.yaml",
            (deployments / "demo-gpu.yaml").read_bytes(),
            lambda folder: load_deployment(folder / "d.yaml"),
        ),
        "dataset": Reader(
            "set.jsonl",
            _json_lines(problems),
            lambda folder: load_problems(str(folder / "set.jsonl")),
        ),
        "dataset in CSV": Reader(
            "set.csv",
            b'question,answer,level,choices\n"1 + 1?",B,3,"1"\n"a, ""b""\n?",A,4,"2"\n',
            lambda folder: load_problems(str(folder / "set.csv"), answers="letter"),
        ),
        "traces": Reader(
            "traces.jsonl",
            _json_lines(chains),
            lambda folder: read_chains(folder / "traces.jsonl"),
        ),
    }


def _of_runs(run: Path) -> dict[str, Reader]:
    """What a run or a measurement keeps."""
    config, summary = read_config(run), read_summary_fields(run)
    member = Member("member", {config["strategy"]: config["vote"]}, config["parameters"])
    group = GroupConfig(RunConfig(**config), [member])
    problems = (
        {"id": "a", "problem": "1 + 1?", "answer": "2", "level": 1},
        {"id": "b", "problem": "2 + 2?", "answer": None, "level": None},
    )
    whole_run = (run / "run.json", run / "events.jsonl", run / "summary.json")
    return {
        "run.json": Reader("run.json", json.dumps(config).encode(), read_run_config),
        "group.json": Reader(
            GROUP,
            json.dumps(group.to_json()).encode(),
            _read_group,
            whole_run,
        ),
        "summary.json": Reader(
            "summary.json", json.dumps(summary).encode(), _report, whole_run[:2]
        ),
        "events": Reader(
            "events.jsonl",
            b"".join((run / "events.jsonl").read_bytes().splitlines(True)[:20]),
            lambda folder: list(read_events(folder)),
        ),
        "problems.jsonl": Reader(PROBLEMS, _json_lines(problems), read_problems),
        "tune.json": Reader(RESULT, json.dumps(_TUNED).encode(), read_fits),
    }


def _of_checkpoints() -> dict[str, Reader]:
    """What a checkpoint brings."""
    demo = _demo_checkpoint()
    weights = (demo / "model.safetensors").read_bytes()
    size = int.from_bytes(weights[:8], "little")
    tokenizer = (demo / "tokenizer.json").read_bytes()
    template = json.loads((demo / "tokenizer_config.json").read_bytes())["chat_template"]
    beside = tuple(demo / f"{name}.json" for name in ("tokenizer", "tokenizer_config", "config"))
    names = json.loads(weights[8 : 8 + size]).keys() - {"__metadata__"}
    index = {"weight_map": dict.fromkeys(sorted(names), _SHARD)}
    return {
        "config.json": Reader(
            "config.json",
            (demo / "config.json").read_bytes(),
            open_checkpoint,
            (demo / "model.safetensors",),
        ),
        "safetensors header": Reader(
            "model.safetensors",
            weights[8 : 8 + size],
            Weights,
            header=True,
            data=weights[8 + size :],
        ),
        "safetensors index": Reader(
            "model.safetensors.index.json",
            json.dumps(index).encode(),
            _read_shards,
            (demo / "model.safetensors",),
        ),
        "tokenizer.json": Reader("tokenizer.json", tokenizer, _use_tokenizer, beside[1:]),
        "tokenizer patterns": Reader(
            "pre_tokenizer.json",
            json.dumps(_PRE_TOKENIZER).encode(),
            _use_pre_tokenizer,
            beside,
        ),
        "tokenizer_config.json": Reader(
            "tokenizer_config.json",
            (demo / "tokenizer_config.json").read_bytes(),
            _use_tokenizer,
            (beside[0], beside[2]),
        ),
        "generation_config.json": Reader(
            "generation_config.json",
            (demo / "generation_config.json").read_bytes(),
            _use_tokenizer,
            beside,
        ),
        "chat template": Reader("chat_template.jinja", template.encode(), _use_tokenizer, beside),
    }


def _of_engines() -> dict[str, Reader]:
    """What a build and a server leave."""
    stamp = FileStamp(name="config.json", size=605, mtime_ns=1, ctime_ns=1, sha256="0" * 64)
    manifest = Manifest(
        created="2026-01-01T00:00:00+00:00",
        checkpoint=str(_demo_checkpoint()),
        checkpoint_sha256="0" * 64,
        checkpoint_files=(stamp,),
        settings={"precision": "fp32", "max_seq_len": 320},
        engine_files={"model.xml": 100},
        engine_sha256={"model.xml": "0" * 64},
        verification=None,
        not_verified="it is made up",
    )
    state = ServerState(
        "demo",
        "0" * 64,
        Addresses("127.0.0.1", 0, 0, 1),
        ProcessIdentity(1, 1),
        ProcessIdentity(1, 1),
    )
    return {
        "engine's config.json": Reader(
            CONFIG_FILE, json.dumps(_ENGINE).encode(), read_engine_config
        ),
        "TensorRT-LLM config.json": Reader(
            CONFIG_FILE,
            json.dumps({"version": "1.2.1", "build_config": {"max_seq_len": 320}}).encode(),
            lambda folder: engine_problems(folder, {"world_size": 1, "max_seq_len": 320}),
        ),
        "manifest.json": Reader(
            MANIFEST_FILE,
            manifest.model_dump_json().encode(),
            lambda folder: inspect_engine(folder, _demo_checkpoint(), {"precision": "fp32"}),
        ),
        "server.json": Reader(
            "server.json",
            json.dumps(asdict(state)).encode(),
            lambda folder: parse_state((folder / "server.json").read_bytes()),
        ),
    }


_TUNED = {
    "engines": {
        "generator": {
            "max_batch_size": 64,
            "levels": [{"load": n, "tokens_per_s": 1000 * n / (n + 9)} for n in (1, 4, 16)],
        },
        "verifier": {
            "max_batch_size": 64,
            "max_num_tokens": 512,
            "computed_tokens": 20.5,
            "levels": [
                {"requests_per_s": 100 * n / (n + 9), "latency_s": (n + 9) / 100} for n in (1, 4, 9)
            ],
        },
    }
}
_PRE_TOKENIZER = {
    "type": "Sequence",
    "pretokenizers": [
        {
            "type": "Split",
            "pattern": {"Regex": r"\s+(?!\S)|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|(?:\p{L}{2})*a"},
            "behavior": "Isolated",
            "invert": False,
        },
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ],
}
_ENGINE = {
    "schema_version": 1,
    "target": "openvino",
    "role": "generator",
    "architecture": "LlamaForCausalLM",
    "vocab_size": 768,
    "output_vocab_size": 768,
    "label_token_ids": None,
    "eos_token_ids": [5],
    "precision": "fp32",
    "max_position_embeddings": 512,
    "hidden_size": 128,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 4,
    "head_dim": 32,
}


_SHARD = "shard.safetensors"


def _json_lines(rows: Iterable[object]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def _demo_checkpoint() -> Path:
    return paths.deployments_dir().parent / "checkpoints" / "demo-generator"


def _read_group(folder: Path) -> None:
    member = folder / "member"
    member.mkdir(exist_ok=True)
    for name in ("run.json", "events.jsonl", "summary.json"):
        shutil.copy(folder / name, member)
    read_whole_group(folder)
    read_rows(folder)


def _report(folder: Path) -> None:
    write_summary(folder, read_json(folder / SUMMARY, ""))  # sealed: who changed it is to be heard
    out = Console(file=io.StringIO(), width=80)
    print_report(compare([folder, folder]), out)
    print_report(compare([folder]), out)


def _read_shards(folder: Path) -> None:
    single = folder / "model.safetensors"  # the index counts only where there is no such file
    if single.exists():
        single.rename(folder / _SHARD)
    Weights(folder)


def _use_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    _ = tokenizer.eos_ids
    tokenizer.special_ids("bos_token")
    tokenizer.decode(tokenizer.encode("1 + 1 = 2, é\n\n"))
    tokenizer.chat(MESSAGES, generation_prompt=True)


def _use_pre_tokenizer(folder: Path) -> None:
    part = (folder / "pre_tokenizer.json").read_text("utf-8", errors="replace")
    whole = json.loads((_demo_checkpoint() / "tokenizer.json").read_bytes())
    whole["pre_tokenizer"] = place = "the pre-tokenizer"
    text = json.dumps(whole).replace(json.dumps(place), part)
    (folder / "tokenizer.json").unlink()  # it may be a link to the bundled one
    (folder / "tokenizer.json").write_text(text, "utf-8")
    _use_tokenizer(folder)
    Tokenizer(folder).encode("a" * 60 + " " * 60 + "1" * 60 + "b")
