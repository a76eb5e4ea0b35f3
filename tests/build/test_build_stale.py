"""Which changes ask for a new build, and which do not."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from tests.build.openvino_build import build, touch_weights

from tts.base.errors import BuildError
from tts.build import checkpoint, manifest
from tts.build.builder import require_current
from tts.build.openvino.transformer import EXPORTER_VERSIONS
from tts.build.spec import Deployment


def test_changed_checkpoint_is_noticed(deployment, llama):
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
        ({"labels": ["w7", "-"]}, "labels was .*'\\+'.* and is now .*'w7'"),
        ({"format": "math-shepherd", "step_tag": "w9"}, None),
        ({"max_batch_size": 2, "max_seq_len": 64, "threads": 2}, None),  # of the host alone
    ],
)
def test_a_change_of_the_verifier_builds_it_again_where_it_is_in_the_engine(
    deployment, change, reason
):
    build(deployment())
    data = deployment().model_dump()
    data["verifier"] |= change
    changed = Deployment.model_validate(data)
    if reason:
        with pytest.raises(BuildError, match=reason) as caught:
            require_current(changed)
        assert "generator" not in caught.value.message
    else:
        require_current(changed)
    statuses = [report.status for report in build(changed)]
    assert statuses == ["unchanged", "built" if reason else "unchanged"]


def test_another_exporter_builds_again(deployment, monkeypatch):
    build(deployment())
    monkeypatch.setitem(EXPORTER_VERSIONS, "fp32", 99)
    with pytest.raises(BuildError, match="exporter_version was 1 and is now 99"):
        require_current(deployment())


def test_a_flipped_bit_of_any_file_is_noticed_and_built_again(deployment):
    generator, _ = build(deployment())
    require_current(deployment())
    files = sorted(file for file in generator.folder.iterdir() if file.name != "manifest.json")
    chance = random.Random(1)
    for file in files * 3:
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        file.write_bytes(damaged)
        with pytest.raises(BuildError) as caught:
            require_current(deployment())
        assert f"{file.name} is not the file that was built" in caught.value.message
        assert caught.value.hint == "Run: tts build-engines test"
        file.write_bytes(whole)
        require_current(deployment())
    file.write_bytes(damaged)
    assert [report.status for report in build(deployment())] == ["built", "unchanged"]
    require_current(deployment())


def test_untouched_files_are_read_once_a_boot_and_a_copy_again(deployment, monkeypatch, tmp_path):
    read = []
    hashed = manifest.file_sha256
    monkeypatch.setattr(manifest, "file_sha256", lambda file: (read.append(file), hashed(file))[1])
    generator, _ = build(deployment())
    require_current(deployment())
    read.clear()
    require_current(deployment())
    assert read == []
    require_current(deployment(), anew=True)
    assert generator.folder / "openvino_model.bin" in read
    copy = tmp_path / "copy"
    shutil.copytree(generator.folder, copy)
    shutil.rmtree(generator.folder)
    copy.rename(generator.folder)
    read.clear()
    require_current(deployment())
    assert generator.folder / "openvino_model.bin" in read
    (tmp_path / "boot_id").write_text("another")
    monkeypatch.setattr(manifest, "_BOOT", tmp_path / "boot_id")
    read.clear()
    require_current(deployment())
    assert generator.folder / "openvino_model.bin" in read


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_damaged_engine_is_noticed_and_built_again(deployment, damage):
    (report, _) = build(deployment())
    for name in ("openvino_model.bin", "manifest.json", "config.json"):
        file = report.folder / name
        whole = file.read_bytes()
        if damage == "cut":
            os.truncate(file, 10)
        else:
            file.unlink()
        with pytest.raises(BuildError, match="generator engine"):
            require_current(deployment())
        if name != "config.json":
            file.write_bytes(whole)
            require_current(deployment())
    assert build(deployment())[0].status == "built"
    assert require_current(deployment())


def test_a_manifest_with_a_name_that_no_file_can_have_is_stale(deployment):
    (report, _) = build(deployment())
    file = report.folder / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["engine_files"] = {"x" * 300: 1}
    file.write_text(json.dumps(manifest))
    with pytest.raises(BuildError, match="xxx is missing"):
        require_current(deployment())


def test_untouched_checkpoint_is_not_hashed_again(deployment, llama, monkeypatch):
    hashed = []
    real = checkpoint.file_sha256

    def spy(file):
        hashed.append(file.name)
        return real(file)

    build(deployment())
    monkeypatch.setattr(checkpoint, "file_sha256", spy)
    require_current(deployment())
    assert hashed == []
    os.utime(llama / "model.safetensors")
    require_current(deployment())
    assert hashed == ["model.safetensors"] * 2  # once for each engine
    build(deployment())  # notes the new times
    hashed.clear()
    require_current(deployment())
    assert hashed == []


def test_checkpoint_with_equal_times_elsewhere_is_not_mistaken(deployment, llama, tmp_path):
    build(deployment())
    other = Path(shutil.copytree(llama, tmp_path / "other"))  # copies the times
    assert [report.status for report in build(deployment(checkpoint=other))] == ["unchanged"] * 2
    touch_weights(other)
    status = (llama / "model.safetensors").stat()
    os.utime(other / "model.safetensors", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [report.status for report in build(deployment(checkpoint=other))] == ["built"] * 2
