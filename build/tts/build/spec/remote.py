"""A section with `url`: an engine that runs already, and is asked by HTTP."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from tts.base.errors import ConfigError

from .engine import EngineSpec
from .generator import GeneratorRole
from .role import RoleSpec
from .section import FilePath
from .verifier import VerifierRole

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _url(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", value):
        raise ValueError("must be a URL such as http://localhost:8000")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("must hold neither a user, a query nor a fragment; keys: api_key_env")
    return value.rstrip("/")


Url = Annotated[str, BeforeValidator(_url)]


def key_in(variable: str, named_by: str) -> str:
    """The key in an environment variable; raises ConfigError if it is not there."""
    key = os.environ.get(variable)
    if not key:
        raise ConfigError(
            f"{named_by} names {variable}, which is not in the environment.",
            hint=f"Set it: export {variable}=...",
        )
    if not key.isprintable():  # surrogates, of bytes that are no UTF-8, are not printable either
        raise ConfigError(
            f"{named_by} names {variable}, which has a character that no key has.",
            hint="Set it again, without line ends.",
        )
    return key


class RemoteSpec(RoleSpec):
    """An engine that runs already behind OpenAI's API: its address, and what is known of it."""

    tokenizer_field: ClassVar[str] = "tokenizer"

    url: Annotated[tuple[Url, ...], Field(min_length=1)]
    """One URL, or a list of replicas of the same model."""
    model: Annotated[str, Field(min_length=1)] | None = None
    """The model's name at the server; unset: the only one served there."""
    api_key_env: str | None = None
    """The environment variable that holds the server's API key."""
    tokenizer: FilePath
    """The folder of its tokenizer.json, or OWNER/NAME on the Hugging Face hub."""

    @property
    def tokenizer_folder(self) -> Path:
        """The folder of its tokenizer.json and chat template."""
        return self.tokenizer

    @model_validator(mode="before")
    @classmethod
    def _asks_for_what_it_decides(cls, data: Any) -> Any:
        """Errors about the whole section show no value: a key must not be printed."""
        if not isinstance(data, dict):
            return data
        variable = data.get("api_key_env")
        if "api_key" in data or (isinstance(variable, str) and not _VARIABLE.fullmatch(variable)):
            raise ValueError(
                "a key does not belong into the file: put it into an environment variable, and "
                "the variable's name into api_key_env"
            )
        compiled = EngineSpec.model_fields.keys() - RemoteSpec.model_fields.keys()
        if stated := [name for name in data if name in compiled]:
            raise ValueError(
                f"{', '.join(stated)}: whoever started the engine at `url` has decided that; "
                f"remove {'it' if len(stated) == 1 else 'them'}, or remove url to have the model "
                "compiled"
            )
        return data

    @field_validator("url", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("url")
    @classmethod
    def _differ(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(urls)) != len(urls):
            raise ValueError("names a server twice")
        return urls


class RemoteGenerator(GeneratorRole, RemoteSpec):
    """An LLM that writes steps on a server of its own."""


class RemoteVerifier(VerifierRole, RemoteSpec):
    """A verifier on a server of its own; which formats it can score is found by asking it."""
