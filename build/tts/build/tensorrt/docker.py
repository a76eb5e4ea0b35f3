"""The full command of a step: in a container of its own, or directly if we are inside one.

Folders are mounted at their own paths, so that commands, logs and messages name real paths.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import contract
from .commands import Step, Workspace


def docker_command(step: Step, work: Workspace, tag: str, name: str) -> tuple[str, ...]:
    """`docker run` of a step: as this user, on its GPUs only, with network only if it needs it."""
    writes = dict.fromkeys(step.writes)
    reads = dict.fromkeys(path for read in step.reads for path in (read, *_linked_folders(read)))
    devices = ",".join(map(str, step.devices))
    # one field of a CSV line, in which docker would take each further device for an option
    gpus = f'"device={devices}"' if len(step.devices) > 1 else f"device={devices}"
    return (
        *("docker", "run", "--rm", "--init"),  # --init: it obeys signals
        *("--name", name),
        *("--gpus", gpus),
        *("--user", f"{os.getuid()}:{os.getgid()}"),
        *contract.container_options(),
        *(("--network", "none") if step.isolated and not step.network else ()),
        *(option for path in reads for option in ("--mount", _mount(path, read_only=True))),
        *(option for path in writes for option in ("--mount", _mount(path, read_only=False))),
        *("--env", f"HOME={work.home}"),
        *("--env", "USER=tts"),  # libraries ask for the name of a user that the container lacks
        *(() if step.network else ("--env", "HF_HUB_OFFLINE=1")),
        contract.container_image(tag),
        *step.command,
    )


def direct_command(step: Step, python: str = "python3") -> tuple[str, ...]:
    """A step inside the container, with the devices numbered as nvidia-smi numbers them."""
    program, *arguments = step.command
    return (
        "env",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        f"CUDA_VISIBLE_DEVICES={','.join(map(str, step.devices))}",
        *(() if step.network else ("HF_HUB_OFFLINE=1",)),
        python if program == "python3" else program,
        *arguments,
    )


def shell_text(command: Sequence[str]) -> str:
    """A command to paste into a shell: quoted, one option or program to a line."""
    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith(("--", "nvcr.io/")) and lines[-1]:
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n    ".join(" ".join(line) for line in lines)


def _linked_folders(path: Path) -> Iterable[Path]:
    """Folders that the files of a folder are links into, as in the cache of huggingface_hub."""
    if not path.is_dir():
        return []
    linked = {file.resolve().parent for file in path.iterdir() if file.is_symlink()}
    return sorted(linked - {path})


def _mount(path: Path, *, read_only: bool) -> str:
    fields = ["type=bind", f"source={path}", f"target={path}", *(["readonly"] if read_only else [])]
    return ",".join(_csv_field(field) for field in fields)


def _csv_field(field: str) -> str:
    if "," in field or '"' in field:
        return '"' + field.replace('"', '""') + '"'
    return field
