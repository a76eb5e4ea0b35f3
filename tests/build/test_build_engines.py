"""Building both engines: what is made, verified, kept and refused; complete or not at all."""

import json
import os
import resource
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.build.openvino_build import build, identity, leftovers, touch_weights

from tts.base.errors import BuildError, CheckpointError, ConfigError
from tts.build import builder
from tts.build.builder import build_engines, build_lock, require_current
from tts.build.manifest import (
    MANIFEST_FILE,
    changed_content,
    new_manifest,
    read_engine_config,
    read_manifest,
    write_record,
)
from tts.build.openvino import runtime as openvino_runtime
from tts.build.openvino import target as openvino_target
from tts.build.openvino.verify import ROUNDINGS
from tts.build.spec import Deployment


def test_builds_verifies_and_describes_both_engines(deployment, home):
    said = []
    generator, verifier = build_engines(deployment(), say=said.append)
    assert (generator.role, verifier.role) == ("generator", "verifier")
    assert generator.folder == home / "built" / "test" / "generator"
    for report in (generator, verifier):
        assert report.status == "built"
        rounding = report.verification.rounding_error
        assert 0 < report.verification.export_error < ROUNDINGS * rounding
        assert report.not_verified is None
        assert report.size_bytes > 100_000
        assert (report.folder / "openvino_model.xml").is_file()
        assert any(line.startswith(f"{report.role}: comparing") for line in said)
    config = read_engine_config(verifier.folder)
    assert config.label_token_ids == (3, 4)
    assert config.label_weights == (1.0, 0.0)
    assert (config.vocab_size, config.output_vocab_size) == (128, 2)
    assert config.eos_token_ids == (2,)
    assert read_engine_config(generator.folder).label_token_ids is None
    manifest = read_manifest(generator.folder)
    assert manifest.verification == generator.verification
    assert {stamp.name for stamp in manifest.checkpoint_files} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }
    assert leftovers(home) == []
    assert "verifier: judges with a language head, read at the labels" in said


def test_unchanged_engines_are_not_touched(deployment):
    before = [identity(report) for report in build(deployment())]
    second = build(deployment())
    assert [report.status for report in second] == ["unchanged", "unchanged"]
    assert [identity(report) for report in second] == before
    third = build(deployment(), force=True)
    assert [report.status for report in third] == ["built", "built"]
    assert all(identity(report) not in before for report in third)


def test_one_role_alone(deployment, home):
    (report,) = build(deployment(), roles=["verifier"])
    assert report.role == "verifier"
    assert not (home / "built" / "test" / "generator").exists()


def test_missing_engines_are_named(deployment):
    with pytest.raises(BuildError, match="generator engine of 'test' is not ready: it has not"):
        require_current(deployment())


def test_small_engines_are_built_as_they_are_needed(deployment, monkeypatch):
    monkeypatch.setattr(openvino_target, "missing_packages", lambda: ["torch"])  # faster
    said = []
    build(deployment(), roles=["verifier"])
    monkeypatch.setattr(builder, "QUICK_BYTES", 1000)
    builder.build_if_quick(deployment(), said.append)
    assert said == []
    with pytest.raises(BuildError, match="generator"):
        require_current(deployment())
    monkeypatch.setattr(builder, "QUICK_BYTES", 10_000_000)
    for _ in range(2):
        builder.build_if_quick(deployment(), said.append)
        require_current(deployment())
    (line,) = said
    assert line.startswith("Building the generator of ")


def test_without_the_verify_extra(deployment, monkeypatch):
    monkeypatch.setattr(openvino_target, "missing_packages", lambda: ["torch", "transformers"])
    (report, _) = build(deployment(), verify=None)
    assert report.verification is None
    assert "torch and transformers not installed" in report.not_verified
    with pytest.raises(BuildError, match="torch and transformers") as caught:
        build(deployment(), verify=True)
    assert "pip install 'torch>=2.6' 'transformers>=" in str(caught.value.hint)


def test_large_models_are_verified_only_when_asked(deployment, monkeypatch):
    monkeypatch.setattr(openvino_target, "VERIFY_BY_DEFAULT_BELOW", 1000)
    (report, _) = build(deployment(), verify=None)
    assert "verified only when asked" in str(report.not_verified)
    (report, _) = build(deployment(), verify=True)
    assert report.status == "built"
    assert report.verification
    assert build(deployment(), verify=True)[0].status == "unchanged"


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
        (verifier(labels=["w7 w8", "-"]), r"labels: 'w7 w8' is 2 tokens"),
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


