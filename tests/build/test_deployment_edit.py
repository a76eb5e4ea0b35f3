"""Setting fields of a deployment file changes these and nothing else."""

import pytest
import yaml

from tts.base import paths
from tts.base.errors import ConfigError
from tts.base.yaml_text import parse_yaml
from tts.build.deployment_edit import with_values, write_values
from tts.build.spec import VerifierCalibration, load_deployment

BUNDLED = paths.deployments_dir() / "demo-gpu.yaml"


def pools(generator, verifier):
    return {
        ("generator", "kv_cache", "tokens"): generator,
        ("verifier", "kv_cache", "tokens"): verifier,
    }


def test_only_two_numbers_change():
    text = BUNDLED.read_text()
    new = with_values(text, pools(123_456_789, 7))
    changed = [
        (before, after)
        for before, after in zip(text.splitlines(), new.splitlines(), strict=True)
        if before != after
    ]
    assert [after.split()[:2] for _, after in changed] == [
        ["tokens:", "123456789"],
        ["tokens:", "7"],
    ]
    for before, after in changed:
        assert before.split("#")[1] == after.split("#")[1]
        assert before.index("#") == after.index("#")  # comments keep their column


@pytest.mark.parametrize(
    "text",
    [
        "generator: {kv_cache: {tokens: 1, reuse: true}}\nverifier: {kv_cache: {tokens: 2}}",
        "verifier:\n  kv_cache: {tokens: 0x2}\ngenerator:\n  kv_cache:\n    tokens: 1_000 # why",
        "generator: {kv_cache: &pool {block_size: 32, tokens: 1}}\n"
        "verifier: {kv_cache: {<<: *pool, tokens: 2}}",
        'generator: {"kv_cache": {"tokens": 1}}\r\nverifier: {"kv_cache": {"tokens": 2}}\r\n',
    ],
    ids=["flow", "order", "merge", "json"],
)
def test_other_ways_to_write_yaml(text):
    data = yaml.safe_load(with_values(text, pools(64, 96)))
    assert data["generator"]["kv_cache"]["tokens"] == 64
    assert data["verifier"]["kv_cache"]["tokens"] == 96


def test_a_shared_alias_can_hold_one_value_only():
    text = "generator: {kv_cache: &pool {tokens: 1}}\nverifier: {kv_cache: *pool}"
    assert "tokens: 64}" in with_values(text, pools(64, 64))
    with pytest.raises(ConfigError, match="through a YAML alias"):
        with_values(text, pools(64, 96))
    merged = "generator: {kv_cache: &pool {tokens: 1}}\nverifier: {kv_cache: {<<: *pool}}"
    assert "{<<: *pool, tokens: 96}" in with_values(merged, pools(64, 96))


def test_a_file_is_replaced_whole(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_bytes(BUNDLED.read_bytes().replace(b"\n", b"\r\n"))
    file.chmod(0o640)
    write_values(file, pools(640, 1024))
    assert load_deployment(file).generator.kv_cache.tokens == 640
    assert file.read_bytes().count(b"\r\n") == BUNDLED.read_bytes().count(b"\n")
    assert file.stat().st_mode & 0o777 == 0o640
    before = file.read_bytes()
    with pytest.raises(ConfigError, match="at least one full sequence"):
        write_values(file, pools(32, 1024))
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_bundled_files_of_a_wheel_are_left_alone(tmp_path, monkeypatch):
    file = tmp_path / "bundled" / "deployments" / "demo-gpu.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(BUNDLED.read_text())
    monkeypatch.setattr(paths, "_IN_CHECKOUT", False)
    monkeypatch.setattr(paths, "_BUNDLED", tmp_path / "bundled")
    with pytest.raises(ConfigError, match="belongs to the installed package") as caught:
        write_values(file, pools(640, 1024))
    assert "Copy it" in str(caught.value.hint)
    assert file.read_text() == BUNDLED.read_text()


def test_a_section_is_written_into_its_place_and_again_over_itself():
    text = BUNDLED.read_text()
    field = ("verifier", "calibration")
    measured = {"on": "off", "problems": 3, "chains": 9, "date": "2026-11-28"}
    whole = {
        "final": [[0.0, 0.25], [1.0, 0.75]],
        "measured": {**measured, "verifier": {"m": "1e5"}},
    }
    for value in (whole, {"final": [[0.0, 0.5], [1.0, 1.0]]}, whole):
        text = with_values(text, {field: value})
        before, _, after = text.partition("  calibration:\n")
        lines = after.splitlines()
        ours = [line for line in lines if line.startswith("    ")]
        assert lines[0] == f"    final: {value['final']}"
        assert before + "\n".join(lines[len(ours) :]) + "\n" == BUNDLED.read_text()
    written = VerifierCalibration.model_validate(parse_yaml(text)["verifier"]["calibration"])
    assert written.measured.model_dump() == whole["measured"]
