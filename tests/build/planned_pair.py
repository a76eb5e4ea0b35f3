"""A generator and a verifier of published shapes, for tests of the memory plan."""

from pathlib import Path

import pytest

from tts.build.spec import Deployment, GeneratorSpec, VerifierSpec

ONE_B, EIGHT_B, PRM = (
    Path("/nowhere") / name
    for name in ("Llama-3.2-1B-Instruct", "Llama-3.1-8B-Instruct", "Llama3.1-8B-PRM-Deepseek-Data")
)


def generator(**fields):
    return GeneratorSpec.model_validate(
        {
            "checkpoint": ONE_B,
            "precision": "bf16",
            "max_batch_size": 256,
            "max_num_tokens": 4096,
            "max_seq_len": 2048,
            "kv_cache": {"tokens": 2048},
            "in_flight_requests": 256,
        }
        | fields
    )


def verifier(**fields):
    return VerifierSpec.model_validate(
        {
            "checkpoint": PRM,
            "precision": "bf16",
            "max_batch_size": 64,
            "max_num_tokens": 8192,
            "max_seq_len": 2048,
            "kv_cache": {"tokens": 2048},
            "in_flight_tokens": 32768,
        }
        | fields
    )


def deployment(gpu="h100", generator_fields=None, verifier_fields=None):
    return Deployment(
        name="pair",
        target="tensorrt",
        generator=generator(**(generator_fields or {})),
        verifier=verifier(**(verifier_fields or {})),
        tensorrt={"gpu": gpu},
    )


def near(value, tolerance=0.01):
    return pytest.approx(value, rel=tolerance)
