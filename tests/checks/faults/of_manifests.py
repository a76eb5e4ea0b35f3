"""Faults of the manifests."""

import random
from pathlib import Path
from typing import Any

import yaml
from tests.checks.faults.site import Site, need_gpus


def documents(site: Site, name: str) -> list[Any]:
    need_gpus(site)
    return list(yaml.safe_load_all((site.manifests / name).read_text()))


def written(site: Site, name: str, documents: list[Any], what: str) -> str:
    (site.manifests / name).write_text(yaml.safe_dump_all(documents))
    return f"{name}: {what}"


def service(documents: list[Any]) -> Any:
    return documents[0]["services"]["triton"]


def pod(documents: list[Any]) -> tuple[Any, Any]:
    (spec,) = (d["spec"]["template"]["spec"] for d in documents if d["kind"] == "Deployment")
    return spec, spec["containers"][0]


def shared_memory(site: Site, rng: random.Random) -> str:
    if rng.random() < 0.5:
        found = documents(site, "compose.yaml")
        service(found)["shm_size"] = rng.choice(["64m", "1g", 64])
        return written(site, "compose.yaml", found, "shared memory")
    found = documents(site, "kubernetes.yaml")
    spec, container = pod(found)
    what = rng.choice(["size", "volume", "mount"])
    if what == "size":
        spec["volumes"][-1]["emptyDir"]["sizeLimit"] = "64Mi"
    else:
        del (spec["volumes"] if what == "volume" else container["volumeMounts"])[-1]
    return written(site, "kubernetes.yaml", found, f"{what} of shared memory")


def probe(site: Site, rng: random.Random) -> str:
    if rng.random() < 0.3:
        need_gpus(site)
        return flipped_text(site.manifests / "probe.py", rng)
    if rng.random() < 0.5:
        found = documents(site, "compose.yaml")
        service(found)["healthcheck"]["test"][-1] = rng.choice(["8001", "8002", "80"])
        return written(site, "compose.yaml", found, "port of the probe")
    found = documents(site, "kubernetes.yaml")
    _, container = pod(found)
    name = rng.choice(["startupProbe", "readinessProbe"])
    command = container[name]["exec"]["command"]
    container[name]["exec"] = {"command": [*command[:-1], "8001"]}
    if rng.random() < 0.3:
        del container[name]
    return written(site, "kubernetes.yaml", found, name)


def flipped_text(file: Path, rng: random.Random) -> str:
    lines = file.read_text().splitlines()
    at = rng.randrange(len(lines))
    del lines[at]
    file.write_text("\n".join(lines) + "\n")
    return f"{file.name}: line {at} removed"


def gpu_count(site: Site, rng: random.Random) -> str:
    if rng.random() < 0.5:
        found = documents(site, "compose.yaml")
        devices = service(found)["deploy"]["resources"]["reservations"]["devices"]
        devices[0]["count"] = rng.choice([1, 0, 2])
        return written(site, "compose.yaml", found, "GPUs")
    found = documents(site, "kubernetes.yaml")
    limits = pod(found)[1]["resources"]["limits"]
    limits["nvidia.com/gpu"] += rng.choice([-1, 1, 7])
    return written(site, "kubernetes.yaml", found, "GPUs")


def mounts_exchanged(site: Site, rng: random.Random) -> str:
    if rng.random() < 0.5:
        found = documents(site, "compose.yaml")
        one, other = rng.sample(service(found)["volumes"], 2)
        one["source"], other["source"] = other["source"], one["source"]
        return written(site, "compose.yaml", found, "mounts exchanged")
    found = documents(site, "kubernetes.yaml")
    one, other = rng.sample([m for m in pod(found)[1]["volumeMounts"] if "subPath" in m], 2)
    one["subPath"], other["subPath"] = other["subPath"], one["subPath"]
    return written(site, "kubernetes.yaml", found, "mounts exchanged")


def environment(site: Site, rng: random.Random) -> str:
    if rng.random() < 0.5:
        found = documents(site, "compose.yaml")
        variables = service(found)["environment"]
        name = rng.choice(sorted(variables))
        del variables[name]
        return written(site, "compose.yaml", found, f"{name} removed")
    found = documents(site, "kubernetes.yaml")
    variables = pod(found)[1]["env"]
    gone = variables.pop(rng.randrange(len(variables)))
    return written(site, "kubernetes.yaml", found, f"{gone} removed")


def published_port(site: Site, rng: random.Random) -> str:
    found = documents(site, "compose.yaml")
    published = service(found)["ports"]
    at, other = rng.sample(range(3), 2)
    published[at] = rng.choice([published[other], published[at].replace("127.0.0.1", "0.0.0.0")])
    return written(site, "compose.yaml", found, f"ports {published}")


def any_value(site: Site, rng: random.Random) -> str:
    """Another value of any key, or none, in any manifest."""
    name = rng.choice(["compose.yaml", "kubernetes.yaml", "autoscaler.yaml"])
    found = documents(site, name)
    leaves = [leaf for document in found for leaf in leaves_of(document, ())]
    parent, key, path = rng.choice(
        [leaf for leaf in leaves if not {"storage", "maxReplicas"} & set(leaf[2])]
    )
    if rng.random() < 0.5:
        del parent[key]
    else:
        parent[key] = f"{parent[key]}x" if isinstance(parent[key], str) else 12345
    return written(site, name, found, f"{path} changed or removed")


def leaves_of(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, Any, tuple[Any, ...]]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, Any, tuple[Any, ...]]] = []
    for key, item in items:
        below = isinstance(item, (dict, list))
        found += leaves_of(item, (*path, key)) if below else [(value, key, (*path, key))]
    return found
