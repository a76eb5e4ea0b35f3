"""The deployment: one YAML file that names both engines, their batching policies and the server.

Each section of the file is in the module that has its name:

| module | sections and fields |
|---|---|
| deployment | `Deployment`: the whole file; name, endpoints, strategies; what each target allows |
| engine | what is common to those that are compiled: `EngineSpec`, kv_cache, both tensorrt |
| generator | generator: `GeneratorSpec`, compiled; `GeneratorRole` wherever it runs; thinking |
| verifier | verifier: `VerifierSpec`, `VerifierRole`, its labels, template and prompt |
| text_verifier | verifier: a Python function or a program, no model; execution |
| calibration | verifier.calibration: the probabilities that scores stand for |
| critique | verifier.critique: how a verifier writes, and how its verdict is read |
| served | either of them with a `url`: `RemoteSpec`; on a server that is started: `StartedSpec` |
| verifier_formats | verifier.format: `FORMATS`, the facts about each |
| server | server: `ServerSpec`; hosts, ports, endpoints |

| module | job |
|---|---|
| section | the base of all sections and of both roles, types that several have, texts of fields |
| load | `load_deployment`: finding a file and reading it; `explain`: what is wrong with it |
"""

from tts.base.choices import PRECISIONS, STARTED, Precision, Role, StartedTarget, Target

from .calibration import MeasuredOn, VerifierCalibration
from .critique import CritiqueSpec
from .deployment import ANSWER_TIMEOUT_S, Deployment
from .engine import (
    CalibrationSpec,
    EngineSpec,
    Gpu,
    KvCache,
    TensorRTEngine,
    TensorRTSpec,
)
from .generator import GeneratorRole, GeneratorSpec
from .load import bundled_deployments, deployment_file, explain, load_deployment, reason_of
from .section import ROLES, RoleSpec
from .served import (
    GGUF,
    RemoteGenerator,
    RemoteSpec,
    RemoteVerifier,
    StartedGenerator,
    StartedSpec,
    StartedVerifier,
)
from .server import ENDPOINT, HttpPort, Port, ServerSpec
from .text_verifier import ExecutionSpec, TextVerifier, VerifierCommand, VerifierFunction
from .verifier import PROMPT_PLACES, SharedVerifier, Template, VerifierRole, VerifierSpec
from .verifier_formats import FORMATS, READ_AT_LABELS, HeadKind, Scores

__all__ = [
    "ANSWER_TIMEOUT_S",
    "ENDPOINT",
    "FORMATS",
    "GGUF",
    "PRECISIONS",
    "PROMPT_PLACES",
    "READ_AT_LABELS",
    "ROLES",
    "STARTED",
    "CalibrationSpec",
    "CritiqueSpec",
    "Deployment",
    "EngineSpec",
    "ExecutionSpec",
    "GeneratorRole",
    "GeneratorSpec",
    "Gpu",
    "HeadKind",
    "HttpPort",
    "KvCache",
    "MeasuredOn",
    "Port",
    "Precision",
    "RemoteGenerator",
    "RemoteSpec",
    "RemoteVerifier",
    "Role",
    "RoleSpec",
    "Scores",
    "ServerSpec",
    "SharedVerifier",
    "StartedGenerator",
    "StartedSpec",
    "StartedTarget",
    "StartedVerifier",
    "Target",
    "Template",
    "TensorRTEngine",
    "TensorRTSpec",
    "TextVerifier",
    "VerifierCalibration",
    "VerifierCommand",
    "VerifierFunction",
    "VerifierRole",
    "VerifierSpec",
    "bundled_deployments",
    "deployment_file",
    "explain",
    "load_deployment",
    "reason_of",
]
