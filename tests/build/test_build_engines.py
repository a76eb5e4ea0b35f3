"""Building both engines: what is made, verified and kept."""

import pytest
from tests.build.openvino_build import build, identity, leftovers

from tts.base.errors import BuildError
from tts.build import builder
from tts.build.builder import build_engines, require_current
from tts.build.manifest import read_engine_config, read_manifest
from tts.build.openvino import target as openvino_target
from tts.build.openvino.verify import ROUNDINGS


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
