"""The router: every piece of work goes to a replica that may have it, whatever happens to them."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from tts.fleet.routing import MAX_FAILURES, LeastOutstanding, PrefixAffinity, Replica, Router

KEYS = st.sampled_from(["", "a", "b", "c"])


def router(*names, policy=None):
    routing = Router(policy)
    for name in names:
        routing.add(Replica(name))
    return routing


class Routing(RuleBasedStateMachine):
    """Replicas are added, drained, removed, fail and come back; work goes on all the while."""

    leases = Bundle("leases")

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.router = Router(self.policy())
        self.added = 0
        self.leases_now = []

    @staticmethod
    def policy():
        return PrefixAffinity()

    def usable(self, key, avoid):
        for replica in self.router.replicas:
            belongs = (replica, key) in self.leases_now
            able = replica.name not in avoid and (not replica.draining or (key and belongs))
            if able and replica.circuit.state(self.now) == "closed":
                yield replica

    @rule(seconds=st.floats(0, 2))
    def time_goes_by(self, seconds):
        self.now += seconds

    @rule(group=st.sampled_from(["", "tp8", "tp1"]))
    def a_replica_is_added(self, group):
        if len(self.router.replicas) < 4:
            self.router.add(Replica(f"r{self.added}", group=group))
            self.added += 1

    @rule(data=st.data(), what=st.sampled_from(["drain", "fill", "remove", "trip", "ok", "failed"]))
    def something_happens_to_a_replica(self, data, what):
        if not self.router.replicas:
            return
        replica = data.draw(st.sampled_from(self.router.replicas))
        match what:
            case "drain" | "fill":
                replica.draining = what == "drain"
            case "remove":
                self.router.remove(replica.name)
            case "trip":
                self.router.trip(replica, self.now)
            case "ok" | "failed":
                self.router.report(replica, self.now, ok=what == "ok")

    @rule(target=leases, key=KEYS, avoid=st.sets(st.just("r0")))
    def work_is_handed_out(self, key, avoid):
        before = {each: each.outstanding for each in self.usable(key, avoid)}
        replica = self.router.lease(self.now, key, avoid=avoid)
        if not before:
            assert replica is None
            return multiple()
        assert replica in before
        if not key:
            assert before[replica] == min(before.values())
        self.leases_now.append((replica, key))
        return replica, key

    @rule(lease=consumes(leases), ok=st.sampled_from([True, False, None]))
    def work_ends(self, lease, ok):
        self.router.end(*lease, self.now, ok=ok)
        self.leases_now.remove(lease)

    @rule()
    def what_waits_for_a_trial_is_named_once(self):
        for replica in self.router.to_try(self.now):
            assert replica.circuit.state(self.now) == "half-open"
        assert self.router.to_try(self.now) == []

    @invariant()
    def outstanding_work_is_that_of_the_leases(self):
        for replica in self.router.replicas:
            assert replica.outstanding == sum(each is replica for each, _ in self.leases_now)


class RoutingByLoad(Routing):
    @staticmethod
    def policy():
        return LeastOutstanding()


TestRouting = Routing.TestCase
TestRoutingByLoad = RoutingByLoad.TestCase
TestRouting.settings = settings(max_examples=40, stateful_step_count=25)
TestRoutingByLoad.settings = settings(max_examples=20, stateful_step_count=25)


def test_idle_replicas_take_turns():
    routing = router("a", "b")
    names = []
    for _ in range(4):
        replica = routing.lease(0.0)
        names.append(replica.name)
        routing.end(replica, "", 0.0, ok=True)
    assert names == ["a", "b", "a", "b"]


def test_a_conversation_stays_and_leaves_a_draining_replica_with_its_next_turn():
    routing = router("a", "b")
    routing.lease(0.0, "talk")
    routing["a"].draining = True
    assert routing.lease(0.0, "talk").name == "a"  # its first turn runs there
    assert routing.lease(0.0, "other").name == "b"
    assert routing.lease(0.0).name == "b"
    routing = router("a", "b")
    first = routing.lease(0.0, "talk")
    routing.end(first, "talk", 0.0, ok=True)
    routing["a"].draining = True
    assert routing.lease(0.0, "talk").name == "b"


def test_what_failed_is_tried_again_once_and_used_when_it_answers():
    routing = router("a")
    for _ in range(MAX_FAILURES):
        routing.end(routing.lease(0.0), "", 0.0, ok=False)
    assert routing.lease(0.5) is None
    assert [each.name for each in routing.to_try(1.0)] == ["a"]
    assert routing.lease(1.0) is None  # it is being tried
    routing.report(routing["a"], 1.5, ok=True)
    assert routing.lease(1.5).name == "a"


def test_retries_go_elsewhere():
    routing = router("a", "b")
    first = routing.lease(0.0, "talk")
    again = routing.lease(0.0, "talk", avoid={first.name})
    assert {first.name, again.name} == {"a", "b"}
    assert routing.lease(0.0, avoid={"a", "b"}) is None


def test_a_removed_replica_may_come_back_under_its_name():
    routing = router("a")
    old = routing.lease(0.0)
    routing.remove("a")
    assert routing.lease(0.0) is None
    new = routing.add(Replica("a"))
    routing.end(old, "", 0.0, ok=False)
    assert (new.outstanding, new.circuit.state(0.0)) == (0, "closed")


def test_names_are_used_once():
    routing = router("a")
    with pytest.raises(ValueError, match="'a'"):
        routing.add(Replica("a"))
