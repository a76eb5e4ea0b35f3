"""The facts for a new deployment file: this machine, checkpoints, running servers."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tts.base import paths
from tts.base.errors import (
    CheckpointError,
    ConfigError,
    EndpointTimeout,
    EndpointUnavailable,
    TtsError,
)
from tts.base.input_files import Unreadable, is_file, read_text, require_path
from tts.base.machine_limits import memory_limit, usable_cores
from tts.base.user_paths import is_there
from tts.build.draft import (
    SYSTEM_PROMPT,
    Choices,
    CompiledModel,
    FunctionModel,
    Machine,
    Model,
    ServedModel,
)
from tts.build.model_config import known_model, shape_of
from tts.build.nvidia import gpus
from tts.build.openvino.runtime import BF16_FLAG, cpu_flags
from tts.build.spec import FORMATS, GGUF, HeadKind, RemoteVerifier, Role, reason_of
from tts.build.spec.section import names_repository
from tts.build.spec.served import Url, key_in
from tts.build.tensorrt.gpus import kind_of
from tts.build.tokenizer import Tokenizer
from tts.build.verifiers.critique import critic
from tts.build.verifiers.dialogue import column_tokens, verifier_dialogue
from tts.checks.models import is_named_generator, is_named_verifier, trained_format
from tts.endpoints.functions import require_defined
from tts.endpoints.openai.probing import Capabilities
from tts.endpoints.openai.server import OpenAIServer
from tts.serving.command.tritonserver import find_tritonserver
from tts.session.functions import source_of

_BY_HEAD: Mapping[HeadKind, str] = {"classification": "qwen2.5-math-prm", "value": "skywork-o1-prm"}
"""The format of the published verifiers with such a head."""
DEMO = "demo"
"""The name by which the bundled pair is meant."""
_PATIENCE_S = 2.0
_HUB = "https://huggingface.co/"
_FOLDERS = ("models", "checkpoints")
"""What folders of models are called, and no owner on the hub."""
_ADDRESS = re.compile(r"[\w.-]+:\d+(/.*)?")
_INSTRUCT = re.compile(r"instruct|chat|(?<![a-z])it(?![a-z])", re.IGNORECASE)


def this_machine() -> Machine:
    """Cores, memory and GPUs of this machine, as far as a file depends on them."""
    limit = memory_limit()
    devices = gpus()
    kinds = [kind_of(gpu.name, gpu.total) for gpu in devices]
    try:
        triton = bool(find_tritonserver())
    except TtsError:
        triton = False
    return Machine(
        cores=usable_cores(),
        memory=limit.size if limit else None,
        bf16=BF16_FLAG in cpu_flags(),
        triton=triton,
        gpu=kinds[0] if kinds else None,
        gpus=kinds.count(kinds[0]) if kinds else 0,
        gpu_name=devices[0].name if devices else "",
    )


def is_url(text: str) -> bool:
    """Whether a text is to be a server's address."""
    return "://" in text


@dataclass(frozen=True)
class NamedServer:
    """The server of a model, and its answer."""

    url: str
    capabilities: Capabilities | None
    """None: it did not answer."""
    why: str = ""
    """Why it did not."""
    api_key_env: str | None = None
    """The environment variable that holds its key."""

    @property
    def tokenizer(self) -> str | None:
        """Where its model's tokenizer is, if the model's name at the server says it."""
        name = self.capabilities.model if self.capabilities else ""
        here = is_file(Path(name) / "tokenizer.json") and Path(name).is_absolute()
        return name if here or names_repository(name) else None


