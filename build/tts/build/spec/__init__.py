"""The deployment: one YAML file that names both engines, their batching policies and the server.

Each section of the file is in the module that has its name:

| module | sections and fields |
|---|---|
| deployment | `Deployment`: the whole file; name, endpoints, strategies; what each target allows |
| role | what the orchestrator needs of generator and verifier alike: `RoleSpec` |
| execution | execution: `ExecutionSpec` |
| engine | what is common to those that are compiled: `EngineSpec`, kv_cache |
| generator | generator: `GeneratorSpec`, compiled; `GeneratorRole` wherever it runs |
| verifier | verifier: `VerifierSpec`, `VerifierRole`, its labels, template and prompt |
| text_verifier | verifier: a Python function or a program, no model |
| calibration | verifier.calibration: the probabilities that scores stand for |
| critique | verifier.critique: how a verifier writes, and how its verdict is read |
| remote | either of them with a `url`: `RemoteSpec` |
| started | either of them on a server that is started: `StartedSpec` |
| verifier_formats | verifier.format: `FORMATS`, the facts about each |
| server | server: `ServerSpec`; hosts, ports, endpoints |
| tensorrt | `TensorRTSpec`, the GPU and the container; `TensorRTEngine` of each engine |

| module | job |
|---|---|
| section | the base of all sections, and types that several have |
| field_docs | what the source says about a field |
| load | `load_deployment`: finding a file and reading it; `explain`: what is wrong with it |
"""

from tts.base.choices import StartedTarget, Target

from .calibration import MeasuredOn, VerifierCalibration
from .critique import CritiqueSpec
from .deployment import ANSWER_TIMEOUT_S, PRECISIONS, STARTED, Deployment
from .engine import EngineSpec, KvCache, Precision
from .execution import ExecutionSpec
from .generator import GeneratorRole, GeneratorSpec
from .load import (
    bundled_deployments,
    deployment_file,
    explain,
    load_deployment,
)
from .remote import RemoteGenerator, RemoteSpec, RemoteVerifier
from .role import ROLES, Role, RoleSpec
from .server import ENDPOINT, HttpPort, Port, ServerSpec
from .started import GGUF, StartedGenerator, StartedSpec, StartedVerifier
from .tensorrt import CalibrationSpec, Gpu, TensorRTEngine, TensorRTSpec
from .text_verifier import TextVerifier, VerifierCommand, VerifierFunction
from .verifier import (
    PROMPT_PLACES,
    SharedVerifier,
    Template,
    VerifierRole,
    VerifierSpec,
)
from .verifier_formats import FORMATS, READ_AT_LABELS, FormatFacts, HeadKind, Scores

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
    "FormatFacts",
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
]
