"""`tts init`: a new deployment file."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tts.base.choices import Target
from tts.base.errors import ConfigError, did_you_mean
from tts.base.shown_text import gib
from tts.base.user_paths import is_folder, is_there
from tts.build.draft import Choices, CompiledModel, FunctionModel, Machine, Model, as_text, drafted
from tts.build.spec import FORMATS, Role, bundled_deployments
from tts.build.started.engines import ENGINES
from tts.build.tensorrt.gpus import GPUS
from tts.reports.console import consoles, say
from tts.runs.files import write_whole
from tts.session.functions import names_function

from .drafting import (
    DEMO,
    NamedServer,
    ask_server,
    compiled_model,
    function_model,
    is_url,
    served_model,
    this_machine,
    with_format,
    with_system_prompt,
)
from .options.build import Init

_ON_GPUS = ("tensorrt",)
_MODEL = (
    "a checkpoint folder, a GGUF file, OWNER/NAME on the Hugging Face hub, the URL of a server "
    "that runs already, or demo"
)


def init(options: Init) -> None:
    """Run `tts init`."""
    target = options.target
    _require_free(options.file, force=options.force)
    base = options.file.expanduser().parent
    machine = this_machine()
    say(_machine_line(machine))
    ask = partial(ask_server, api_key_env=options.api_key_env)
    name = DEMO if options.generator is None else options.generator
    writes = _named("generator", name, options.generator_tokenizer, base, ask)
    judge = writes.text if options.verifier is None else options.verifier
    judges = _judge(judge, writes, options.verifier_tokenizer, base, ask)
    target = target or _usual_target(writes, judges, machine)
    _require_possible(target, writes, judges)
    if target in _ON_GPUS or options.gpu:
        machine = _with_gpu(machine, options.gpu)
    if target in _ON_GPUS and options.verifier is None and judges == writes:
        raise ConfigError(
            "--verifier is missing.",
            hint=f"The verifier scores steps: {_MODEL}; or a function FILE.py:NAME.",
        )
    name = _name(options.file)
    if name in bundled_deployments():
        name += "-own"  # whose engines would be taken for those of the bundled one
    assert not isinstance(writes.model, FunctionModel)
    choices = Choices(name, target, writes.model, judges.model)
    reported = judges.server.capabilities if judges.server else None
    choices = with_system_prompt(
        with_format(choices, base, _format(options.format_, judges), reported)
    )
    text = as_text(choices, machine, drafted(choices, machine))
    try:
        write_whole(options.file.expanduser().resolve(), text)
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"Cannot write {options.file}: {why}.") from error
    _print_end(options.file, choices)


@dataclass(frozen=True)
class _Named:
    """One of the two models, as the user named it."""

    text: str
    model: Model | FunctionModel
    server: NamedServer | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether it is a model that is compiled here."""
        return isinstance(self.model, CompiledModel)


def _named(
    role: Role, text: str, tokenizer: str | None, base: Path, ask: Callable[[str], NamedServer]
) -> _Named:
    """A model by the user's words; a server is asked for its properties."""
    if not is_url(text):
        model = compiled_model(text, role, base, tokenizer)
        if model.repository:
            say(f"There is no folder {text}: {model.repository} of the Hugging Face hub is taken.")
        return _Named(text, model)
    server = ask(text)
    reported = server.capabilities
    tokenizer = server.tokenizer if tokenizer is None else tokenizer
    if tokenizer is None:
        why = f"It calls the model {reported.model!r}." if reported else server.why
        raise ConfigError(
            f"{why} The tokenizer of the model at {server.url} is not known.",
            hint=f"Name it by --{role}-tokenizer: a folder, or OWNER/NAME on the hub."
            + ("" if reported else " Or start the server first."),
        )
    say(reported.describe() if reported else f"{server.why} The file is written without it.")
    return _Named(text, served_model(server, tokenizer, base), server)


def _judge(
    text: str, writes: _Named, tokenizer: str | None, base: Path, ask: Callable[[str], NamedServer]
) -> _Named:
    if names_function(text):
        return _Named(text, function_model(text, base))
    if text == writes.text and text != DEMO and tokenizer is None:
        return writes
    return _named("verifier", text, tokenizer, base, ask)


def _usual_target(writes: _Named, judges: _Named, machine: Machine) -> Target:
    compiled = writes.is_compiled + judges.is_compiled
    if any(each.text.lower().endswith(".gguf") for each in (writes, judges)):
        return "llama.cpp"
    if compiled < 2:
        return "openvino" if compiled else "openai"
    if not machine.gpu:
        return "openvino"
    for_gpus = (each for each in ENGINES.values() if each.target != "llama.cpp")
    return next((each.target for each in for_gpus if shutil.which(each.program[0])), "vllm")