def ask_server(url: str, api_key_env: str | None = None) -> NamedServer:
    """A server and its capabilities, or none of one that does not answer.

    `api_key_env` is the environment variable that holds its key. Raises ConfigError for anything
    but a URL, and for a server that answers and cannot be used, as one without its key.
    """
    key = api_key_env and key_in(api_key_env, "--api-key-env")
    try:
        url = TypeAdapter(Url).validate_python(url)
    except ValidationError as error:
        raise ConfigError(f"{url!r:.200} {reason_of(error.errors()[0])}.") from error

    async def probed() -> Capabilities:
        async with OpenAIServer(url, api_key=key, patience_s=_PATIENCE_S) as server:
            return await server.probe()

    try:
        return NamedServer(url, asyncio.run(probed()), api_key_env=api_key_env)
    except (EndpointUnavailable, EndpointTimeout) as error:
        return NamedServer(url, None, error.message, api_key_env)
    except TtsError as error:
        hint = error.hint
        if any(f"status {status}" in error.message for status in (401, 403)):
            hint = (
                f"{api_key_env} does not hold the server's key."
                if api_key_env
                else "Name the environment variable that holds the key: --api-key-env NAME"
            )
        raise ConfigError(error.message, hint=hint) from error


def served_model(server: NamedServer, tokenizer: str, base: Path) -> ServedModel:
    """A server's model, with the folder or hub name of its tokenizer, for a file in `base`."""
    _require_path(tokenizer)
    if is_there(Path(tokenizer).expanduser()):
        tokenizer = _from(base, tokenizer)
    elif not _may_be_on_hub(tokenizer):
        raise ConfigError(
            f"There is no tokenizer {tokenizer!r:.300}.",
            hint="Name the folder of the model's tokenizer.json, or OWNER/NAME on the Hugging Face "
            "hub.",
        )
    context = server.capabilities.context if server.capabilities else None
    return ServedModel(server.url, tokenizer, context, api_key_env=server.api_key_env)


def compiled_model(
    name: str, role: Role, base: Path, tokenizer: str | None = None
) -> CompiledModel:
    """The model of a checkpoint folder, a GGUF file or a name of the hub, for a file in `base`.

    `tokenizer`, of a GGUF file, is a folder or OWNER/NAME of the hub. Raises ConfigError if there
    is none, CheckpointError for one that cannot be used.
    """
    _require_path(name)
    path = Path(name).expanduser()
    if name == DEMO and not is_there(path):
        path = paths.deployments_dir().parent / "checkpoints" / f"demo-{role}"
        name = str(path)
    if path.suffix.lower() == GGUF and is_file(path):
        if tokenizer is None:
            raise ConfigError(
                f"--{role}-tokenizer is missing: {name} is a GGUF file.",
                hint="Name the folder of the original model's tokenizer.json, or its OWNER/NAME.",
            )
        on_hub = not is_there(Path(tokenizer).expanduser())
        original = _compiled("", Path(tokenizer).expanduser())
        where = tokenizer if on_hub else _from(base, tokenizer)
        return CompiledModel(_from(base, name), path.resolve(), original.positions, tokenizer=where)
    if is_there(path):
        return _compiled(_from(base, name), path.resolve())
    if _may_be_on_hub(name):
        place = f"checkpoints/{name.rpartition('/')[2]}"
        return _compiled(place, base.resolve() / place, name)
    if model := known_model(path):
        return _compiled(_from(base, name), path.absolute(), model.source.removeprefix(_HUB))
    raise ConfigError(
        f"There is no checkpoint {name!r:.300}.",
        hint=f"Did you mean http://{name}?"
        if _ADDRESS.fullmatch(name)
        else "Name a checkpoint folder, OWNER/NAME on the Hugging Face hub, or the "
        "URL of a server that runs already.",
    )


def function_model(name: str, base: Path) -> FunctionModel:
    """The verifier of a function FILE.py:NAME, for a file in `base`; raises ConfigError."""
    _require_path(name)
    source = source_of(name)
    require_defined(Path(source.file), source.name)
    file, _, function = name.rpartition(":")
    return FunctionModel(f"{_from(base, file)}:{function}")


def _compiled(place: str, folder: Path, repository: str = "") -> CompiledModel:
    here = is_there(folder)
    shape = shape_of(folder) if here or known_model(folder) else None
    return CompiledModel(
        place,
        folder,
        shape.max_position_embeddings if shape else None,
        "" if here else repository,
        *((shape.head.kind, shape.head.scores) if shape and shape.head else ()),
    )


def _from(base: Path, name: str) -> str:
    """A path as a file in the folder `base` is to give it: absolute ones stay so."""
    path = Path(name).expanduser()
    return str(path) if path.is_absolute() else os.path.relpath(path.resolve(), base.resolve())


