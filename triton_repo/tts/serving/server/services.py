"""The servers of a deployment, in the order in which they start."""

from __future__ import annotations

from collections.abc import Collection

from tts.build.spec import Deployment, Role

from .service import Service
from .started import Engine, Mps
from .triton import Triton


def services_of(deployment: Deployment) -> list[Service]:
    """Every server of a deployment: what the started engines need, these, and the compiled ones'.

    Engines start one after the other, so that each finds the memory that the plan has for it.
    """
    services = started_services(deployment, deployment.started())
    if deployment.engines() and deployment.server.kind == "triton":
        services.append(Triton(deployment))
    return services


def started_services(deployment: Deployment, roles: Collection[Role]) -> list[Service]:
    """The servers of the engines of these roles that are started, and what they need."""
    engines: list[Service] = [
        Engine(deployment, each) for each in deployment.started() if each in roles
    ]
    return [Mps(deployment), *engines] if deployment.mps and engines else engines
