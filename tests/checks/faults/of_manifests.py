"""Faults of the manifests."""

import random

import yaml
from tests.checks.faults.site import Site, altered, need_gpus

_OF_THE_CLUSTER = ("storage", "maxReplicas")


def manifest_value(site: Site, rng: random.Random) -> str:
    """Another value of any key, or none, in any manifest."""
    need_gpus(site)
    file = site.manifests / rng.choice(["compose.yaml", "kubernetes.yaml", "autoscaler.yaml"])
    documents = list(yaml.safe_load_all(file.read_text()))
    what = altered(documents, rng, kept=_OF_THE_CLUSTER)
    file.write_text(yaml.safe_dump_all(documents))
    return f"{file.name}: {what}"


def probe(site: Site, rng: random.Random) -> str:
    """A line of the probe's program is missing."""
    need_gpus(site)
    file = site.manifests / "probe.py"
    lines = file.read_text().splitlines()
    at = rng.randrange(len(lines))
    del lines[at]
    file.write_text("\n".join(lines) + "\n")
    return f"{file.name}: line {at} removed"
