"""`docker run` of NVIDIA's container, for a step of a build as for a server.

One rule about paths: everything that the container needs is mounted at the path it has outside. So
commands, logs and messages name real paths, and the same model repository serves on bare metal and
in a container.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

SHARED_MEMORY_GIB = 2
STACK_BYTES = 67108864
USER = {"USER": "tts"}
"""Libraries ask for the name of a user that the container lacks."""


def docker_run(
    name: str,
    image: str,
    words: Sequence[str],
    *,
    gpus: str | None,
    options: Sequence[str] = (),
    reads: Iterable[Path],
    writes: Iterable[Path],
    variables: dict[str, str],
) -> tuple[str, ...]:
    """The command that runs `words` as this user in a container that is removed when they end."""
    return (
        *("docker", "run", "--rm", "--init", f"--name={name}"),  # --init: it obeys signals
        *((f"--gpus={gpus}",) if gpus else ()),
        f"--user={os.getuid()}:{os.getgid()}",
        f"--shm-size={SHARED_MEMORY_GIB}g",
        "--ulimit=memlock=-1",
        f"--ulimit=stack={STACK_BYTES}",
        *options,
        *(f"--mount={_mount(path)},readonly" for path in reads),
        *(f"--mount={_mount(path)}" for path in writes),
        *(f"--env={key}={value}" for key, value in (USER | variables).items()),
        image,
        *words,
    )


def with_link_targets(folders: Iterable[Path]) -> list[Path]:
    """Folders, and those that links in them lead to, as in the cache of huggingface_hub."""
    mounts = dict.fromkeys(folders)
    linked = {
        file.resolve().parent
        for folder in mounts
        if folder.is_dir()
        for file in folder.iterdir()
        if file.is_symlink()
    }
    return [*mounts, *sorted(linked - set(mounts))]


def _mount(path: Path) -> str:
    return ",".join(map(_csv_field, ("type=bind", f"src={path}", f"dst={path}")))


def _csv_field(field: str) -> str:
    if "," in field or '"' in field:
        return '"' + field.replace('"', '""') + '"'
    return field
