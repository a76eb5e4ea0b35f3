"""The files that people expect of a project agree with the project and with their formats."""

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_all_of_them_name_the_version():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == "Unreleased"
    assert VERSION in headings
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == VERSION
    assert f"({VERSION.rpartition('.')[0]})" in (ROOT / "SECURITY.md").read_text()
    for page in (ROOT / "Dockerfile", *(ROOT / "docs").rglob("*.md")):
        assert {*re.findall(r"tts-toolkit:([\d.]+\d)", page.read_text())} <= {VERSION}, page.name


def test_the_table_and_the_first_task_of_contributing_name_files():
    table, _, rest = (ROOT / "CONTRIBUTING.md").read_text().partition("## A first task")
    for row in [line for line in table.splitlines() if line.startswith("| ")][1:]:
        folders = [ROOT / "orchestrator" / "tts", ROOT]
        for name in re.findall(r"`([\w/]+(?:/|\.py|\.json))`", row.split(" | ", 1)[1]):
            found = [folder / name for folder in folders if (folder / name).exists()]
            assert found, f"CONTRIBUTING.md names {name}"
            folders.append(found[0] if found[0].is_dir() else found[0].parent)
    names = re.findall(r"`((?:build|tests)/[\w/]+\.py)`", rest.partition("\n## ")[0])
    missing = [name for name in names if not (ROOT / name).exists()]
    assert missing == ["build/tts/build/verifiers/mine.py"]


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("CITATION.cff", "citation-file-format"),
        (".github/ISSUE_TEMPLATE/bug.yml", "github-issue-forms"),
        (".github/ISSUE_TEMPLATE/feature.yml", "github-issue-forms"),
        (".github/ISSUE_TEMPLATE/config.yml", "github-issue-config"),
    ],
)
def test_a_file_is_as_its_format_says(file, schema):
    pytest.importorskip("check_jsonschema", reason="check-jsonschema carries the schemas")
    jsonschema = pytest.importorskip("jsonschema")
    schemas = files("check_jsonschema.builtin_schemas") / "vendor"
    rules = json.loads((schemas / f"{schema}.json").read_text())
    data = yaml.safe_load((ROOT / file).read_text())
    jsonschema.validate(json.loads(json.dumps(data, default=str)), rules)  # dates as text
