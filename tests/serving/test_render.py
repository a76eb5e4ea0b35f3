"""The model repository: rendered whole, checked, kept when nothing changed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.spec import Deployment
from tts.serving.repository.digest import deployment_digest
from tts.serving.repository.render import parse_config, render_repository

Echo = Callable[..., Deployment]


def test_every_config_carries_the_digest_and_parses(echo: Echo):
    deployment = echo()
    folder = render_repository(deployment)
    assert folder == paths.repository_dir("echo")
    for model in ("generator", "prm"):
        config = parse_config(folder / model / "config.pbtxt")
        assert config.name == model
        digest = config.parameters["deployment_digest"].string_value
        assert digest == deployment_digest(deployment)
        assert (folder / model / "1" / "model.py").is_file()
    # an OpenVINO verifier's logit columns are the labels themselves
    assert config.parameters["label_ids"].string_value == "0,1"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["model_repository"]


def test_an_unchanged_repository_is_kept_and_a_changed_one_replaced(echo: Echo, templates: Path):
    folder = render_repository(echo())
    (folder / "prm" / "1" / "__pycache__").mkdir()  # as Triton leaves it
    before = folder.stat().st_ino
    assert render_repository(echo()).stat().st_ino == before
    (templates / "common" / "prm" / "1" / "model.py").write_text("changed")
    assert render_repository(echo()).stat().st_ino != before
    assert (folder / "prm" / "1" / "model.py").read_text() == "changed"


def test_a_config_that_does_not_parse_is_named_and_the_last_repository_stays(
    echo: Echo, templates: Path
):
    before = render_repository(echo()).stat().st_ino
    template = templates / "common" / "prm" / "config.pbtxt.j2"
    template.write_text('name: "prm"\nmax_batch_sice: 4\n')
    with pytest.raises(ServerError, match=r"prm/config.pbtxt .* line 2 \('max_batch_sice: 4'\)"):
        render_repository(echo())
    template.write_text("{{ no_such_value }}")
    with pytest.raises(ServerError, match=r"common/prm/config.*'no_such_value' is undefined"):
        render_repository(echo())
    template.write_text("fine\n{% if %}")
    with pytest.raises(ServerError, match=r"prm/config.pbtxt.j2, line 2"):
        render_repository(echo())
    assert paths.repository_dir("echo").stat().st_ino == before


def test_any_path_survives_quoting(echo: Echo, templates: Path, monkeypatch, tmp_path: Path):
    home = tmp_path / 'a "quoted" back\\slash'
    monkeypatch.setenv("TTS_HOME", str(home))
    with (templates / "common" / "prm" / "config.pbtxt.j2").open("a") as file:
        file.write('parameters { key: "d" value { string_value: "{{ engine_dirs.verifier }}" } }')
    config = parse_config(render_repository(echo()) / "prm" / "config.pbtxt")
    assert config.parameters["d"].string_value == str(home / "built" / "echo" / "verifier")


def test_the_digest_is_about_what_is_served(echo: Echo, templates: Path):
    def changed(role: str, **values: object) -> Deployment:
        spec = getattr(deployment, role).model_copy(update=values)
        return deployment.model_copy(update={role: spec})

    deployment = echo()
    digest = deployment_digest(deployment)
    for same in (
        echo(grpc_port=9001),
        changed("generator", in_flight_requests=99, system_prompt="Be brief."),
        changed("verifier", in_flight_tokens=999),
        deployment.model_copy(update={"strategies": {"beam-search": {"n": 4}}}),
    ):
        assert deployment_digest(same) == digest
    assert deployment_digest(changed("generator", max_num_tokens=63)) != digest
    (templates / "common" / "prm" / "1" / "model.py").write_text("changed")
    assert deployment_digest(deployment) != digest
