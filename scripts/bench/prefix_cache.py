"""Prefix hits of the CPU engine beside those of the paged-cache model, by size of the pool.

The CPU engine does not tell what it reuses, but it computes one block a step when it may compute no
more, so that steps tell. Sends the prompts of a run's requests one after the other to an engine in
this process, for each size of the pool, and asks the model about the same requests. `explained` is
a cache that is simulated by what is known of the engine's rules: it keeps the partly filled last
block of each sequence, and of blocks that were used together evicts the one nearest the root first.

    scripts/run bench.prefix_cache demo runs/RUN --engine verifier
"""

from __future__ import annotations

import argparse
import queue
from collections import OrderedDict
from pathlib import Path

import numpy as np

from scripts.bench.engine_host import EngineHost
from tts.build import paths
from tts.build.manifest import read_engine_config
from tts.build.spec import Deployment, Role, load_deployment
from tts.engines.generate_request import GenerateRequest
from tts.engines.responses import Response
from tts.prompting import Models
from tts.runs.log import read_events
from tts.runs.paged_cache import TimedRequest, cache_curve
from tts.runs.token_requests import requests_with_ids
from tts.session.embedded import limits_of

NOTHING = np.zeros(1, np.int32)  # a token is generated, whose keys are never computed


def prompts(deployment: Deployment, run: Path, role: Role) -> list[TimedRequest]:
    """A run's requests in the order of sending, as if each ended before the next was sent."""
    found = requests_with_ids(read_events(run), Models.load(deployment))
    requests = sorted((each for name, each in found if name == role), key=lambda each: each.sent)
    return [TimedRequest(n, n + 0.5, each.prompt, NOTHING) for n, each in enumerate(requests)]


def engine_hits(
    deployment: Deployment, role: Role, requests: list[TimedRequest], blocks: int
) -> int:
    """Blocks of prompts that the engine did not compute, with a pool of so many."""
    folder, spec = paths.engine_dir(deployment.name, role), deployment.engines()[role]
    config, size = read_engine_config(folder), spec.kv_cache.block_size
    alone = {"max_num_tokens": size, "max_active": 1, "chunked_context": True, "kv_reuse": True}
    limits = limits_of(spec, config, blocks=blocks, **alone)
    host = EngineHost(folder, config, limits)
    hits = 0
    try:
        for request in requests:
            before, answers = host.statistics().iteration, queue.SimpleQueue[Response]()
            host.submit(GenerateRequest(request.prompt.astype(np.int64), 1), answers.put)
            if error := answers.get().error:
                raise SystemExit(error)
            hits += -(-len(request.prompt) // size) - (host.statistics().iteration - before)
    finally:
        host.close()
    return hits


def explained_hits(requests: list[TimedRequest], block_size: int, blocks: int) -> int:
    """Whole blocks that a cache with the engine's rules finds."""
    kept: OrderedDict[bytes, None] = OrderedDict()  # prefixes, the one to be evicted next first
    hits = 0
    for _, _, prompt, _ in requests:
        ends = [*range(block_size, len(prompt), block_size), len(prompt)]
        prefixes = [prompt[:end].tobytes() for end in ends]
        found = [prefix in kept for prefix in prefixes[:-1]]
        hits += [*found, False].index(False)
        for prefix in prefixes:
            kept[prefix] = None
            kept.move_to_end(prefix)
        while len(kept) > blocks:
            kept.popitem(last=False)
    return hits


def main() -> None:
    """Print a line for each size of the pool."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("deployment")
    parser.add_argument("run", type=Path)
    parser.add_argument("--engine", choices=("generator", "verifier"), default="verifier")
    arguments = parser.parse_args()
    deployment, role = load_deployment(arguments.deployment), arguments.engine
    requests = prompts(deployment, arguments.run, role)
    size = deployment.engines()[role].kv_cache.block_size
    curve = cache_curve(requests, size)
    print(f"{len(requests)} requests, {curve.lookups} blocks looked up, {curve.distinct} different")
    print(f"{'blocks':>8}{'engine':>10}{'model':>10}{'explained':>10}")
    blocks = curve.least + 1
    while True:
        engine = engine_hits(deployment, role, requests, blocks) / curve.lookups
        explained = explained_hits(requests, size, blocks) / curve.lookups
        modelled = curve.at(blocks).hit_rate or 0.0
        print(f"{blocks:>8}{engine:>10.1%}{modelled:>10.1%}{explained:>10.1%}", flush=True)
        if blocks > curve.distinct:
            break
        blocks *= 2


if __name__ == "__main__":
    main()
