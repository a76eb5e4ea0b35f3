"""Checks of the build: the target's rules, calibration, the flags of the compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tts.build.errors import ConfigError, TtsError
from tts.build.llmapi import target as llmapi
from tts.build.spec import Deployment
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import calibration_folder, check_engine, is_calibrated, steps
from tts.build.tensorrt.target import check_calibration, workspace
from tts.serving.repository.check import Finding

from .checkpoints import models_of
from .findings import no_folder, not_checked, refused


def buildable(deployment: Deployment) -> Iterator[Finding]:
    """GPU, precision, parallelism and architecture, as TensorRT-LLM takes them."""
    why = "TensorRT-LLM refuses it, or changes it silently, after the conversion"
    if deployment.target == "llmapi":
        why = "TensorRT-LLM refuses it when it loads the checkpoint"
    if deployment.tensorrt is not None:
        check = llmapi.check_engine if deployment.target == "llmapi" else check_engine
        for role, model in models_of(deployment):
            try:
                check(deployment, role, model)
            except ConfigError as error:
                yield refused(error, deployment, role, why)


_TRITON = re.compile(r"nvcr\.io/nvidia/tritonserver:(?P<tag>\d\d\.\d\d)-trtllm-python-py3")


def image(deployment: Deployment) -> Iterator[Finding]:
    """An image of NVIDIA's Triton with TensorRT-LLM that is not known to exist."""
    options = deployment.tensorrt
    named = _TRITON.fullmatch((options and options.image) or "")
    if named and named["tag"] not in contract.containers():
        yield Finding(
            f"{named[0]} is not known to exist",
            "tensorrt.image",
            f"of NVIDIA's images with Triton, {', '.join(contract.containers())} hold "
            "TensorRT-LLM, and its release 26.11 has none",
            "Look whether docker can pull it; else remove image, or use trtllm-serve "
            "(docs/guides/llmapi.md).",
            "warning",
        )


def calibration(deployment: Deployment) -> Iterator[Finding]:
    """A local calibration folder: there, and without code."""
    for role, spec in deployment.engines().items():
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
            yield refused(error, deployment, where, "the quantiser opens the whole folder")


def flags(deployment: Deployment) -> Iterator[Finding]:
    """The planned trtllm-build commands: every flag exists, and is taken as it is given."""
    if deployment.target == "tensorrt" and not any(buildable(deployment)):
        for role, model in models_of(deployment):
            program, *arguments = steps(deployment, role, model, workspace(deployment, role))[
                -1
            ].command
            for problem in contract.check_build_arguments(arguments):
                yield Finding(
                    problem,
                    f"{role}: {program}",
                    "the build would stop, or build something else",
                    "This is a fault of the toolkit: report it with the deployment file.",
                )
