"""A study carried out over scripted engines: what is run, on which engines, and what is said."""

import re
import shutil

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier

from tts.base.errors import RunError, ServerError
from tts.base.paths import deployments_dir
from tts.build.checkpoint import CHECKPOINT_FILES
from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.fleet import connecting
from tts.lab import campaign as runs
from tts.lab.observer import Observer
from tts.lab.study import folder as study_folder
from tts.lab.study import study_run
from tts.lab.study.cells import QUICK, Form
from tts.lab.study.folder import (
    StudyConfig,
    create_study,
    limits_digest,
    load_file,
    pilot_folder,
    run_folder,
    seconds_of,
)
from tts.lab.study.kv_memory import divided
from tts.lab.study.measure import measure
from tts.lab.study.results import RunResult
from tts.lab.study.study_run import begun_study, resume_study, run_study
from tts.reports.study_page import study_report
from tts.runs.folder import read_json
from tts.runs.summary import read_summary
from tts.session import AsyncSession

pytestmark = pytest.mark.skipif(
    not (deployments_dir().parent / "checkpoints" / "demo-verifier").is_dir(),
    reason="the demo checkpoints are not here",
)

TINY = Form(
    rounds=2,
    problems=2,
    minutes=None,
    shares=(0.5,),
    schedules=("lockstep",),
    speculations=(),
    reuse_off=False,
    in_flight=(),
    n_factors=(),
    load_s=0.05,
)


class Scene(Observer):
    """What is said, between the engines that are opened: the tokens of the generator's pool."""

    def __init__(self):
        self.seen = []
        self.breaks = None
        """After which line no engines can be opened."""

    def say(self, line):
        self.seen.append(re.split(r":? \(?about", line)[0])


@pytest.fixture
def scene(monkeypatch):
    seen = Scene()

    def session(spec, **options):
        if seen.breaks in seen.seen:
            raise ServerError("No memory is left.")
        seen.seen.append(spec.generator.kv_cache.tokens)
        tokenizer = Tokenizer(spec.generator.checkpoint)
        words = [tokenizer.encode(word) for word in ("1", " + ", "2")]
        return AsyncSession(
            spec,
            generator=ScriptedGenerator(words, tokenizer.encode("\n\n")),
            verifier=ScriptedVerifier(),
        )

    monkeypatch.setattr(runs, "AsyncSession", session)
    for name in ("require_current", "build_if_quick"):  # nobody has built them
        monkeypatch.setattr(connecting, name, lambda spec, say=None: None)
    monkeypatch.setattr(study_run, "render_repository", lambda spec: None)
    return seen


def begun(scene, folder):
    return run_study("demo", TINY, folder, scene, dataset="demo", seed=3)


def test_every_cell_is_run_in_every_round_and_engines_start_when_they_differ(scene, tmp_path):
    study = begun(scene, tmp_path / "study")
    present = study.spec.generator.kv_cache.tokens
    half = divided(study.spec, study.memory, 0.5).generator.kv_cache.tokens
    title = "generator 50% of the KV memory"
    assert half != present
    assert [line for line in scene.seen if line != present] == [
        "A pilot run, to see how long the study will take",
        "The engines' caches hold what was computed before.",
        "6 runs of 2 problems, 3 server starts; 6 runs are left",
        "1/6 as deployed",
        "2/6 schedule lockstep",
        "Measuring the generator's throughput over load",
        "Measuring the verifier's throughput over load",
        f"3/6 {title}",
        half,
        f"4/6 {title}",
        "5/6 schedule lockstep",
        "6/6 as deployed",
    ]
    steps, rounds = study.steps()
    for step in steps:
        summary = read_summary(run_folder(study.folder, step))
        assert (summary.schedule, summary.problems) == (step.cell.schedule, 2)
        read = RunResult.read(run_folder(study.folder, step))
        assert (read.problems, read.wall_s) == (2, pytest.approx(summary.wall_s, abs=1e-3))
        assert (read.generated_tokens, read.tree_digest) == (
            summary.generated_tokens,
            summary.tree_digest,
        )
        assert 0 <= read.cached_scores < read.scores
        assert len(read.latencies_s) == len(read.right) == 2
    pilot = read_summary(pilot_folder(study.folder))
    assert study.unit_s == pilot.wall_s / (4 * 16)
    assert seconds_of(study, steps).keys() == {step.cell.name for step in steps}
    assert len({problem.id for each in rounds for problem in each}) == 4
    load = read_json(load_file(study.folder), "no load")
    assert load["engines"].keys() == {"generator", "verifier"}


