"""Engines of target openvino, left as they were when their server was ready."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from .triton_errors import all_reset
from .triton_requests import reset_request
from .triton_transport import Transport

RESET_TIMEOUT_S = 1800.0
"""A reset opens the engine anew, which takes as long as when the server started."""


async def reset_caches(
    transport: Transport, writing: Collection[str], scoring: Collection[str]
) -> bool:
    """Whether all models have empty prefix caches again; False if one holds requests.

    `scoring` are the models that give scores alone. Raises EndpointError.
    """
    streams = transport.whole.streams
    return await all_reset(
        *(
            transport.sample(
                model,
                partial(streams(model).start, partial(reset_request, model), whole=True),
                RESET_TIMEOUT_S,
            )
            for model in writing
        ),
        *(
            transport.infer(model, reset_request(model, scored=True), RESET_TIMEOUT_S)
            for model in scoring
        ),
    )
