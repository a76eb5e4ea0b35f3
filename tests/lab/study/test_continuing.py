"""With which deployment a study goes on, and where that may lie."""

import json
import shutil

import pytest

from tts.build.checkpoint import CHECKPOINT_FILES
from tts.build.errors import RunError
from tts.build.paths import deployments_dir
from tts.build.spec import load_deployment
from tts.lab.study import plan
from tts.lab.study.campaign import begun_study
from tts.lab.study.cells import QUICK
from tts.lab.study.folder import StudyConfig, create_study
from tts.lab.study.plan import limits_digest


@pytest.fixture
def checkout(tmp_path):
    """A folder with a deployment and its checkpoints, without their weights."""
    folder = tmp_path / "checkout"
    for role in ("generator", "verifier"):
        made = folder / "checkpoints" / f"demo-{role}"
        made.mkdir(parents=True)
        checkpoint = deployments_dir().parent / "checkpoints" / made.name
        for name in CHECKPOINT_FILES:
            if (checkpoint / name).is_file():
                shutil.copy(checkpoint / name, made)
    text = (deployments_dir() / "demo.yaml").read_text()
    (folder / "own.yaml").write_text(text.replace("../checkpoints", "checkpoints"))
    return folder


@pytest.fixture
def study(checkout, tmp_path):
    """The folder of a study that was begun with it."""
    return _begun(checkout, tmp_path / "study")


def _begun(checkout, folder, **others):
    spec = load_deployment(checkout / "own.yaml")
    source = str(checkout / "own.yaml")
    asked = StudyConfig(
        spec.name, source, "served", limits_digest(spec), "demo", 0, QUICK, True, **others
    )
    create_study(folder, asked)
    return folder


def test_a_study_goes_on_where_it_was_begun(study, checkout):
    assert begun_study(study).spec == load_deployment(checkout / "own.yaml")


@pytest.mark.parametrize("server", ["triton", "embedded"])
def test_a_study_goes_on_with_what_ran_its_engines(checkout, tmp_path, server):
    study = begun_study(_begun(checkout, tmp_path / "other", server=server))
    assert study.spec.server.kind == server
    assert study.config.server == server


def test_engines_without_a_server_are_opened_anew_though_a_server_runs(checkout, monkeypatch):
    spec = load_deployment(checkout / "own.yaml")
    monkeypatch.setattr(plan, "find_server", lambda spec: "unix:/somewhere")
    assert not plan.can_restart(spec)
    assert plan.can_restart(spec.served_by("embedded"))


def test_a_study_goes_on_from_a_checkout_that_has_moved(study, checkout):
    moved = checkout.rename(checkout.with_name("moved"))
    assert begun_study(study, str(moved / "own.yaml")).spec.generator.max_batch_size == 64


def test_other_limits_are_refused(checkout, study):
    file = checkout / "own.yaml"
    file.write_text(file.read_text().replace("max_batch_size: 64", "max_batch_size: 32"))
    with pytest.raises(RunError, match="its limits_digest was"):
        begun_study(study)


def test_other_checkpoints_at_the_same_place_are_refused(study, checkout):
    file = checkout / "checkpoints" / "demo-generator" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "rope_theta": 2 * config.get("rope_theta", 1e4)}))
    with pytest.raises(RunError, match="its limits_digest was"):
        begun_study(study)


def test_a_deployment_of_another_name_is_refused(checkout, study):
    file = checkout / "own.yaml"
    spec = load_deployment(file)
    file.write_text(file.read_text().replace(f"name: {spec.name}", "name: another"))
    with pytest.raises(RunError, match="its deployment was 'demo' and is now 'another'"):
        begun_study(study)
