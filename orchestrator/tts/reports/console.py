"""What commands say while they work: to stderr, so that stdout holds results only."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.segment import Segment

from tts.base.shown_text import printable

_quiet = False


def silence() -> None:
    """Print results only from now on: what goes to `say` and to progress is dropped."""
    global _quiet
    _quiet = True


class _Console(Console):
    """Shows texts, which may be anybody's, without their control characters."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """See Console."""
        for segment in super().render(renderable, options):
            plain = segment.control or segment.text.isprintable()
            yield segment if plain else segment._replace(text=printable(segment.text))


def consoles() -> tuple[Console, Console]:
    """The console for results (stdout) and the one for everything else (stderr)."""
    out = _Console(highlight=False)
    if not out.is_terminal:
        out.width = 140  # a pipe has no width; a table must not be squeezed into 80 columns
    return out, _Console(stderr=True, highlight=False, quiet=_quiet)


def say(text: str, console: Console | None = None) -> None:
    """Print one line of progress; on `console` if something is being drawn on it."""
    (console or consoles()[1]).print(text, style="dim", markup=False, soft_wrap=True)


def redraw_after_resize(
    console: Console, drawing: Live | Progress, before: ConsoleDimensions
) -> ConsoleDimensions:
    """Clear the screen if it is of another size than `before`, and its size now.

    The terminal has wrapped the drawing anew, so the number of lines to erase is not known.
    """
    if console.size != before:
        drawing.stop()
        console.clear()
        drawing.start()
    return console.size
