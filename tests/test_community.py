"""The files that people expect of a project: they agree with the project and with their formats."""

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
FOLDERS = ("orchestrator/tts", ".")


def test_the_changelog_has_the_version_and_what_is_to_come():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == "Unreleased"
    assert VERSION in headings
    assert CITATION["version"] == VERSION


def test_the_security_policy_supports_the_version():
    assert f"({VERSION.rpartition('.')[0]})" in (ROOT / "SECURITY.md").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    file = ROOT / page
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", file.read_text()):
        assert "://" in target or (file.parent / target).exists(), f"{page} links to {target}"


def test_contributing_is_short_and_its_table_names_files():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(text.split()) <= 900
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    for row in rows:
        folders = [ROOT / folder for folder in FOLDERS]
        for name in re.findall(r"`([\w/]+(?:/|\.py|\.json))`", row.split(" | ", 1)[1]):
            found = [folder / name for folder in folders if (folder / name).exists()]
            assert found, f"CONTRIBUTING.md names {name}"
            folders.append(found[0] if found[0].is_dir() else found[0].parent)


def test_the_first_task_names_what_there_is():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    task = text.partition("## A first task")[2].partition("\n## ")[0]
    names = re.findall(r"`((?:build|tests)/[\w/]+\.py)`", task)
    assert [name for name in names if not (ROOT / name).exists()] == [
        "build/tts/build/verifiers/mine.py"
    ]


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


def test_references_have_an_identifier_that_is_their_address():
    for reference in CITATION["references"]:
        for identifier in reference.get("identifiers", []):
            assert identifier["value"].removeprefix("arXiv:") in reference["url"]
        assert reference["url"].startswith("https://")


def test_the_hooks_run_programs_of_the_environment():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    programs = {hook["entry"].split()[0] for repo in config["repos"] for hook in repo["hooks"]}
    assert programs == {".venv/bin/ruff", ".venv/bin/mypy"}
