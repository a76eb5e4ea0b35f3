"""Faults of the deployment file."""

import random
from typing import Any

from tests.checks.faults.site import (
    ROLES,
    Site,
    need_gpus,
)

from tts.build.spec import load_deployment
from tts.checks.placement import MOST_GPUS


def setting(site: Site, path: str, value: Any) -> str:
    """Set one field of the deployment file."""

    def change(data: dict[str, Any]) -> str:
        *parents, last = path.split(".")
        for parent in parents:
            data = data.setdefault(parent, {})
        assert data.get(last) != value
        data[last] = value
        return f"{path} = {value!r}"

    return site.edit(change)


def verifier_shorter_than_the_generator(site: Site, rng: random.Random) -> str:
    longest = site.data["generator"]["max_seq_len"]
    return setting(site, "verifier.max_seq_len", longest - rng.randrange(1, longest))


def verifier_budget(site: Site, rng: random.Random) -> str:
    spec = site.data["verifier"]
    most = spec["max_batch_size"] * spec["max_seq_len"]
    few, many = rng.randrange(1, spec["max_num_tokens"]), most * rng.randrange(2, 100)
    return setting(site, "verifier.in_flight_tokens", rng.choice([few, many]))


def more_requests_than_run(site: Site, rng: random.Random) -> str:
    most = site.data["generator"]["max_batch_size"]
    return setting(site, "generator.in_flight_requests", most + rng.randrange(1, 1000))


def strategy(site: Site, rng: random.Random) -> str:
    block = rng.choice(
        [
            {"bean-search": {"n": 8}},
            {"": {}},
            {"beam-search": {"beam_wdth": 2}},
            {"beam-search": {"n": 8, "beam_width": 3}},
            {"dvts": {"temperature": -0.5}},
            {"greedy": {"n": 4}},
            {"best-of-n": {"top_p": 1.5}},
            {"best-of-n": {"scored": False}},
            {"majority-vote": {"n": 0}},
            {"rebase": {"max_tokens": 10_000_000}},
            {"rebase": {"n": "many"}},
        ]
    )
    return setting(site, "strategies", block)


def host(site: Site, rng: random.Random) -> str:
    hosts = ["0.0.0.0", "192.0.2.7", "224.0.0.1", "256.1.1.1", "::1", "", "127.0.0.1:8000"]
    return setting(site, "server.host", rng.choice([*hosts, "no-such-host.invalid", "my host"]))


def ports(site: Site, rng: random.Random) -> str:
    def change(data: dict[str, Any]) -> str:
        one, other = rng.sample(["grpc_port", "http_port", "metrics_port"], 2)
        port = rng.choice([8001, 9000, 0, 65536, "8001", -1])
        data["server"] |= {one: port, other: port}
        return f"{one} and {other} are {port!r}"

    return site.edit(change)


def place(site: Site, role: str, gpus: list[list[int]]) -> str:
    return setting(site, f"{role}.tensorrt.gpus", gpus)


def placed(site: Site, rng: random.Random) -> tuple[str, list[int], int]:
    """A role, the GPUs of its replica, and how many GPUs a machine may have."""
    need_gpus(site)
    deployment, role = load_deployment(site.file), rng.choice(ROLES)
    assert deployment.tensorrt
    spec = deployment.generator if role == "generator" else deployment.verifier
    return role, list(spec.placement.replicas[0]), MOST_GPUS[deployment.tensorrt.gpu]


def replicas_on_one_gpu(site: Site, rng: random.Random) -> str:
    role, gpus, _ = placed(site, rng)
    other = [gpu + 1 for gpu in gpus]
    return place(site, role, rng.choice([[gpus, gpus], [gpus, other, other], [gpus, gpus[::-1]]]))


def gpu_that_no_machine_has(site: Site, rng: random.Random) -> str:
    role, gpus, most = placed(site, rng)
    gpus[rng.randrange(len(gpus))] = most + rng.choice([0, 1, 8, 100, 2000])
    return place(site, role, [gpus])


def host_cache(site: Site, rng: random.Random) -> str:
    need_gpus(site)
    size = rng.choice([4097, 16_384, 1e6, -1, float("nan")])
    return setting(site, f"{rng.choice(ROLES)}.tensorrt.kv_host_gib", size)


def pool_beyond_the_gpu(site: Site, rng: random.Random) -> str:
    need_gpus(site)
    return setting(site, f"{rng.choice(ROLES)}.kv_cache.tokens", 10**9)


def checkpoints_exchanged(site: Site, rng: random.Random) -> str:
    def change(data: dict[str, Any]) -> str:
        one, other = (data[role] for role in ROLES)
        one["checkpoint"], other["checkpoint"] = other["checkpoint"], one["checkpoint"]
        return "checkpoints exchanged"

    return site.edit(change)


def one_checkpoint_for_both(site: Site, rng: random.Random) -> str:
    one, other = rng.sample(ROLES, 2)
    return setting(site, f"{one}.checkpoint", site.data[other]["checkpoint"])


def labels(site: Site, rng: random.Random) -> str:
    given = rng.choice([("-", "+"), ("good", "bad"), ("1", "0"), ("+", "+"), ("", "-"), ("+", "~")])
    return setting(site, "verifier.labels", dict(zip(("positive", "negative"), given, strict=True)))


def verifier_format(site: Site, rng: random.Random) -> str:
    def change(data: dict[str, Any]) -> str:
        fields = rng.choice(
            [
                {"format": "custom"},
                {"step_tag": "ки"},
                {"format": "math-shepherd", "step_tag": "+"},
                {"format": "math-shepherd", "labels": {"positive": "1", "negative": "0"}},
                {"format": "rlhf"},
                {"template": {"head": "{question} ", "answer": "\n", "turn": "\n"}},
            ]
        )
        data["verifier"] |= fields
        return f"verifier {fields}"

    return site.edit(change)
