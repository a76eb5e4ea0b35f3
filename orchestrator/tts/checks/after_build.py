"""The checks of a deployment's engines, repository and server, beside those before a build."""

from __future__ import annotations

from collections.abc import Sequence

from . import BEFORE_BUILD, Check, built_engines, measured, repository, searches, server_start

BEFORE_DEPLOY: Sequence[Check] = (*BEFORE_BUILD, repository.rendering, built_engines.read_back)
ALL: Sequence[Check] = (
    *BEFORE_DEPLOY,
    server_start.host,
    searches.strategies,
    built_engines.engine_files,
    built_engines.current,
    repository.on_disk,
    built_engines.tokenizer_file,
    measured.calibration,
)
DEEP: Sequence[Check] = (*ALL, built_engines.contents)
"""All checks, and the content of the engines, which takes as long as reading them."""
