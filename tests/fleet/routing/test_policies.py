"""Which of the usable replicas is picked."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tts.fleet import routing
from tts.fleet.routing import (
    THRESHOLD,
    ByConcurrency,
    LeastOutstanding,
    PrefixAffinity,
    Replica,
    routing_policy,
)

LOADS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), min_size=1, max_size=6)


def replicas(loads):
    return [
        Replica(f"r{place}", leases=Counter({"": load}), total=total)
        for place, (load, total) in enumerate(loads)
    ]


def grouped():
    return [
        Replica("big", group="tp8"),
        Replica("small-1", group="tp1"),
        Replica("small-2", group="tp1"),
    ]


@given(LOADS)
def test_the_least_outstanding_is_least(loads):
    usable = replicas(loads)
    chosen = LeastOutstanding().pick(usable, "", 1)
    assert (chosen.outstanding, chosen.total) == min((r.outstanding, r.total) for r in usable)


@given(st.lists(st.tuples(st.sampled_from("abc"), LOADS.filter(lambda loads: len(loads) > 2))))
def test_a_key_stays_where_it_is_whatever_the_load(requests):
    policy, home = PrefixAffinity(), {}
    for key, loads in requests:
        chosen = policy.pick(replicas(loads[:3]), key, 1).name
        assert home.setdefault(key, chosen) == chosen


def test_a_key_whose_replica_is_gone_has_another_and_stays_there():
    policy = PrefixAffinity()
    both = replicas([(0, 0), (5, 0)])
    assert policy.pick(both, "a", 1).name == "r0"
    assert policy.pick(both[1:], "a", 1).name == "r1"
    assert policy.pick(both, "a", 1).name == "r1"


def test_the_key_longest_unused_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(routing, "KEYS", 2)
    policy = PrefixAffinity()
    both = replicas([(0, 0), (5, 0)])
    for key in ("a", "b", "a", "c"):  # b is forgotten
        policy.pick(both, key, 1)
    both[0].leases[""] = 9
    assert [policy.pick(both, key, 1).name for key in ("a", "c", "b")] == ["r0", "r0", "r1"]


def test_work_without_a_key_goes_by_load():
    policy = PrefixAffinity()
    both = replicas([(0, 0), (5, 0)])
    assert policy.pick(both, "", 1).name == "r0"
    both[0].leases[""] = 9
    assert policy.pick(both, "", 1).name == "r1"


def test_few_requests_go_to_the_one_group_and_many_to_the_other():
    policy = ByConcurrency("tp8", "tp1")  # from 64 on
    seen = {each: policy.pick(grouped(), "", each).group for each in (1, 63, 64, 200)}
    assert seen == {1: "tp8", 63: "tp8", 64: "tp1", 200: "tp1"}


@given(st.lists(st.integers(48, 63)), st.booleans())
def test_between_the_thresholds_the_group_never_changes(concurrencies, busy):
    policy = ByConcurrency("tp8", "tp1")
    policy.pick(grouped(), "", 64 if busy else 1)
    before = policy.group
    for concurrency in concurrencies:
        policy.pick(grouped(), "", concurrency)
        assert policy.group == before


@given(st.lists(st.integers(1, 128)))
def test_the_group_changes_only_from_one_threshold_to_the_other(concurrencies):
    policy = ByConcurrency("tp8", "tp1")
    changed_at, before = [], policy.group
    for concurrency in concurrencies:
        policy.pick(grouped(), "", concurrency)
        if policy.group != before:
            changed_at.append(concurrency)
            before = policy.group
    up, down = changed_at[::2], changed_at[1::2]
    assert all(each >= 64 for each in up)
    assert all(each < 48 for each in down)


def test_another_group_is_better_than_none():
    policy = ByConcurrency("tp8", "tp1")
    assert policy.pick(grouped()[1:], "", 1).group == "tp1"


def test_policies_have_names():
    assert isinstance(routing_policy("prefix-affinity"), PrefixAffinity)
    assert isinstance(routing_policy("least-outstanding"), LeastOutstanding)
    policy = routing_policy("by-concurrency", few="tp8", many="tp1")
    assert policy.pick(grouped(), "", THRESHOLD).group == "tp1"
