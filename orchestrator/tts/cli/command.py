"""Commands and groups as `tts` shows them: loaded by name, and a group with a default command.

A command is a dataclass of its options (`options`) and a function that takes one, in a module of
its own. Help and completion read the first; the function, with all that it imports, is loaded when
the command runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Self, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

_WORDS = "tts.words"
_SEVERAL = {
    "--seed": "Run the command once for each seed, with one --dataset-seed and an --out of its "
    "own, then: tts report RUN RUN."
}
"""What to do instead, by options that one may well want to give several times."""
_METAVARS: dict[Any, str] = {int: "N", float: "N", str: "NAME", list[str]: "NAME", Path: "PATH"}
"""What stands for a value in help, by its type, where an option does not say it better."""
_LOADED = ("callback", "help", "params")
"""Attributes of a command that follow from its options."""
SETTINGS: dict[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "rich_markup_mode": "rich",
}
_SECRETS = (
    # a token by its form
    (r"\b(hf_|nvapi-|sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-)[\w-]{8,}", r"\1[removed]"),
    (r"\bAKIA[0-9A-Z]{12,}", "[removed]"),
    (r"\beyJ[\w-]{10,}\.[\w-]+\.[\w-]*", "[removed]"),  # JSON web token
    # a secret by what stands before it
    (
        r"(?i)\b([\w-]*(?:token|password|passwd|secret|api[_-]?key|credential)s?[\"']?\s*[=:]\s*)"
        r"[\"']?(?!\d+\b)[^\s\"',;]+",
        r"\1[removed]",
    ),
    (r"(?i)\b(authorization[\"']?\s*[=:]\s*)(?:\w+\s+)?[^\s\"',;]+", r"\1[removed]"),
    (r"(?i)\b(bearer\s+)[\w.~+/=-]+", r"\1[removed]"),
    (r"(\w+://)[^\s/@]+@", r"\1[removed]@"),  # user and password of an address
)


def by_name(name: str) -> Any:
    """What `module:attribute` of this package names, imported now."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f".{module}", __package__), attribute)


def examples(*commands: str) -> str:
    """The foot of a help text: commands to copy, each on a line of its own."""
    return "\n".join(["Examples:", *(f"  {command}" for command in commands)])


class _Plain:
    """Help without the type of a flag, which is always bool; options given twice are refused."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, flags with nothing where others have the kind of their value."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of what it is mixed into
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters

    def make_parser(self, ctx: Any) -> Any:
        """The parser of options, which tells how often each was given, as their values do not."""
        parser: Any = super().make_parser(ctx)  # type: ignore[misc]  # of what it is mixed into
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            parsed = parse(args=args)
            if not ctx.resilient_parsing:
                _refuse_twice(ctx, parsed[-1])
            return parsed

        parser.parse_args = parse_once
        return parser

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; a word that is too long for its column goes on in the next line."""
        from rich.columns import Columns  # only for help: they take long
        from typer import rich_utils

        def folded(items: list[Any]) -> Columns:
            for item in items:
                item.overflow = "fold"
            return Columns(items)

        rich_utils.Columns = folded  # type: ignore[assignment, attr-defined]
        super().format_help(ctx, formatter)  # type: ignore[misc]  # of what it is mixed into


def _refuse_twice(ctx: Any, parameters: list[Any]) -> None:
    """Fail for an option that is there again: its last value would count, silently."""
    for parameter in parameters:
        if parameter.multiple or parameter.is_eager or parameters.count(parameter) == 1:
            continue
        name = max(parameter.opts, key=len)
        ctx.fail(f"{name} is given more than once. {_SEVERAL.get(name, 'Give it once.')}")


