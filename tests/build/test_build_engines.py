"""Building: only what is stale, whole or not at all, one builder at a time."""

import json
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tts.build import builder
from tts.build.builder import BuildReport, build_engines, require_current
from tts.build.errors import BuildError, CheckpointError, ConfigError
from tts.build.manifest import read_engine_config, read_manifest
from tts.build.openvino import runtime as openvino_runtime
from tts.build.openvino import target as openvino_target
from tts.build.openvino.verify import EXPORT_TOLERANCE
from tts.build.spec import Deployment
from tts.build.staging import build_lock

Deploy = Callable[..., Deployment]


def build(deployment: Deployment, **options: Any) -> list[BuildReport]:
    """Build without comparison, unless it is asked for."""
    return build_engines(deployment, **({"verify": False, "say": print} | options))


def leftovers(home: Path) -> list[str]:
    """Names of what lies beside the engines, the lock file apart."""
    names = {entry.name for entry in (home / "built" / "test").iterdir()}
    return sorted(names - {"generator", "verifier", ".build.lock"})


def identity(report: BuildReport) -> tuple[int, int]:
    """Differs whenever the engine's weights have been written again."""
    status = (report.folder / "openvino_model.bin").stat()
    return status.st_ino, status.st_mtime_ns


def test_builds_verifies_and_describes_both_engines(deployment: Deploy, home: Path) -> None:
    said: list[str] = []
    generator, verifier = build_engines(deployment(), say=said.append)
    assert (generator.role, verifier.role) == ("generator", "verifier")
    assert generator.folder == home / "built" / "test" / "generator"
    for report in (generator, verifier):
        assert report.status == "built"
        assert report.verification is not None
        assert report.verification.export_error < EXPORT_TOLERANCE
        assert report.not_verified is None
        assert report.size_bytes > 100_000
        assert (report.folder / "openvino_model.xml").is_file()
        assert any(line.startswith(f"{report.role}: comparing") for line in said)
    config = read_engine_config(verifier.folder)
    assert config.label_token_ids == (3, 4)
    assert (config.vocab_size, config.output_vocab_size) == (128, 2)
    assert config.eos_token_ids == (2,)
    assert read_engine_config(generator.folder).label_token_ids is None
    manifest = read_manifest(generator.folder)
    assert manifest is not None
    assert manifest.verification == generator.verification
    assert {stamp.name for stamp in manifest.checkpoint_files} >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }
    assert leftovers(home) == []


def test_unchanged_engines_are_not_touched(deployment: Deploy) -> None:
    before = [identity(report) for report in build(deployment())]
    second = build(deployment())
    assert [report.status for report in second] == ["unchanged", "unchanged"]
    assert [identity(report) for report in second] == before
    third = build(deployment(), force=True)
    assert [report.status for report in third] == ["built", "built"]
    assert all(identity(report) not in before for report in third)


def test_one_role_alone(deployment: Deploy, home: Path) -> None:
    (report,) = build(deployment(), roles=["verifier"])
    assert report.role == "verifier"
    assert not (home / "built" / "test" / "generator").exists()


def touch_weights(checkpoint: Path) -> None:
    """Flip one bit in place: same size."""
    with (checkpoint / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))


def test_changed_checkpoint_is_noticed(deployment: Deploy, llama: Path) -> None:
    build(deployment())
    touch_weights(llama)
    with pytest.raises(BuildError) as caught:
        require_current(deployment())
    assert "generator engine of 'test'" in caught.value.message
    assert "verifier engine of 'test'" in caught.value.message
    assert "its checkpoint has changed since (model.safetensors)" in caught.value.message
    assert caught.value.hint == "Run: tts build-engines test"
    assert [report.status for report in build(deployment())] == ["built", "built"]
    assert set(require_current(deployment())) == {"generator", "verifier"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"precision": "int8"}, "precision was fp32 and is now int8"),
        (
            {"labels": {"positive": "w7", "negative": "-"}},
            "labels was '\\+', '-' and is now 'w7', '-'",
        ),
    ],
)
def test_changed_settings_are_noticed(
    deployment: Deploy, change: dict[str, Any], reason: str
) -> None:
    build(deployment())
    data = deployment().model_dump()
    data["verifier"] |= change
    changed = Deployment.model_validate(data)
    with pytest.raises(BuildError, match=reason) as caught:
        require_current(changed)
    assert "generator" not in caught.value.message
    assert [report.status for report in build(changed)] == ["unchanged", "built"]


def test_another_exporter_builds_again(deployment: Deploy, monkeypatch: Any) -> None:
    build(deployment())
    monkeypatch.setattr("tts.build.openvino.target.EXPORTER_VERSION", 99)
    with pytest.raises(BuildError, match="exporter_version was 1 and is now 99"):
        require_current(deployment())


def test_settings_of_the_host_alone_do_not_build_again(deployment: Deploy) -> None:
    build(deployment())
    other = deployment(max_batch_size=2, max_seq_len=64, threads=2)
    assert [report.status for report in build(other)] == ["unchanged", "unchanged"]


def test_another_format_of_the_verifier_does_not_build_again(deployment: Deploy) -> None:
    build(deployment())
    data = deployment().model_dump()
    data["verifier"] |= {"format": "math-shepherd", "step_tag": "w9"}
    changed = Deployment.model_validate(data)
    assert require_current(changed)
    assert [report.status for report in build(changed)] == ["unchanged", "unchanged"]


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


def test_missing_engines_are_named(deployment: Deploy) -> None:
    with pytest.raises(BuildError, match="generator engine of 'test' is not ready: it has not"):
        require_current(deployment())


