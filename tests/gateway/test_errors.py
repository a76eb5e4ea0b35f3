"""What a client is told of an error of ours."""

import pytest

from tts.build.errors import EndpointTimeout, EndpointUnavailable, RequestRefused, ServerError
from tts.gateway.openai.errors import api_error


@pytest.mark.parametrize("error", [EndpointUnavailable("gone"), ServerError("It died.")])
def test_a_client_without_an_engine_is_told_when_to_come_back(error):
    told = api_error(error)
    assert (told.status, told.code) == (503, "engine_unavailable")
    assert int(told.headers["retry-after"]) >= 1


def test_only_a_refused_request_is_the_clients_fault():
    assert api_error(RequestRefused("too long")).status == 400
    assert api_error(EndpointTimeout("late")).status == 504
