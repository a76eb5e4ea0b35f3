"""What `tts build-engines` and `tts deploy` print."""

from __future__ import annotations

from collections.abc import Sequence

from tts.build import paths
from tts.build.builder import BuildReport
from tts.build.spec import Deployment, Role


def built_sentence(report: BuildReport) -> str:
    """What became of one engine: built or not, its size, how it was verified, its folder."""
    size = f"{report.size_bytes / 1e6:.1f} MB"
    if report.verification:
        error = max(report.verification.export_error, report.verification.served_error)
        checked = f"largest logit error against transformers {error:.1e}"
    else:
        checked = f"not verified: {report.not_verified}"
    took = f" in {report.seconds:.1f} s" if report.status == "built" else ""
    return f"{report.role}: {report.status}{took}, {size}, {checked}\n  {report.folder}"


def deployed_notes(
    deployment: Deployment, source: str, *, manifests: bool, missing: Sequence[Role]
) -> list[str]:
    """What there is left to do after `tts deploy`, in lines.

    `source` is what the user called the deployment, `missing` the engines that are not built here.
    """
    notes = []
    if manifests and deployment.server.grpc_port == "auto":
        notes += [
            "There the server listens on gRPC port 8001; bench and solve look for it on that port",
            "when the deployment says server.grpc_port: 8001.",
        ]
    if missing:
        notes += [
            f"Not built on this machine: {' and '.join(missing)}. The repository expects them in",
            f"{paths.built_dir(deployment.name)}; build them with: tts build-engines {source}",
            "Then deploy again: clients know a server by the engines it was rendered for.",
        ]
    return notes
