"""Commands and groups as `tts` shows them, and a group with a default command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typer.core import TyperCommand, TyperGroup

from .completion import deployments
from .redaction import without_secrets

_WORDS = "tts.words"
_SEVERAL = {
    "--seed": "Run the command once for each seed, with one --dataset-seed and an --out of its "
    "own, then: tts report RUN RUN."
}
"""What to do instead, by options that one may well want to give several times."""


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


def _refuse_twice(ctx: Any, given: list[Any]) -> None:
    """Fail for an option that was given again: its last value would count, silently."""
    for parameter in given:
        if parameter.multiple or parameter.is_eager or given.count(parameter) == 1:
            continue
        name = max(parameter.opts, key=len)
        ctx.fail(f"{name} is given more than once. {_SEVERAL.get(name, 'Give it once.')}")


class Command(_Plain, TyperCommand):
    """A command. It remembers the words that it was given, for `command_line`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep a copy of the words, since `args` is consumed."""
        ctx.meta[_WORDS] = [str(ctx.info_name), *args]
        return super().parse_args(ctx, args)


def command_line(context: Any) -> list[str]:
    """The command line of a command of `tts` itself, word by word, without secrets."""
    return ["tts", *map(without_secrets, context.meta[_WORDS])]


class CommandGroup(_Plain, TyperGroup):
    """A group of commands."""


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
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The names of commands, and what `serve` takes first: a deployment."""
        items = super().shell_complete(ctx, incomplete)
        return items + [_Offered(name) for name in deployments(incomplete)]
