"""Decisions which replica of a deployment gets which work. Pure: no IO, no clock.

| module | job |
|---|---|
| router | `Router`: replicas that come and go, work handed out and taken back |
| policies | prefix affinity, least outstanding work, groups by concurrency |
| circuit | when a replica that fails is left alone, and when it is tried again |
| replica | a replica, as plain data |
"""

from .circuit import Breaker, Circuit, CircuitState
from .policies import (
    ByConcurrency,
    LeastOutstanding,
    PolicyName,
    PrefixAffinity,
    RoutingPolicy,
    routing_policy,
)
from .replica import Replica
from .router import Router

__all__ = [
    "Breaker",
    "ByConcurrency",
    "Circuit",
    "CircuitState",
    "LeastOutstanding",
    "PolicyName",
    "PrefixAffinity",
    "Replica",
    "Router",
    "RoutingPolicy",
    "routing_policy",
]
