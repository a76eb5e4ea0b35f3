"""What an engine that is started is to the rest: its table of options, and what it can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..spec import Role, Scores, StartedSpec, StartedTarget, VerifierRole

Options = Mapping[str, str | int | float | bool | None]
"""Words of a command line: True stands for the word alone, None and False for no word."""


@dataclass(frozen=True)
class Budget:
    """What the plan gives to one engine on each of its GPUs, or in this machine's memory."""

    kv_bytes: int
    kv_tokens: int | None
    """Tokens that these bytes hold; None: the model's shape is not known."""
    weights: int | None
    """Bytes; None: the model's shape is not known."""
    share: float | None
    """Part of each GPU that the engine takes in all; None: on CPUs, or not known."""
    free_share: float | None
    """Part that the KV cache is of what is free when the engine allocates it, if the engines start
    one after the other, generator first; None: on CPUs, or not known."""


@dataclass(frozen=True)
class Start:
    """One engine's start: its section, and what the plan has made of it."""

    spec: StartedSpec
    role: Role
    host: str
    port: int
    sequences: int
    """Upper bound of sequences in the engine."""
    tokens: int
    """Upper bound of tokens of a step."""
    on_gpu: bool
    hopper: bool
    deterministic: bool
    judge: VerifierRole | None
    """The verifier that the engine is, or is as well; None: it only writes."""
    head: Scores | None
    """What its own head scores, in place of a language head; None: it has a language head."""
    budget: Budget


@dataclass(frozen=True)
class Engine:
    """One kind of server. Facts are those of `version`, from the sources that `facts` names."""

    target: StartedTarget
    version: str
    facts: str
    program: tuple[str, ...]
    """The words before the options; the first one is found on PATH."""
    image: str
    install: str
    """The command that installs it."""
    options: Callable[[Start], Options]
    environment: Callable[[Start], Mapping[str, str]]
    positional: Callable[[Start], Sequence[str]] = lambda _: ()
    """Words between the program and the options."""
    key_variable: str | None = None
    """The environment variable that holds the key to ask for; None: it takes none there."""
    program_in_image: str | None = None
    """The program's path within the image, where it is not on PATH."""
    ready: str = "/health"
    """The path that answers 200 once the model is loaded."""
    block: int = 16
    """Tokens of a block of the KV cache."""
    cpu_block: int | None = None
    """Tokens of a block on CPUs, where they differ."""
    context: float = 0.6
    """GiB of a process on a GPU before anything is loaded: a guess, until it is measured."""
    graphs: Callable[[int], int] = lambda _: 0
    """CUDA graphs for so many sequences."""
    graph: int = 10 << 20
    """Bytes of a graph: a guess, from logs of vLLM with models of 8B parameters."""
    labels_from: str | None = None
    """The first version known to give the exact probabilities of labels; None: all do."""
    heads: tuple[str, ...] = ()
    """Ends of the names of architectures with a head whose scores it gives."""