def _may_be_on_hub(name: str) -> bool:
    owner = name.partition("/")[0]
    return names_repository(name) and owner not in _FOLDERS and not is_there(Path(owner))


def _require_path(name: str) -> None:
    try:
        require_path(name)
    except Unreadable as error:
        raise ConfigError(f"{name!r:.100}: {error}.") from error


def with_format(
    choices: Choices, base: Path, form: str | None = None, capabilities: Capabilities | None = None
) -> Choices:
    """The choices with the format of the verifier, as far as anything tells it.

    `form` is the user's choice, `capabilities` are those of the verifier's server.
    """
    verifier = choices.verifier
    if isinstance(verifier, FunctionModel):
        return choices
    formats = [(form, "")] if form else list(_formats(choices, verifier, capabilities))
    drafts = [
        replace(choices, format=name, why_format=why, prompt=_prompt_of(name))
        for name, why in formats
    ]
    fitting = (each for each in drafts if _can_be_asked(verifier, each.format, each.prompt, base))
    return next(fitting, drafts[0])


def _prompt_of(form: str) -> str:
    """The bundled prompt of a format."""
    if FORMATS[form].needs != "prompt":
        return ""
    file = "graded-step.txt" if form == "graded" else "right-step.txt"
    return read_text(paths.deployments_dir() / "prompts" / file).strip()


def with_system_prompt(choices: Choices) -> Choices:
    """The choices with a system prompt, where the generator is published as one to talk to."""
    talks = bool(_INSTRUCT.search(choices.generator.name))
    return replace(choices, system_prompt=SYSTEM_PROMPT) if talks else choices


def _formats(
    choices: Choices, verifier: Model, capabilities: Capabilities | None
) -> Iterator[tuple[str, str]]:
    """Formats that may be the verifier's, the likeliest first, and why."""
    name = Path(verifier.name)
    reads_prompts = capabilities is None or capabilities.prompt_log_probs
    likelihood = isinstance(verifier, ServedModel) and reads_prompts
    if trained := trained_format(name):
        yield trained, f"{verifier.name} was trained with it."
    if (head := _head(verifier, capabilities)) != "labels":
        guess = "The checkpoint has a head of its own and does not say its format: check it."
        if isinstance(verifier, CompiledModel) and verifier.scores == "answers":
            yield "chat", guess
        yield _BY_HEAD[head], guess
        yield "custom", guess
    own = verifier.name == choices.generator.name
    if own and likelihood:
        yield "likelihood", "The generator itself: a larger model of its family judges better."
    if own or (
        (is_named_generator(name) or _INSTRUCT.search(verifier.name))
        and not is_named_verifier(name)
    ):
        yield "prompted", "It was not trained to judge, so it is asked in words."
        if likelihood:
            yield "likelihood", "It was not trained to judge."
    guess = "A guess: the checkpoint does not say how it was trained to be asked. Check it."
    yield "rlhflow", "" if trained else guess


def _head(verifier: Model, reported: Capabilities | None) -> HeadKind:
    if isinstance(verifier, CompiledModel):
        return verifier.head
    only_pools = reported and reported.pooling and not reported.generates
    return "classification" if only_pools else "labels"


def _can_be_asked(verifier: Model, form: str, prompt: str, base: Path) -> bool:
    """Whether the verifier's tokenizer can make the dialogue; True where it is not here."""
    if form == "custom":
        return True  # what is written then has to be completed
    folder = verifier.folder if isinstance(verifier, CompiledModel) else base / verifier.tokenizer
    if not is_file(folder / "tokenizer.json"):
        return True
    facts = FORMATS[form]
    fields = {"url": "http://localhost", "tokenizer": folder, "max_seq_len": 1, "format": form}
    fields |= {"prompt": prompt} if facts.needs == "prompt" else {}
    spec = RemoteVerifier.model_validate(fields | {facts.budget_fields[0]: 1})
    try:
        tokenizer = Tokenizer(folder)
        if facts.writes:
            critic(tokenizer, spec)
        else:
            verifier_dialogue(tokenizer, spec)
            column_tokens(tokenizer, spec)
    except CheckpointError:
        return False
    return True
