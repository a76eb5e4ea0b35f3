import pytest

from tts.gateway.safety.limits import KeyLimits, Limiter, Refusal, duration

SECOND = 10**9


class Asking:
    """A limiter, and what it says of requests of one key."""

    def __init__(self, **limits):
        self.limiter, self.limits = Limiter(), KeyLimits(**limits)

    def __call__(self, tokens=1, at=0, search=False, key="k"):
        """Whether a request is admitted, what it is told, and its headers."""
        found = self.limiter.arrive(key, self.limits, at) or self.limiter.admit(
            key, self.limits, at, tokens=tokens, search=search
        )
        told = {name.decode(): value.decode() for name, value in found.headers}
        return not isinstance(found, Refusal), found, told


def test_headers_tell_what_is_left_after_this_request():
    _, _, headers = Asking(requests_per_minute=60, tokens_per_minute=6000)(tokens=100)
    assert headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5900",
        "x-ratelimit-reset-tokens": "1s",
    }


def test_a_refusal_says_when_to_come_back_and_coming_back_then_works():
    ask = Asking(requests_per_minute=40)
    assert all(ask()[0] for _ in range(40))
    admitted, refused, headers = ask()
    assert not admitted
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "1500")
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert "40 requests per minute" in refused.message
    assert ask(at=1_500_000_000)[0]
    assert ask(key="other")[0]  # keys do not share their limits


def test_a_request_is_charged_when_it_comes_and_its_tokens_when_it_is_admitted():
    ask = Asking(requests_per_minute=3, tokens_per_minute=10)
    assert ask(tokens=10)[0]
    for limit in ("10 tokens", "10 tokens", "3 requests", "3 requests"):
        admitted, refused, _ = ask(tokens=10)
        assert not admitted
        assert f"{limit} per minute" in refused.message
    assert ask(tokens=10, at=60 * SECOND)[2]["x-ratelimit-remaining-requests"] == "2"


def test_a_request_larger_than_the_limit_gets_no_time_to_come_back():
    ask = Asking(tokens_per_minute=100)
    assert ask(tokens=100)[0]
    admitted, _, headers = ask(tokens=101)
    assert not admitted
    assert "retry-after" not in headers


def test_true_usage_takes_the_place_of_the_estimate_once():
    ask = Asking(tokens_per_minute=100)
    _, admission, _ = ask(tokens=90)
    assert not ask(tokens=30)[0]
    admission.end(0, tokens=20)
    admission.end(0, tokens=20)
    assert ask(tokens=30)[2]["x-ratelimit-remaining-tokens"] == "50"


def test_searches_are_limited_by_how_many_run():
    ask = Asking(concurrent_searches=1)
    _, first, _ = ask(search=True)
    admitted, _, headers = ask(search=True)
    assert not admitted
    assert "retry-after" not in headers
    assert ask()[0]
    first.end(1, tokens=1)
    first.end(1, tokens=1)
    assert [ask(search=True, at=1)[0] for _ in range(2)] == [True, False]


def test_without_limits_nothing_is_refused_or_said():
    ask = Asking()
    for _ in range(100):
        admitted, admission, headers = ask(tokens=10**9, search=True)
        assert (admitted, headers) == (True, {})
        admission.end(0, tokens=1)


@pytest.mark.parametrize(
    ("ms", "written"),
    [
        (0, "0ms"),
        (17, "17ms"),
        (1000, "1s"),
        (1500, "1.5s"),
        (59_999, "59.999s"),
        (360_000, "6m0s"),
    ],
)
def test_times_are_written_as_openai_does(ms, written):
    assert duration(ms * 10**6) == written
