"""Engines that are current, and connections to servers of Triton that serve them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tts.base import paths
from tts.base.errors import EndpointUnavailable, ServerError
from tts.build.builder import build_if_quick, require_current
from tts.build.manifest import is_only_described
from tts.build.spec import Deployment, VerifierRole
from tts.checks.requirements import require_gpu
from tts.endpoints.triton import TritonConnection
from tts.engines import wire
from tts.serving.repository.digest import deployment_digest
from tts.serving.server import probe


def require_engines(
    deployment: Deployment, addresses: Sequence[str], say: Callable[[str], None] = lambda line: None
) -> None:
    """Raise a TtsError for engines that are out of date, or that this machine cannot run.

    They need not run here where servers at `addresses` do. Engines of this machine that are not
    built are, if that takes seconds; `say` gets a line then. Where only their manifests are there
    is nothing to compare: the servers are recognised by the digest, which is made of these.
    """
    folders = [paths.engine_dir(deployment.name, role) for role in deployment.engines()]
    if addresses and all(map(is_only_described, folders)):
        return
    if not addresses:  # else they may run elsewhere
        require_gpu(deployment)
        build_if_quick(deployment, say)
    require_current(deployment)


def triton_connection(
    deployment: Deployment, address: str, comes_back: Callable[[], bool] = lambda: False
) -> TritonConnection:
    """The connection to a server of a deployment, with all abilities of its target."""
    rows, host = most_rows(deployment), deployment.target == "openvino"
    verifier, shares = deployment.verifier, deployment.shares_engine
    role = verifier if isinstance(verifier, VerifierRole) else None
    writes = shares or (role is not None and role.facts.writes)
    ensemble = not host and writes and role is not None and role.reads_logits
    own = wire.PRM_ENGINE if ensemble else wire.PRM
    return TritonConnection(
        address,
        comes_back,
        most_rows=rows,
        host=host,
        answer_timeout_s=deployment.answer_timeout_s,
        verifier_model=wire.GENERATOR if shares else own,
        verifier_writes=writes,
        scorer=wire.PRM if ensemble else None,
    )


def most_rows(deployment: Deployment) -> int:
    """Rows of a request, at most: TensorRT-LLM takes one, our engine host a whole batch."""
    if deployment.target != "openvino":
        return 1
    return min(engine.max_batch_size for engine in deployment.engines().values())


def serves(deployment: Deployment, address: str) -> bool:
    """Whether the server at an address serves the deployment as it is here."""
    return probe.served_digest(address) == deployment_digest(deployment)


def require_served(address: str, deployment: Deployment) -> None:
    """Raise ServerError if what answers is another deployment; else EndpointUnavailable."""
    digest = probe.served_digest(address)
    if digest is None:
        raise EndpointUnavailable(f"No server answers at {address}.")
    if digest != deployment_digest(deployment):
        raise ServerError(
            f"The server at {address} does not serve deployment {deployment.name} as it is here.",
            hint="Every server of a run must serve the same engines: rebuild and restart it, or "
            "leave it out.",
        )
    try:
        probe.probe(address)
    except ServerError as error:
        raise EndpointUnavailable(error.message, error.hint) from error
