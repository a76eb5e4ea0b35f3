"""`tts list`: the names that other commands take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.markup import escape

from tts.base import paths
from tts.base.input_files import read_text
from tts.base.user_paths import is_folder, is_there
from tts.base.yaml_text import parse_yaml
from tts.build.spec import bundled_deployments
from tts.datasets.hub import KNOWN, cached_file
from tts.reports.console import consoles, table
from tts.strategies.catalog import all_strategies
from tts.strategies.parameters import default_parameters

from .json_output import print_json
from .options.look import List


@dataclass(frozen=True, kw_only=True)
class ListedDeployment:
    """A bundled deployment."""

    name: str
    target: str
    """The target that its engines are compiled for."""
    gpu: str | None
    """The kind of GPU; null for CPUs and for servers that run already."""
    built: bool | None
    """Whether an engine of it is built here; null where nothing is built."""
    about: str


@dataclass(frozen=True, kw_only=True)
class ListedStrategy:
    """A strategy."""

    name: str
    about: str
    parameters: dict[str, Any]
    """Parameters that can be set, with their defaults."""


@dataclass(frozen=True, kw_only=True)
class ListedDataset:
    """A dataset, or a way to name one."""

    name: str
    problems: int | None
    here: bool | None
    """Whether it needs no download."""
    about: str


Listed = ListedDeployment | ListedStrategy | ListedDataset


def list_names(options: List) -> None:
    """Run `tts list`."""
    if options.kind == "deployments":
        rows: Sequence[Listed] = _deployments()
    else:
        rows = _strategies() if options.kind == "strategies" else _datasets()
    if options.as_json:
        print_json(rows)
        return
    listing = table(*asdict(rows[0]))
    for column in listing.columns[1:]:
        column.no_wrap = False  # sentences, or many parameters
    for row in rows:
        listing.add_row(*(escape(_shown(value)) for value in asdict(row).values()))
    consoles()[0].print(listing)


def _deployments() -> list[ListedDeployment]:
    """Each bundled deployment, from its file alone: no checkpoint is looked at."""
    rows = []
    for name in bundled_deployments():
        file = paths.deployments_dir() / f"{name}.yaml"
        data: Any = parse_yaml(read_text(file, 1 << 20))
        built = paths.built_dir(name)
        needs_build = data["target"] in ("openvino", "tensorrt")
        rows.append(
            ListedDeployment(
                name=name,
                target=data["target"],
                gpu=data.get("gpu") or data.get("tensorrt", {}).get("gpu"),
                built=any(is_folder(built / role) for role in ("generator", "verifier"))
                if needs_build
                else None,
                about=_first_sentence(file),
            )
        )
    return rows


def _first_sentence(file: Path) -> str:
    """The first sentence of the comment on top of a deployment file."""
    lines = takewhile(lambda line: line.startswith("#"), file.read_text("utf-8").splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in lines)
    return text.partition(". ")[0].rstrip(".:") + "."


def _strategies() -> list[ListedStrategy]:
    usual_context = 8192
    return [
        ListedStrategy(
            name=name,
            about=strategy.summary,
            parameters={
                parameter: value
                for parameter, value in default_parameters(strategy, usual_context).items()
                if parameter not in strategy.fixed
            },
        )
        for name, strategy in all_strategies().items()
    ]


def _datasets() -> list[ListedDataset]:
    demo = "Chains of whole-number operations that the demo pair has learned, made by a seed."
    return [
        ListedDataset(name="demo", problems=None, here=True, about=demo),
        *(
            ListedDataset(
                name=name,
                problems=dataset.problems,
                here=is_there(cached_file(name)),
                about=f"{dataset.title}.",
            )
            for name, dataset in KNOWN.items()
        ),
        ListedDataset(
            name="OWNER/NAME",
            problems=None,
            here=None,
            about="A dataset of the Hugging Face hub, downloaded when it is first used.",
        ),
        ListedDataset(
            name="FILE",
            problems=None,
            here=None,
            about="A JSONL, CSV or Parquet file with a problem and an answer in each row.",
        ),
    ]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        pairs = value.items()
        return ", ".join(k if v is None else f"{k}={json.dumps(v)}" for k, v in pairs)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
