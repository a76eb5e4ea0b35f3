"""The generated reference pages are those that the code gives, and leave nothing out."""

import re

import pytest
from scripts import reference
from scripts.bundled_page import FETCHED
from tests.bundled import BUNDLED, COMPILED
from typer.main import get_command

from tts.build import errors
from tts.build.spec import Deployment
from tts.build.spec.load import _models_in
from tts.cli import app


def page(name):
    return (reference.FOLDER / name).read_text(encoding="utf-8")


def test_the_pages_are_what_the_code_gives():
    for name, text in reference.pages().items():
        assert page(name) == text, "run scripts/run reference"


def leaves(group, name="tts"):
    for called, command in group.commands.items():
        if not command.hidden:
            if getattr(command, "commands", None):
                yield from leaves(command, f"{name} {called}")
            else:
                yield f"{name} {called}", command


def test_every_command_and_option_that_help_shows_is_on_the_page():
    text = page("cli.md")
    sections = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    found = dict(leaves(get_command(app)))
    assert found.keys() <= sections.keys()
    for name, command in found.items():
        for parameter in command.params:
            shown = not getattr(parameter, "hidden", False) and parameter.name != "help"
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                assert (f"`{option}`" in sections[name]) == shown, f"{name} {option}"


def sections_below(model):
    yield model
    for field in model.model_fields.values():
        for nested in _models_in(field.annotation):
            yield from sections_below(nested)


def test_every_field_of_a_deployment_is_described():
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", page("deployment.md"), re.MULTILINE)
    named = {name for name, _ in rows}
    for section in sections_below(Deployment):
        assert section.model_fields.keys() <= named, section
    for name, cells in rows:
        assert all(cell.strip() for cell in cells.split(" | ")[:1]), f"{name} has no type"
        assert cells.split(" | ")[-1].strip(), f"{name} has no description"


def test_every_link_to_an_object_leads_to_its_table():
    text = page("json-output.md")
    headings = {name.lower() for name in re.findall(r"^### (\w+)$", text, re.MULTILINE)}
    assert headings == set(re.findall(r"\]\(#(\w+)\)", text)) != set()
    assert "None" not in text


def test_every_bundled_deployment_is_on_its_page_with_its_memory():
    text = page("bundled-deployments.md")
    for name, deployment in BUNDLED.items():
        planned = bool(deployment.tensorrt) or (
            deployment.target == "openvino" and name in COMPILED and name != FETCHED
        )
        assert text.count(f"| `{name}` |") == 1 + planned, name


def test_every_error_is_on_the_page():
    text = page("exit-codes.md")
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.TtsError):
            assert f"| `{name}` |" in text
            assert f"| {error.exit_code} |" in text


def test_a_stale_page_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["reference"])
    reference.main()
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    reference.main()
    (tmp_path / "cli.md").write_text("another")
    with pytest.raises(SystemExit, match=r"cli\.md would change"):
        reference.main()


def test_examples_in_a_help_text_become_code():
    said = "Solve it [dim](docs/guides/gpu.md)[/dim].\n\n\b\nExamples:\n  tts solve demo\n"
    said += "  tts bench demo"
    assert reference._prose(said) == (
        "Solve it ([docs/guides/gpu.md](../guides/gpu.md)).\n\n"
        "Examples:\n\n```text\ntts solve demo\ntts bench demo\n```"
    )


def test_brackets_and_names_of_pages_that_do_not_exist_are_no_links():
    assert reference._prose("OWNER/NAME[:SPLIT], see docs/no.md") == (
        "OWNER/NAME\\[:SPLIT], see `docs/no.md`"
    )
    assert reference._prose("as `--set [a]`") == "as `--set [a]`"
