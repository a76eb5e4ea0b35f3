"""Checks of a build by TensorRT-LLM: its rules, calibration."""

from __future__ import annotations

from collections.abc import Iterator

from tts.base.errors import ConfigError, TtsError
from tts.base.findings import Finding
from tts.build.inputs import Inputs
from tts.build.tensorrt.commands import (
    calibration_folder,
    check_calibration,
    check_engine,
    is_calibrated,
)

from .findings import no_folder, not_checked, refused


def buildable(inputs: Inputs) -> Iterator[Finding]:
    """GPU, precision, parallelism and architecture, as TensorRT-LLM takes them."""
    why = "TensorRT-LLM refuses it, or changes it silently, after the conversion"
    for engine in inputs.with_shapes():
        try:
            check_engine(inputs.deployment, engine.role, engine.shape)
        except ConfigError as error:
            yield refused(error, inputs.deployment, engine.role, why)


def calibration(inputs: Inputs) -> Iterator[Finding]:
    """A local calibration folder: there, and without code."""
    for role, spec in inputs.deployment.engines().items():
        if not is_calibrated(spec) or (folder := calibration_folder(spec)) is None:
            continue
        where = f"{role}.tensorrt.calibration.dataset"
        if what := no_folder(folder):
            yield Finding(
                f"{folder} {what}",
                where,
                "the quantiser reads a folder of data files",
                "Name the folder that holds the samples.",
            )
            continue
        if not folder.is_dir():
            yield not_checked(
                f"there is no folder {folder} here",
                where,
                f"{spec.precision} takes its scales from it",
                "Put the samples there before the build, on the machine that builds.",
            )
            continue
        try:
            check_calibration(spec)
        except TtsError as error:
            yield refused(error, inputs.deployment, where, "the quantiser opens the whole folder")


CHECKS = (buildable, calibration)
