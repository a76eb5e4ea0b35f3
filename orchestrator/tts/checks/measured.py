"""Whether the verifier is still the one that its calibration was measured with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict

from tts.base import paths
from tts.base.errors import CheckpointError
from tts.base.findings import Finding
from tts.build.inputs import Inputs, verifier_identity
from tts.build.manifest import read_manifest
from tts.build.spec import VerifierSpec

from .findings import not_checked

_WHERE = "verifier.calibration"


def calibration(inputs: Inputs) -> Iterator[Finding]:
    """Model, format and template are those that the calibration was measured with."""
    deployment = inputs.deployment
    measured = deployment.verifier.calibration and deployment.verifier.calibration.measured
    if not measured or not measured.verifier:
        return
    again = f"Measure it again: tts score {deployment.argument} FILE --write"
    folder = paths.engine_dir(deployment.name, "verifier")
    if isinstance(deployment.verifier, VerifierSpec) and read_manifest(folder) is None:
        why = "a large checkpoint is hashed when its engine is built"
        yield not_checked("the verifier is not built", _WHERE, why, "Build it, and lint again.")
        return
    with suppress(CheckpointError, OSError):  # other checks report it
        for name, now in asdict(verifier_identity(deployment)).items():
            before = measured.verifier.get(name, now)
            if before != now:
                yield Finding(
                    f"was measured on {measured.date} with another {name}, {before}; it is {now}",
                    _WHERE,
                    "its probabilities are those of other scores",
                    again,
                    "warning",
                )