@pytest.mark.parametrize("name", ["openvino_model.bin", "manifest.json", "config.json"])
@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_damaged_engine_is_noticed_and_built_again(
    deployment: Deploy, name: str, damage: str
) -> None:
    (report, _) = build(deployment())
    if damage == "cut":
        os.truncate(report.folder / name, 10)
    else:
        (report.folder / name).unlink()
    with pytest.raises(BuildError, match="generator engine"):
        require_current(deployment())
    assert build(deployment())[0].status == "built"
    assert require_current(deployment())


def test_untouched_checkpoint_is_not_hashed_again(
    deployment: Deploy, llama: Path, monkeypatch: Any
) -> None:
    hashed: list[str] = []
    digest = builder.stamp_files.__globals__["hashlib"].file_digest

    def spy(file: Any, name: str) -> Any:
        hashed.append(Path(file.name).name)
        return digest(file, name)

    build(deployment())
    monkeypatch.setattr("hashlib.file_digest", spy)
    require_current(deployment())
    assert hashed == []
    os.utime(llama / "model.safetensors")
    require_current(deployment())
    assert hashed == ["model.safetensors"] * 2  # once for each engine
    build(deployment())  # notes the new times
    hashed.clear()
    require_current(deployment())
    assert hashed == []


def test_checkpoint_with_equal_times_elsewhere_is_not_mistaken(
    deployment: Deploy, llama: Path, tmp_path: Path
) -> None:
    build(deployment())
    other = Path(shutil.copytree(llama, tmp_path / "other"))  # copies the times
    assert [report.status for report in build(deployment(checkpoint=other))] == ["unchanged"] * 2
    touch_weights(other)
    status = (llama / "model.safetensors").stat()
    os.utime(other / "model.safetensors", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [report.status for report in build(deployment(checkpoint=other))] == ["built"] * 2


def test_a_failure_leaves_nothing_half_built(
    deployment: Deploy, llama: Path, home: Path, monkeypatch: Any
) -> None:
    (first, _) = build(deployment())
    before = identity(first)
    touch_weights(llama)

    def fail(*_: object) -> None:
        raise BuildError("wrong numbers")

    monkeypatch.setattr(openvino_target, "verify_engine", fail)
    with pytest.raises(BuildError, match="wrong numbers"):
        build(deployment(), verify=None)
    assert leftovers(home) == []
    assert identity(first) == before


def test_ctrl_c_leaves_nothing_half_built(deployment: Deploy, home: Path, monkeypatch: Any) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(openvino_target, "verify_engine", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(deployment(), verify=None)
    assert [entry.name for entry in (home / "built" / "test").iterdir()] == [".build.lock"]


@pytest.mark.parametrize("moment", ["while building", "between the renames", "after them"])
def test_leftovers_of_a_killed_build_are_cleaned(
    deployment: Deploy, home: Path, moment: str
) -> None:
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


def test_checkpoint_changing_under_the_builder(
    deployment: Deploy, llama: Path, home: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(openvino_target, "save_model", lambda *_: touch_weights(llama))
    with pytest.raises(BuildError, match="changed while it was being read"):
        build(deployment())
    assert leftovers(home) == []


def test_a_second_builder_waits(deployment: Deploy, home: Path) -> None:
    root = home / "built" / "test"
    said: list[str] = []
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
    with pytest.raises(CheckpointError, match="138 tokens, but the model's vocab_size is 128"):
        build(deployment())


def test_end_token_outside_the_vocabulary(deployment: Deploy, llama: Path) -> None:
    (llama / "generation_config.json").write_text('{"eos_token_id": [2, 500]}')
    with pytest.raises(CheckpointError, match="eos_token_id 500 is outside"):
        build(deployment())


def test_without_the_verify_extra(deployment: Deploy, monkeypatch: Any) -> None:
    monkeypatch.setattr(openvino_target, "missing_packages", lambda: ["torch", "transformers"])
    (report, _) = build(deployment(), verify=None)
    assert report.verification is None
    assert report.not_verified is not None
    assert "torch and transformers not installed" in report.not_verified
    with pytest.raises(BuildError, match="torch and transformers") as caught:
        build(deployment(), verify=True)
    assert caught.value.hint == "pip install 'tts-toolkit[verify]'"


def test_large_models_are_verified_only_when_asked(deployment: Deploy, monkeypatch: Any) -> None:
    monkeypatch.setattr(openvino_target, "VERIFY_BY_DEFAULT_BELOW", 1000)
    (report, _) = build(deployment(), verify=None)
    assert "verified only when asked" in str(report.not_verified)
    (report, _) = build(deployment(), verify=True)
    assert report.status == "built"
    assert report.verification is not None
    assert build(deployment(), verify=True)[0].status == "unchanged"


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


def test_not_enough_space(deployment: Deploy, monkeypatch: Any) -> None:
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BuildError, match=r"needs about .* GB in .*, which has 0\.0 GB free"):
        build(deployment())


@pytest.fixture
def small_files(llama: Path) -> Iterator[None]:
    """Files end at 100 kB, as on a disk that fills up."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("small_files")
def test_disk_that_fills_up(deployment: Deploy, home: Path) -> None:
    with pytest.raises(BuildError, match="Cannot write engines to"):
        build(deployment())
    assert leftovers(home) == []


def test_folder_that_cannot_be_made(deployment: Deploy, home: Path) -> None:
    home.write_text("a file, where a folder is needed")
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
def test_disk_errors_are_sentences(
    deployment: Deploy, home: Path, monkeypatch: Any, error: OSError, text: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(openvino_target, "save_model", fail)
    with pytest.raises(BuildError, match=text):
        build(deployment())
    assert leftovers(home) == []
