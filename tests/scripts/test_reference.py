"""The generated reference pages are those that the code gives, and leave nothing out."""

import json
import re

from tests.programs import ROOT, run
from typer.main import get_command

from tts.build.spec import Deployment
from tts.build.spec.load import _models_in
from tts.cli import app

FOLDER = ROOT / "docs" / "reference"


def page(name):
    return (FOLDER / name).read_text(encoding="utf-8")


def test_the_pages_are_what_the_code_gives():
    done = run("reference", "--check")
    assert done.returncode == 0, done.stderr


def test_every_command_that_help_shows_is_on_the_page():
    headings = set(re.findall(r"^#+ `?tts ([a-z-]+)", page("cli.md"), re.MULTILINE))
    shown = get_command(app).commands.items()
    assert headings == {name for name, command in shown if not command.hidden}


def sections_below(model):
    yield model
    for field in model.model_fields.values():
        for nested in _models_in(field.annotation):
            yield from sections_below(nested)


def test_every_field_of_a_deployment_is_described():
    fields = re.findall(r"^\* `(\w+)` \(.*?\):(.*)$", page("deployment.md"), re.MULTILINE)
    for section in sections_below(Deployment):
        assert section.model_fields.keys() <= {name for name, _ in fields}, section
    for name, text in fields:
        assert text.strip(), f"{name} has no description"


def test_every_object_of_a_document_is_in_the_schema():
    text = page("json-output.schema.json")
    assert set(re.findall(r'"#/\$defs/([^"]+)"', text)) <= json.loads(text)["$defs"].keys()
