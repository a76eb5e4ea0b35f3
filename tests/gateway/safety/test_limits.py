import pytest

from tts.gateway.safety.limits import KeyLimits, Limiter, Refusal, duration

SECOND = 10**9


def headers_of(given):
    return {name.decode(): value.decode() for name, value in given.headers}


def test_headers_tell_what_is_left_after_this_request():
    limits = KeyLimits(requests_per_minute=60, tokens_per_minute=6000)
    admitted = Limiter().admit("k", limits, 0, tokens=100, search=False)
    assert headers_of(admitted) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5900",
        "x-ratelimit-reset-tokens": "1s",
    }


def test_a_refusal_says_when_to_come_back_and_coming_back_then_works():
    limiter, limits = Limiter(), KeyLimits(requests_per_minute=40)
    for _ in range(40):
        assert not isinstance(limiter.admit("k", limits, 0, tokens=1, search=False), Refusal)
    refused = limiter.admit("k", limits, 0, tokens=1, search=False)
    assert isinstance(refused, Refusal)
    assert headers_of(refused)["retry-after"] == "2"
    assert headers_of(refused)["retry-after-ms"] == "1500"
    assert headers_of(refused)["x-ratelimit-remaining-requests"] == "0"
    assert "40 requests per minute" in refused.message
    again = limiter.admit("k", limits, 1_500_000_000, tokens=1, search=False)
    assert not isinstance(again, Refusal)


def test_a_refused_request_is_not_charged_to_any_limit():
    limiter, limits = Limiter(), KeyLimits(requests_per_minute=10, tokens_per_minute=10)
    limiter.admit("k", limits, 0, tokens=10, search=False)
    for _ in range(20):
        assert isinstance(limiter.admit("k", limits, 0, tokens=10, search=False), Refusal)
    later = limiter.admit("k", limits, 60 * SECOND, tokens=10, search=False)
    assert headers_of(later)["x-ratelimit-remaining-requests"] == "9"


def test_a_request_larger_than_the_limit_gets_no_time_to_come_back():
    limits = KeyLimits(tokens_per_minute=100)
    refused = Limiter().admit("k", limits, 0, tokens=101, search=False)
    assert isinstance(refused, Refusal)
    assert "retry-after" not in headers_of(refused)


def test_true_usage_takes_the_place_of_the_estimate_once():
    limiter, limits = Limiter(), KeyLimits(tokens_per_minute=100)
    admitted = limiter.admit("k", limits, 0, tokens=90, search=False)
    assert isinstance(limiter.admit("k", limits, 0, tokens=30, search=False), Refusal)
    admitted.end(0, tokens=20)
    admitted.end(0, tokens=20)
    after = limiter.admit("k", limits, 0, tokens=30, search=False)
    assert headers_of(after)["x-ratelimit-remaining-tokens"] == "50"


def test_searches_are_limited_by_how_many_run():
    limiter, limits = Limiter(), KeyLimits(concurrent_searches=1)
    first = limiter.admit("k", limits, 0, tokens=1, search=True)
    refused = limiter.admit("k", limits, 0, tokens=1, search=True)
    assert isinstance(refused, Refusal)
    assert "retry-after" not in headers_of(refused)
    assert not isinstance(limiter.admit("k", limits, 0, tokens=1, search=False), Refusal)
    first.end(1, tokens=1)
    first.end(1, tokens=1)
    assert not isinstance(limiter.admit("k", limits, 1, tokens=1, search=True), Refusal)
    assert isinstance(limiter.admit("k", limits, 1, tokens=1, search=True), Refusal)


def test_keys_do_not_share_their_limits():
    limiter, limits = Limiter(), KeyLimits(requests_per_minute=1)
    for key in "ab":
        assert not isinstance(limiter.admit(key, limits, 0, tokens=1, search=False), Refusal)
        assert isinstance(limiter.admit(key, limits, 0, tokens=1, search=False), Refusal)


@pytest.mark.parametrize("key", [None, "k"])
def test_without_limits_nothing_is_refused_or_said(key):
    limiter = Limiter()
    for _ in range(100):
        admitted = limiter.admit(key, KeyLimits(), 0, tokens=10**9, search=True)
        assert admitted.headers == []
        admitted.end(0, tokens=1)


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
