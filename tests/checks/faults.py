"""Single faults of a deployment and of all that is made of it: each has a finding of its own.

A kind of fault takes a `Site` and a random generator, damages one place, and says how. Where it
does not apply, as no GPU is named in a deployment for the CPU, it raises `NotHere`.
"""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.serving import mutations

from tts.build import paths
from tts.build.spec import load_deployment
from tts.checks.placement import MOST_GPUS


class NotHere(Exception):
    """The fault cannot be made at this site."""


@dataclass(frozen=True)
class Site:
    """A deployment file, its checkpoints, and TTS_HOME with its engines and repository."""

    root: Path

    @property
    def file(self) -> Path:
        return self.root / "deployment.yaml"

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = yaml.safe_load(self.file.read_text())
        return data

    @property
    def on_gpus(self) -> bool:
        return self.data["target"] == "tensorrt"

    @property
    def built(self) -> Path:
        return paths.built_dir(self.data["name"])

    def checkpoint(self, role: str) -> Path:
        folder = self.root / self.data[role]["checkpoint"]
        return folder if folder.is_dir() else not_here()

    def engine(self, rng: random.Random) -> Path:
        folder = self.built / rng.choice(ROLES)
        return folder if folder.is_dir() else not_here()

    def edit(self, change: Callable[[dict[str, Any]], str]) -> str:
        data = self.data
        what = change(data)
        self.file.write_text(yaml.safe_dump(data))
        return what


Kind = Callable[[Site, random.Random], str]
ROLES = ["generator", "verifier"]


def not_here() -> Any:
    raise NotHere


def need_gpus(site: Site) -> None:
    if not site.on_gpus:
        raise NotHere


def need_contract(site: Site) -> None:
    """A model repository all of whose files are compared with what is expected."""
    if site.data["target"] == "openvino":
        raise NotHere


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


# the deployment file


def verifier_shorter_than_the_generator(site: Site, rng: random.Random) -> str:
    longest = site.data["generator"]["max_seq_len"]
    return setting(site, "verifier.max_seq_len", longest - rng.randrange(1, longest))


def verifier_budget(site: Site, rng: random.Random) -> str:
    spec = site.data["verifier"]
    most = spec["max_batch_size"] * spec["max_seq_len"]
    few, many = rng.randrange(1, spec["max_num_tokens"]), most * rng.randrange(2, 100)
    return setting(site, "verifier.in_flight_tokens", rng.choice([few, many]))


def verifier_batch(site: Site, rng: random.Random) -> str:
    budget = site.data["verifier"]["in_flight_tokens"]
    value = rng.choice([1, budget + 1, budget * rng.randrange(2, 50)])
    return setting(site, "verifier.group_tokens", value)


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
            {"beam-search": {"early_stop": True, "sort_completed": True}},
            {"dvts": {"temperature": -0.5}},
            {"cot": {"n": 4}},
            {"best-of-n": {"top_p": 1.5}},
            {"best-of-n": {"scored": False}},
            {"self-consistency": {"n": 0}},
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


# checkpoints


def json_edit(file: Path, **fields: Any) -> str:
    data = json.loads(file.read_text())
    assert data | fields != data
    file.write_text(json.dumps(data | fields))
    return f"{file.parent.name}/{file.name}: {fields}"


def chat_template(site: Site, rng: random.Random) -> str:
    file = site.checkpoint("generator") / "tokenizer_config.json"
    template = json.loads(file.read_text())["chat_template"]
    content = "(message['content'] | trim)"
    assert content in template
    other = rng.choice(
        [
            "''",
            "'Compute 1 + 1.'",
            "(message['content'] | upper)",
            "(message['content'] | truncate(100))",
            "message['content'][:50]",
            "message['content'][1:]",
            "(message['content'] | replace('\\n', ' '))",
            "(message['content'] | escape)",
            "message['text']",
            "message['content'",
        ]
    )
    return json_edit(file, chat_template=template.replace(content, other))


def end_token(site: Site, rng: random.Random) -> str:
    folder = site.checkpoint(rng.choice(ROLES))
    name = rng.choice(["config.json", "generation_config.json"])
    value = rng.choice([0, 1, 4, 17, [5, 17], [1, 2], 10**6, -1, "</s>"])
    return json_edit(folder / name, eos_token_id=value)


