"""Python functions of the program: in place of the grader, and in files that a command names.

A command names a function or class as FILE.py:NAME. The file is executed, with its folder at the
end of Python's path: it may import its neighbours. A run keeps the file's hash, by which it tells
on resuming whether the file has changed; modules that the file imports are not checked.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from tts.base.errors import ConfigError, FunctionError, did_you_mean
from tts.base.input_files import Unreadable, is_file, read_bytes
from tts.build.spec import Deployment, VerifierFunction
from tts.endpoints.functions import Caller, described, name_of, require_endpoints, users_code
from tts.grading import Outcome, Reason, Verdict
from tts.runs.config import FunctionSource
from tts.strategies.strategy import Strategy

AnswerFunction = Callable[[str], str | None]
"""The text of a completion to its final answer, or None."""
EqualFunction = Callable[[str, str], bool | Awaitable[bool]]
"""Whether an answer (first) is equal to a reference, or to another answer."""


class FunctionGrader:
    """A grader that calls a user's `equal`."""

    def __init__(self, equal: EqualFunction) -> None:
        self._call = Caller(equal)

    async def equal(self, prediction: str | None, reference: str) -> Verdict:
        """See grading.Grader.equal."""
        if prediction is None:
            return Verdict(Outcome.DIFFERENT, Reason.NO_ANSWER)
        outcome = await self._call(prediction, reference)
        return Verdict(Outcome.EQUAL if outcome else Outcome.DIFFERENT, Reason.FUNCTION)

    def close(self) -> None:
        """End the worker thread."""
        self._call.close()


def checked_answer_of(function: AnswerFunction) -> AnswerFunction:
    """A program's own `answer_of`, whose failures name it; raises FunctionError."""

    def answer_of(text: str) -> str | None:
        with users_code(name_of(function)):
            answer = function(text)
        if answer is not None and not isinstance(answer, str):
            raise FunctionError(
                f"{name_of(function)} gave {described(answer)}; an answer must be a text or None.",
                hint="Return the answer as a text.",
            )
        return answer

    return answer_of


_NAMED = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")
MAX_BYTES = 10_000_000
loaded: dict[Path, tuple[str, ModuleType]] = {}
"""The modules of files by path, each with the hash of the executed code."""


@dataclass(frozen=True)
class Loaded:
    """An object loaded from a file by its name."""

    value: Any
    source: FunctionSource


def names_function(text: str) -> bool:
    """Whether a text names a function in a file, or a file alone, and no entry of the catalog."""
    return text.endswith(".py") or _NAMED.fullmatch(text) is not None


def source_of(text: str) -> FunctionSource:
    """The source that FILE.py:NAME names; raises ConfigError. The file is not read yet.

    A file without a name is executed, to say which names it has.
    """
    match = _NAMED.fullmatch(text)
    file = Path(match["file"] if match else text).expanduser()
    if match and is_file(file):
        return FunctionSource(file=str(file.resolve()), name=match["name"])
    what, hint = f"{text!r:.200} names no Python function.", "Give FILE.py:NAME."
    if file.suffix == ".py" and not is_file(file):
        what = f"There is no file {file}."
        hint = did_you_mean(file.name, (each.name for each in file.parent.glob("*.py"))) + hint
    elif file.suffix == ".py":
        _, module = _module(file.resolve(), "function")
        hint = f"Give FILE.py:NAME. Names in it: {', '.join(_offered(module)) or 'none'}."
    raise ConfigError(what, hint=hint)


def sources_of(deployment: Deployment) -> dict[str, FunctionSource]:
    """The source of a deployment's verifier, if that is a function, as `load_all` takes it.

    Only for a deployment that the user has named: its code is executed. Raises ConfigError.
    """
    spec = deployment.verifier
    return {"verifier": source_of(spec.function)} if isinstance(spec, VerifierFunction) else {}


def verifier_of(deployment: Deployment, own: Any | None = None) -> Any | None:
    """The program's `own` verifier, or the function of a deployment that the user has named."""
    if own is None and (sources := sources_of(deployment)):
        return load_all(sources)["verifier"].value
    return own


def load_all(sources: Mapping[str, FunctionSource]) -> dict[str, Loaded]:
    """The object of each source, by role; raises ConfigError, or FunctionError if a file fails."""
    return {role: _load(role, source) for role, source in sources.items()}


def _load(role: str, source: FunctionSource) -> Loaded:
    file = Path(source.file)
    digest, module = _module(file, role)
    value: Any = module
    for part in source.name.split("."):
        if not hasattr(value, part):
            names = ", ".join(_offered(value)) or "none"
            raise ConfigError(f"{file} has no {source.name}.", hint=f"Names in it: {names}.")
        value = getattr(value, part)
    if role == "verifier":
        if isinstance(value, type):
            with users_code(f"{file.stem}.{source.name}()"):
                value = value()
        require_endpoints(None, value)
    return Loaded(value, msgspec.structs.replace(source, sha256=digest))


def _offered(holder: Any) -> list[str]:
    """Functions, classes and strategies that a module, or a class in it, makes itself."""
    module = getattr(holder, "__module__", holder.__name__)
    return [
        name
        for name, each in vars(holder).items()
        if not name.startswith("_")
        and (
            isinstance(each, Strategy)
            or (callable(each) and getattr(each, "__module__", module) == module)
        )
    ]


def _module(file: Path, role: str) -> tuple[str, ModuleType]:
    """The hash of a file's code, and the module that it makes."""
    try:
        code = read_bytes(file, MAX_BYTES)
    except (FileNotFoundError, Unreadable) as error:
        why = "it is not there" if isinstance(error, FileNotFoundError) else error
        raise ConfigError(
            f"{file} cannot be read: {why}.", hint=f"The {role} of this run is in that file."
        ) from error
    digest = hashlib.sha256(code).hexdigest()
    loaded_digest, module = loaded.get(file, ("", None))
    if module is not None and loaded_digest == digest:
        return digest, module
    other = sys.modules.get(file.stem)
    if (other is not None and other is not module) or file.stem in sys.stdlib_module_names:
        raise ConfigError(
            f"{file} has the name of another module, {file.stem}.", hint="Rename the file."
        )
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # last: a json.py beside it is not everybody's
    sys.modules[file.stem] = module  # dataclasses and pickle look their classes up there
    try:
        with users_code(str(file)):
            exec(compile(code, str(file), "exec"), vars(module))
    except FunctionError:
        del sys.modules[file.stem]
        loaded.pop(file, None)
        raise
    loaded[file] = digest, module
    return digest, module