def test_a_failure_leaves_nothing_half_built(deployment, llama, home, monkeypatch):
    (first, _) = build(deployment())
    before = identity(first)
    touch_weights(llama)

    def fail(*_, **__):
        raise BuildError("wrong numbers")

    monkeypatch.setattr(openvino_target, "verify_engine", fail)
    with pytest.raises(BuildError, match="wrong numbers"):
        build(deployment(), verify=None)
    assert leftovers(home) == []
    assert identity(first) == before


def test_ctrl_c_leaves_nothing_half_built(deployment, home, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(openvino_target, "verify_engine", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(deployment(), verify=None)
    assert [entry.name for entry in (home / "built" / "test").iterdir()] == [".build.lock"]


@pytest.mark.parametrize("moment", ["while building", "between the renames", "after them"])
def test_leftovers_of_a_killed_build_are_cleaned(deployment, home, moment):
    (report, _) = build(deployment())
    before = identity(report)
    folder, root = report.folder, report.folder.parent
    if moment == "between the renames":
        folder.rename(root / ".generator.old")
    elif moment == "after them":
        shutil.copytree(folder, root / ".generator.old")
    if moment != "after them":
        (root / ".generator.new").mkdir()
        (root / ".generator.new" / "openvino_model.bin").write_bytes(b"half")
    (report, _) = build(deployment())
    assert (report.status, identity(report)) == ("unchanged", before)
    assert leftovers(home) == []


def test_checkpoint_changing_under_the_builder(deployment, llama, home, monkeypatch):
    monkeypatch.setattr(openvino_target, "save_model", lambda *_: touch_weights(llama))
    with pytest.raises(BuildError, match="changed while it was being read"):
        build(deployment())
    assert leftovers(home) == []


def test_a_second_builder_waits(deployment, home):
    root = home / "built" / "test"
    said = []
    with build_lock(root, print):
        thread = threading.Thread(
            target=lambda: build(deployment(), roles=["generator"], say=said.append)
        )
        thread.start()
        for _ in range(200):
            if said:
                break
            time.sleep(0.01)
        assert said == [f"Waiting for another build in {root} (process {os.getpid()})."]
        assert not (root / "generator").exists()
    thread.join(timeout=30)
    assert (root / "generator" / "manifest.json").is_file()


def test_not_enough_space(deployment, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BuildError, match=r"needs about .* MB in .*, which has 0\.0 MB free"):
        build(deployment())


@pytest.fixture
def small_files(llama):
    """Files end at 100 kB, as on a disk that fills up."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("small_files")
def test_disk_that_fills_up(deployment, home):
    with pytest.raises(BuildError, match="Cannot write engines to"):
        build(deployment())
    assert leftovers(home) == []


def test_folder_that_cannot_be_made(deployment, home):
    home.mkdir()
    (home / "built").write_text("a file, where a folder is needed")
    with pytest.raises(BuildError, match="Cannot write engines to") as caught:
        build(deployment())
    assert "TTS_HOME" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device"), "is full"),
        (PermissionError(13, "Permission denied", "/x/y"), "no permission to write /x/y"),
    ],
)
def test_disk_errors_are_sentences(deployment, home, monkeypatch, error, text):
    def fail(*_):
        raise error

    monkeypatch.setattr(openvino_target, "save_model", fail)
    with pytest.raises(BuildError, match=text):
        build(deployment())
    assert leftovers(home) == []


FILES = st.dictionaries(
    st.sampled_from(["config.json", "rank0.engine", "rank1.engine"]),
    st.binary(min_size=1, max_size=50),
    min_size=1,
)


@given(files=FILES, data=st.data())
def test_just_the_file_with_a_changed_byte_is_named(files, data):
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        made = new_manifest(folder, folder / "none", (), {}, None, "a test")
        write_record(folder, MANIFEST_FILE, made)
        assert read_manifest(folder) == made
        assert changed_content(folder, made) == []
        name = data.draw(st.sampled_from(sorted(files)))
        at = data.draw(st.integers(0, len(files[name]) - 1))
        bit = data.draw(st.integers(0, 7))
        damaged = bytearray(files[name])
        damaged[at] ^= 1 << bit
        (folder / name).write_bytes(damaged)
        assert changed_content(folder, made) == [name]
        (folder / name).unlink()  # what is missing is told without reading anything
        assert changed_content(folder, made) == []