def checkpoint_byte(site: Site, rng: random.Random) -> str:
    folder = site.checkpoint(rng.choice(ROLES))
    return flipped(folder / "model.safetensors", rng)


def checkpoint_file_kind(site: Site, rng: random.Random) -> str:
    folder = site.checkpoint(rng.choice(ROLES))
    names = ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
    return other_kind(rng.choice([folder, *(folder / n for n in [*names, "model.safetensors"])]))


# engines


def flipped(file: Path, rng: random.Random) -> str:
    data = bytearray(file.read_bytes())
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return f"{file.parent.name}/{file.name}: byte {at} changed"


def other_kind(path: Path) -> str:
    """A folder in place of a file, and the other way round."""
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("")
        return f"{path} is a file"
    path.unlink()
    path.mkdir()
    return f"{path} is a folder"


def engine_files(site: Site, rng: random.Random) -> list[Path]:
    folder = site.engine(rng)
    return sorted(file for file in folder.iterdir() if file.name != "manifest.json")


def engine_byte(site: Site, rng: random.Random) -> str:
    return flipped(rng.choice(engine_files(site, rng)), rng)


def engine_file_kind(site: Site, rng: random.Random) -> str:
    folder = site.engine(rng)
    return other_kind(rng.choice([folder, *folder.iterdir()]))


def engine_file_missing(site: Site, rng: random.Random) -> str:
    files = [file for file in engine_files(site, rng) if file.name != "config.json"]
    file = rng.choice(files or not_here())
    if rng.random() < 0.5:
        file.unlink()
        return f"{file} removed"
    file.write_bytes(file.read_bytes()[:-1])
    return f"{file} cut short"


def another_rank(site: Site, rng: random.Random) -> str:
    need_gpus(site)
    file = site.engine(rng) / f"rank{rng.choice([1, 2, 7, 10])}.engine"
    shutil.copyfile(file.with_name("rank0.engine"), file)
    return f"{file} added"


# the model repository


def repository(site: Site, rng: random.Random) -> str:
    need_contract(site)
    return mutations.mutate(site.built / "model_repository", rng)


def repository_file_kind(site: Site, rng: random.Random) -> str:
    need_contract(site)
    folder = site.built / "model_repository"
    return other_kind(rng.choice([folder, *sorted(folder.rglob("*"))]))


def compiled_code(site: Site, rng: random.Random) -> str:
    models = sorted((site.built / "model_repository").glob("*/1/model.py"))
    source = rng.choice(models)
    made_from = source.stat().st_mtime_ns // 10**9, source.stat().st_size
    folder = source.parent / "__pycache__"
    what = rng.choice(["older", "smaller", "by another hash", "cut short", "orphan", "misplaced"])
    name = "model.cpython-311.pyc"
    flags, fields = 0, list(made_from)
    if what == "older":
        fields[0] -= rng.randrange(1, 10**6)
    elif what == "smaller":
        fields[1] -= rng.randrange(1, 100)
    elif what == "by another hash":
        flags = rng.choice([1, 3])
    elif what == "orphan":
        name = "helper.cpython-311.pyc"
    elif what == "misplaced":
        folder = rng.choice([source.parents[2], source.parents[1]]) / "__pycache__"
    header = b"".join(n.to_bytes(4, "little") for n in (3495, flags, *fields))
    folder.mkdir()
    (folder / name).write_bytes(header[:9] if what == "cut short" else header + b"code")
    return f"{folder}: {what}"


# manifests


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


KINDS: list[Kind] = [
    verifier_shorter_than_the_generator,
    verifier_budget,
    verifier_batch,
    more_requests_than_run,
    strategy,
    host,
    ports,
    replicas_on_one_gpu,
    gpu_that_no_machine_has,
    host_cache,
    pool_beyond_the_gpu,
    checkpoints_exchanged,
    one_checkpoint_for_both,
    labels,
    verifier_format,
    chat_template,
    end_token,
    checkpoint_byte,
    checkpoint_file_kind,
    engine_byte,
    engine_file_kind,
    engine_file_missing,
    another_rank,
    repository_file_kind,
    compiled_code,
    shared_memory,
    probe,
    gpu_count,
    mounts_exchanged,
    environment,
    published_port,
    any_value,
]
"""Beside those of a model repository (tests/serving/mutations.py)."""
