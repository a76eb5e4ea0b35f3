"""Commands and groups as `tts` shows them, and a group of which one command need not be named."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _Plain:
    """Help without the type of a flag, which is always bool."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, flags with nothing where others have the kind of their value."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of what it is mixed into
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class Command(_Plain, TyperCommand):
    """A command."""


class Group(_Plain, TyperGroup):
    """A group of commands."""


class WithDefault(Group):
    """A group whose command `serve` runs if no other is named: `tts gateway demo`."""

    default = "serve"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name before arguments that begin with none."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)
