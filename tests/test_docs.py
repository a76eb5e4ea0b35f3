"""The pages name commands, options, deployments and messages that exist."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from tests.bundled import FOR_GPUS
from typer.core import TyperGroup
from typer.main import get_command

from tts.base import paths
from tts.build.spec import bundled_deployments
from tts.cli import app
from tts.cli.command import WithDefault
from tts.datasets.hub import KNOWN

ROOT = Path(__file__).resolve().parents[1]
TENSORRT = ROOT / "docs" / "guides" / "gpu.md"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
DATASETS = {"demo", *KNOWN}
OUTSIDE = [ROOT / name for name in ("README.md", "SECURITY.md", "examples/README.md")]
OF_ALL = {"--help", "--install-completion"}
COMMANDS = getattr(get_command(app), "commands")  # noqa: B009 - a Group, for typer's types a Command


def commands_of(page):
    """The words of every `tts` command in the code blocks of a page, fenced or indented."""
    text = re.sub(r"\\\n\s*", "", page.read_text())  # a command over several lines
    for line in re.findall(r"^(?: {4})?(?:\$ )?(tts .*)", text, re.MULTILINE):
        yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "cli.md"],  # which is made from the commands
    ids=lambda page: page.name,
)
def test_commands_and_options_exist(page):
    for command, *arguments in commands_of(page):
        if command in OF_ALL:
            continue
        assert command in COMMANDS, f"{page.name} names tts {command}"
        asked = COMMANDS[command]
        while isinstance(asked, TyperGroup):
            if isinstance(asked, WithDefault) and arguments[0] not in asked.commands:
                arguments = [asked.default, *arguments]
            name, *arguments = arguments
            assert name in asked.commands, f"{page.name} names tts {command} {name}"
            asked = asked.commands[name]
        known = {
            option
            for parameter in asked.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        given = [word.partition("=")[0] for word in arguments if word.startswith("-")]
        assert set(given) <= known | OF_ALL, f"{page.name}: tts {command} {shlex.join(arguments)}"
        for option, dataset in pairwise(arguments):
            if option == "--dataset":
                assert {"/", "."} & {*dataset} or dataset in DATASETS, f"{page.name}: {dataset}"


@pytest.mark.parametrize(
    ("first", "way"),
    [
        ("init", ["init", "plan", "lint", "serve", "solve", "bench", "report"]),
        (
            "hf",
            ["plan", "lint", "build-engines", "render", "serve", "solve", "bench", "report"],
        ),
    ],
)
def test_the_way_to_a_benchmark_has_every_step(first, way):
    """By an engine that is started, and by compiled ones once their checkpoints are here."""
    lines = re.findall(r"^(?:tts|hf) .*", TENSORRT.read_text(), re.M)
    said = [line.split()[line.startswith("tts ")] for line in lines]
    start = said.index(first)
    assert list(dict.fromkeys(c for c in said[start:] if c in way))[: len(way)] == way


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_deployments_in_commands_exist(page):
    bundled = bundled_deployments()
    for command, *arguments in commands_of(page):
        if command in ("plan", "lint", "build-engines", "render", "serve", "bench"):
            named = [word for word in arguments if word.startswith(("demo", "llama"))]
            # the value of --dataset, not a deployment, may be called demo too: it is one anyway
            assert set(named) <= set(bundled), f"{page.name}: tts {command} {named}"


@pytest.mark.parametrize("name", FOR_GPUS)
def test_a_deployment_names_the_downloads_of_its_own_checkpoints(name):
    text = (paths.deployments_dir() / f"{name}.yaml").read_text()
    downloads = re.findall(r"^#   hf download (\S+) .*--local-dir engines/(\S+)$", text, re.M)
    checkpoints = re.findall(r"^  checkpoint: \.\./(\S+)$", text, re.M)
    if name.startswith("demo-"):
        assert downloads == []
    else:
        assert [folder for _, folder in downloads] == checkpoints
        assert all(Path(repository).name == Path(to).name for repository, to in downloads)


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: page.name)
def test_links_of_what_is_not_on_the_site_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