def _require_possible(target: Target, writes: _Named, judges: _Named) -> None:
    """Raise ConfigError for a target that these models cannot have."""
    both = {"generator": writes, "verifier": judges}
    compiled = [name for name, each in both.items() if each.is_compiled]
    if target == "openai" and compiled:
        raise ConfigError(
            f"Target openai compiles nothing, and --{compiled[0]} is no URL.",
            hint="Name the URL of a server that runs already, or another --target.",
        )
    if target != "openai" and not compiled:
        raise ConfigError("Nothing is compiled, so the target is openai.")
    if target in _ON_GPUS and len(compiled) == 1:
        raise ConfigError(
            f"Beside a {'server' if writes.server or judges.server else 'function'} the "
            f"{compiled[0]} can be compiled for target openvino only.",
            hint=f"Serve it by itself, and give --{compiled[0]} its URL.",
        )


def _with_gpu(machine: Machine, name: str | None) -> Machine:
    """The machine that the file is for: with the GPUs that are here, or of a kind that is named."""
    if name is None and machine.gpu is None:
        raise ConfigError("--gpu is missing.", hint=f"The kind of GPU: {', '.join(GPUS)}.")
    kind = name.lower() if name else machine.gpu
    if kind == machine.gpu:
        return machine
    for gpu in GPUS:
        if gpu == kind:
            return replace(machine, gpu=gpu, gpus=0)  # there are none of them here
    raise ConfigError(
        f"{name!r:.100} is no kind of GPU that tts knows: {', '.join(GPUS)}.",
        hint=did_you_mean(name or "", list(GPUS)),
    )


def _format(name: str | None, judges: _Named) -> str | None:
    if name is not None and name not in FORMATS:
        raise ConfigError(
            f"There is no verifier format {name!r:.100}; there are {', '.join(FORMATS)}.",
            hint=did_you_mean(name, list(FORMATS)),
        )
    if name and judges.is_compiled and (why := FORMATS[name].not_compiled):
        raise ConfigError(f"{why[0].upper()}{why[1:]}.")
    return name


def _name(file: Path) -> str:
    """The name of a deployment in a file; that of the folder, where the file's says nothing."""
    usual = file.stem.lower() in ("deployment", "tts")
    text = file.expanduser().resolve().parent.name if usual else file.stem
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).lstrip("._-")[:48] or "deployment"


def _machine_line(machine: Machine) -> str:
    cores = "1 core" if machine.cores == 1 else f"{machine.cores} cores"
    memory = f"{gib(machine.memory)} of memory" if machine.memory else "memory unknown"
    count = "1 GPU" if machine.gpus == 1 else f"{machine.gpus} GPUs"
    gpus = f"{count} ({machine.gpu})"
    if not machine.gpu:
        unknown = f"no GPU that tts knows ({machine.gpu_name})"
        gpus = unknown if machine.gpu_name else "no NVIDIA GPU"
    return f"This machine: {cores}, {memory}, {gpus}."


def _require_free(file: Path, *, force: bool) -> None:
    place = file.expanduser()
    if is_folder(place):
        raise ConfigError(f"{file} is a folder.", hint="Name the file to write.")
    if is_there(place) and not force:
        raise ConfigError(
            f"{file} is there already.", hint="Name another file, or replace it with --force."
        )
    if not is_folder(place.parent):
        raise ConfigError(f"There is no folder {place.parent} to write {file.name} to.")


def _print_end(file: Path, choices: Choices) -> None:
    """The file that was written, and the next steps, as commands that can be pasted."""
    quoted = shlex.quote(str(file))
    itself = choices.verifier == choices.generator
    scores = "itself" if itself else choices.verifier.name
    lines = [f"Written: {file}", f"  {choices.generator.name} with {scores}, {choices.target}"]
    if downloads := _downloads(file, choices):
        lines += ["Download first:", *(f"  {command}" for command in downloads)]
    first = "doctor" if choices.target == "openai" else "plan" if choices.is_started else "lint"
    then = f"build-engines {quoted}" if first == "lint" else f'solve {quoted} "QUESTION"'
    lines += ["Next:", f"  tts {first} {quoted}", f"  tts {then}"]
    out, _ = consoles()
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _downloads(file: Path, choices: Choices) -> list[str]:
    """The checkpoints that are not here."""
    missing = {
        model.repository: file.expanduser().parent / model.checkpoint
        for model in (choices.generator, choices.verifier)
        if isinstance(model, CompiledModel) and model.repository and not choices.is_started
    }
    return [
        f"hf download {repository} --local-dir {shlex.quote(str(folder))} --exclude 'original/*'"
        for repository, folder in missing.items()
    ]
