"""The mutation score of `tts lint`: single faults in a deployment and in all that is made of it.

A part of the long form of the tests; `LINT_MUTATIONS=400` tries more faults, `LINT_SEED` others.
"""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.bundled import COMPILED
from tests.checks import faults
from tests.checks.deployments import CHECKPOINTS, leave_engines
from tests.checks.faults.site import ROLES, NotHere, Site
from tests.checks.test_manifests import HEADED

from tts.build import paths
from tts.build.builder import build_engines
from tts.build.errors import ConfigError
from tts.build.findings import Finding
from tts.build.spec import load_deployment
from tts.checks import lint
from tts.checks.after_build import DEEP
from tts.checks.manifests import check_manifests
from tts.serving.repository.manifests import render_manifests
from tts.serving.repository.render import render_repository

MUTATIONS = int(os.environ.get("LINT_MUTATIONS", "120"))
SEED = os.environ.get("LINT_SEED", "0")


def made(name: str, root: Path) -> Site:
    """All that there can be of a ready-made deployment; only demo checkpoints are at hand."""
    file = paths.deployments_dir() / f"{name}.yaml"
    data = yaml.safe_load(file.read_text())
    root.mkdir(parents=True)
    site = Site(root)
    for role in ROLES:
        checkpoint = Path(data[role]["checkpoint"]).name
        data[role]["checkpoint"] = checkpoint
        if (CHECKPOINTS / checkpoint).is_dir():
            shutil.copytree(CHECKPOINTS / checkpoint, root / checkpoint)
    if prompt := data["verifier"].get("prompt_file"):
        shutil.copytree(file.parent / Path(prompt).parent, root / Path(prompt).parent)
    site.file.write_text(yaml.safe_dump(data))
    deployment = load_deployment(site.file)
    if deployment.target == "tensorrt" and (root / checkpoint).is_dir():
        leave_engines(deployment)
    elif (root / checkpoint).is_dir():
        build_engines(deployment, verify=False, say=lambda _: None)
    render_repository(deployment)
    if deployment.tensorrt:
        render_manifests(deployment, site.manifests)
    return site


def findings(site: Site) -> list[Finding]:
    """Errors and warnings of everything that lint looks at."""
    deployment = load_deployment(site.file)
    found = lint(deployment, DEEP)
    if deployment.tensorrt:
        found += check_manifests(deployment, site.manifests)
    return [finding for finding in found if finding.severity != "note"]


def told(site: Site) -> bool:
    """Whether lint has anything to say; a deployment that cannot be read is refused by name."""
    try:
        return bool(findings(site))
    except ConfigError:
        return True


@pytest.mark.slow
def test_every_single_mutation_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
):
    sites = []
    for name in COMPILED:
        if name == HEADED or name.endswith("-cpu"):  # not to be rendered without checkpoints
            continue
        monkeypatch.setenv("TTS_HOME", str(tmp_path / name / "home"))
        sites.append(made(name, tmp_path / name))
        assert findings(sites[-1]) == []
        shutil.copytree(tmp_path / name, tmp_path / "clean" / name)
    draw = random.Random(SEED)
    kinds = draw.sample(faults.KINDS, len(faults.KINDS))
    missed = []
    for number in range(MUTATIONS):
        rng = random.Random(f"{SEED} {number}")
        kind = kinds[number % len(kinds)]  # all of them, and equally often
        for site in rng.sample(sites, len(sites)):
            name = site.root.name
            monkeypatch.setenv("TTS_HOME", str(site.root / "home"))
            try:
                what = kind(site, rng)
                if not told(site):
                    missed.append(f"{number}, {name}: {what}")
            except NotHere:
                continue
            shutil.rmtree(site.root)
            shutil.copytree(tmp_path / "clean" / name, site.root)
            break
    score = f"{MUTATIONS - len(missed)} of {MUTATIONS} mutations found"
    record_property("mutation score", score)
    print(f"{score}, of {len(kinds)} kinds")
    assert missed == []
