"""What the guides give to be copied: the service of systemd, and resources of Kubernetes."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tts.build.spec import Deployment

DOCS = Path(__file__).parents[1] / "docs"
RESOURCES = [
    (file.name, yaml.safe_load(block))
    for file in sorted(DOCS.rglob("*.md"))
    for block in re.findall(
        r"^ *apiVersion:.*?(?=^ *YAML$|^ *```$)",
        file.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
]


DEPLOYMENTS = [
    yaml.safe_load(block)
    for file in sorted(DOCS.rglob("*.md"))
    for block in re.findall(r"^```yaml\n(name: .*?)^```$", file.read_text(), re.M | re.S)
]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment["name"])
def test_a_deployment_file_to_copy_is_one(deployment: dict[str, object]):
    Deployment.model_validate(deployment)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The service, with a program that is here."""
    guide = (DOCS / "guides" / "gateway.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```ini\n(.*?)```", guide, re.DOTALL)
    file = tmp_path / "tts-gateway.service"
    file.write_text(text.replace("/opt/tts/bin/tts", str(Path(sys.executable).with_name("tts"))))
    return file


def test_systemd_accepts_the_service_and_finds_little_exposed(unit: Path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is in Debian's package systemd")
    for words in (["verify"], ["security", "--offline=true", "--threshold=20"]):
        done = subprocess.run(
            ["systemd-analyze", *words, str(unit)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_service_may_drain(unit: Path):
    parsed = configparser.ConfigParser(strict=False)
    parsed.optionxform = str
    parsed.read_string(unit.read_text())
    service = parsed["Service"]
    words = shlex.split(service["ExecStart"])
    assert int(words[words.index("--grace") + 1]) < int(service["TimeoutStopSec"])
    assert service["KillMode"] == "mixed"  # SIGTERM is not for the engines


@pytest.mark.parametrize(("guide", "resource"), RESOURCES, ids=[name for name, _ in RESOURCES])
def test_resources_of_kubernetes_fit_their_schemas(guide: str, resource: dict[str, object]):
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate carries the Kubernetes schemas"
    )
    validate.validate(resource, validate.latest_version(), strict=True)