def _reword(error: Any) -> None:
    """Say in our words what is wrong with a value, where it is said in pydantic's."""
    from pydantic import ValidationError  # only where something is wrong: they take long

    from tts.build.spec import reason_of

    if not isinstance(error.__cause__, ValidationError):
        return
    (detail, *_) = error.__cause__.errors()
    reason = reason_of(detail).rstrip(".")
    error.message = f"{detail['input']!r:.100} {reason}." if "must" in reason else f"{reason}."
    if "," in str(detail["input"]) and (name := max(error.param.opts, key=len)) in _SEVERAL:
        error.message += f" {_SEVERAL[name]}"


class Command(_Plain, TyperCommand):
    """A command that imports its options when they are looked at, its function when it runs."""

    def __init__(self, name: str, options: str, function: str, line: str, *lines: str) -> None:
        """Name `options` and `function` by module:name; `line` begins the help, `lines` end it."""
        epilog = examples(*lines) if lines else None
        super().__init__(name, short_help=line, epilog=epilog, **SETTINGS)
        self._options, self._function = f"options.{options}", function
        for attribute in _LOADED:
            delattr(self, attribute)

    def __getattr__(self, name: str) -> Any:
        """An attribute that follows from the options, which are imported for it."""
        if name not in _LOADED:
            raise AttributeError(name)
        app, options = typer.Typer(add_completion=False), by_name(self._options)
        app.command()(options)
        command: Any = typer.main.get_command(app)
        kinds = get_type_hints(options)
        for parameter in command.params:
            kind = kinds.get(parameter.name)
            words = [_METAVARS[each] for each in (kind, *get_args(kind)) if each in _METAVARS]
            parameter.metavar = parameter.metavar or (words[0] if words else None)
            if isinstance(text := parameter.show_default, str):  # typer's has brackets in brackets
                parameter._get_default_string = lambda text=text, **_: text

        def run(**values: Any) -> None:
            by_name(self._function)(command.callback(**values))

        self.callback, self.help, self.params = run, command.help, command.params
        return getattr(self, name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep a copy of the words, since `args` is consumed."""
        ctx.meta[_WORDS] = [str(ctx.info_name), *args]
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            _reword(error)
            raise


def without_secrets(text: str) -> str:
    """A text in which tokens, passwords and keys are replaced, as far as their form tells them."""
    for pattern, instead in _SECRETS:
        text = re.sub(pattern, instead, text)
    return text


def command_line(context: Any) -> list[str]:
    """The command line of a command of `tts` itself, word by word, without secrets."""
    return ["tts", *map(without_secrets, context.meta[_WORDS])]


class CommandGroup(_Plain, TyperGroup):
    """A group of commands."""

    @classmethod
    def of(
        cls, name: str, text: str, *commands: Command | CommandGroup, lines: Sequence[str] = ()
    ) -> Self:
        """A group with its help; `lines` are examples."""
        return cls(
            name=name,
            help=text,
            commands=commands,
            epilog=examples(*lines) if lines else None,
            no_args_is_help=True,
            **SETTINGS,
        )


@dataclass(frozen=True)
class _Offered:
    """A completion: CompletionItem of click, or of the typer that has its own copy of click."""

    value: str
    type: str = "plain"
    help: str | None = None


class WithDefault(CommandGroup):
    """A group whose command `serve` runs if no other is named: `tts gateway demo`."""

    default = "serve"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name before arguments that begin with none."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            if (near := get_close_matches(args[0], self.commands, 1, 0.8)) and not Path(
                args[0]
            ).exists():
                ctx.fail(f"There is no command {args[0]!r}. Did you mean {near[0]}?")
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Both ways to go on, as the usage line shows them."""
        return ["[OPTIONS]", "DEPLOYMENT...", "|", "COMMAND", "[ARGS]..."]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group, with what its default command takes."""
        own = self.params
        self.params = [*self.commands[self.default].get_params(ctx)[:-1], *own]
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params = own

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The names of commands, and what `serve` takes first: a deployment."""
        names = by_name("completion:deployments")(incomplete)
        return [*super().shell_complete(ctx, incomplete), *map(_Offered, names)]