def test_a_study_that_breaks_off_says_what_is_kept_and_goes_on(scene, tmp_path, monkeypatch):
    folder = tmp_path / "study"
    scene.breaks = "3/6 generator 50% of the KV memory"
    with pytest.raises(ServerError, match="No memory is left") as broken:
        begun(scene, folder)
    said = f"{broken.value.message}\n{broken.value.hint}"
    assert "2 of 6 runs are finished" in said
    assert f"tts study --resume {folder}" in said

    finished = folder / "runs" / "as-deployed-1" / "summary.json"
    kept = finished.stat().st_mtime_ns
    again = Scene()
    scene.breaks, scene.seen = None, again.seen
    resume_study(folder, None, again)
    assert "6 runs of 2 problems" in again.seen[0]
    assert "4 runs are left" in again.seen[0]
    assert [line for line in again.seen if isinstance(line, str) and "/" in line] == [
        "3/6 generator 50% of the KV memory",
        "4/6 generator 50% of the KV memory",
        "5/6 schedule lockstep",
        "6/6 as deployed",
    ]
    assert not any("Measuring" in str(line) for line in again.seen)
    assert finished.stat().st_mtime_ns == kept

    scene.seen = []
    resume_study(folder, None, scene)
    assert scene.seen == []

    monkeypatch.setattr(study_run, "reaches_for", lambda source: ["programs to run"])
    with pytest.raises(RunError, match="names programs to run, in demo"):
        resume_study(folder, None, scene)
    resume_study(folder, "demo", scene)


def test_a_finished_study_is_a_page(scene, tmp_path):
    study = begun(scene, tmp_path / "study")
    findings = measure(study)
    assert findings.problems == 2
    assert findings.same_trees
    figures = {measured.name for measured in findings.measurements}
    assert figures >= {"throughput-by-split", "ablation", "generator-by-load", "memory-by-split"}
    page = study_report(study, findings).write().read_text()
    assert "Study of demo" in page
    for heading in ("Study", "Engines", "Form", "This page"):
        assert f">{heading}<" in page
    assert ">Configuration<" not in page  # a study has no one configuration


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
    """Begins a study with it; its folder."""

    def begun(**others):
        spec = load_deployment(checkout / "own.yaml")
        config = StudyConfig(
            *(spec.name, str(checkout / "own.yaml"), "served", limits_digest(spec), "demo", 0),
            QUICK,
            restarts=True,
            **others,
        )
        create_study(tmp_path / "study", config)
        return tmp_path / "study"

    return begun


@pytest.mark.parametrize("server", [None, "triton", "embedded"])
def test_a_study_goes_on_with_what_ran_its_engines(study, checkout, server):
    going_on = begun_study(study(server=server))
    assert going_on.spec == load_deployment(checkout / "own.yaml").served_by(server)
    assert going_on.config.server == server


def test_engines_without_a_server_are_opened_anew_though_a_server_runs(checkout, monkeypatch):
    spec = load_deployment(checkout / "own.yaml")
    monkeypatch.setattr(study_folder, "find_server", lambda spec: "unix:/somewhere")
    assert not study_folder.can_restart(spec)
    assert study_folder.can_restart(spec.served_by("embedded"))


def test_a_study_goes_on_from_a_checkout_that_has_moved(study, checkout):
    folder, moved = study(), checkout.rename(checkout.with_name("moved"))
    assert begun_study(folder, str(moved / "own.yaml")).spec.generator.max_batch_size == 64


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("own.yaml", "max_batch_size: 64", "max_batch_size: 32", "its limits_digest was"),
        ("own.yaml", "name: demo", "name: another", "its deployment was 'demo' and is now 'ano"),
        # another checkpoint at the same place
        ("checkpoints/demo-generator/config.json", "10000.0", "20000.0", "its limits_digest was"),
    ],
)
def test_what_has_changed_since_a_study_was_begun_is_refused(study, checkout, file, old, new, said):
    folder, text = study(), (checkout / file).read_text()
    assert old in text
    (checkout / file).write_text(text.replace(old, new, 1))
    with pytest.raises(RunError, match=said):
        begun_study(folder)
