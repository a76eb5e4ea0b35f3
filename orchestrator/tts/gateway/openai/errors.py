"""Errors as OpenAI's clients read them, and which error of ours becomes which."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tts.base.errors import (
    ConfigError,
    ContentBlocked,
    DatasetError,
    DeadlineExceeded,
    EndpointTimeout,
    EndpointUnavailable,
    RequestError,
    RequestRefused,
    ServerError,
    SessionError,
    TtsError,
)
from tts.base.shown_text import shortened
from tts.endpoints.shaping import FieldRefused

from ..database import DatabaseUnusable

NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients repeat what ends with 5xx unless the response says that it is of no use."""

RETRY_AFTER_S = 5
"""`retry-after` where no engine is available: a small one has loaded by then."""


MAX_MESSAGE = 2000
"""Characters of an error: what it quotes of a request may be megabytes long."""
MAX_QUOTE = 200


def quoted(text: str) -> str:
    """A client's input, as an error repeats it."""
    return shortened(repr(text), MAX_QUOTE)


class ErrorFields(msgspec.Struct):
    """What clients read of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(msgspec.Struct):
    """The body of a response that is an error."""

    error: ErrorFields


class ApiError(TtsError):
    """A request that ends with an error; `code` and `param` are those of OpenAI's errors."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(shortened(message, MAX_MESSAGE))
        self.status = status
        self.code = code
        self.param = param
        self.headers = headers or {}

    @property
    def type(self) -> str:
        """The kind of error, as OpenAI names it by the status."""
        return _TYPES.get(self.status) or (
            "server_error" if self.status >= 500 else "invalid_request_error"
        )

    @property
    def fields(self) -> ErrorFields:
        """The error as clients read it."""
        return ErrorFields(self.message, self.type, self.param, self.code)

    def body(self) -> bytes:
        """The error as JSON: what a response holds, or an event of one that has begun."""
        return msgspec.json.encode(Error(self.fields))

    def event(self) -> bytes:
        """The last event of a stream that breaks off."""
        return b"data: " + self.body() + b"\n\n"


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A request that is wrong, and would be wrong again."""
    return ApiError(400, message, param=param, code=code)


def too_late(message: str) -> ApiError:
    """A request whose deadline has passed: asked again, it would be late again."""
    return ApiError(504, message, code="deadline_exceeded", headers=NO_RETRY)


def api_error(error: TtsError) -> ApiError:
    """A client's view of an error of ours.

    It is told only the kind of what is wrong on this side: files and addresses of servers, which
    the message names, are for the gateway's own log.
    """
    match error:
        case ApiError():
            return error
        case DatabaseUnusable():
            return ApiError(503, "The gateway cannot read its keys now.", code="keys_unusable")
        case FieldRefused():
            return bad_request(str(error), error.name, "unsupported_parameter")
        case ConfigError() | DatasetError() | RequestError() | RequestRefused():
            return bad_request(str(error))
        case ContentBlocked():
            return bad_request(str(error), code="content_filter")
        case DeadlineExceeded():
            return too_late(
                "The search found no answer within its deadline. Give it more time (tts.deadline_s "
                "and the client's own), or a smaller n."
            )
        case EndpointTimeout():
            return ApiError(504, "An engine did not answer in time.", code="engine_timeout")
        case EndpointUnavailable() | ServerError() | SessionError():
            return ApiError(
                503,
                "The engines do not answer now.",
                code="engine_unavailable",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        case _:
            return ApiError(500, "The gateway cannot do this: its log says why.", headers=NO_RETRY)


def internal_error() -> ApiError:
    """A client's view of a bug: no internals."""
    return ApiError(500, "The gateway failed at this request: a bug, which its log describes.")
