"""A screen of some width, on which nothing is cut."""

from rich.console import Console


def printed(show, *arguments, width=80):
    """What `show` prints on it, such as `Console.print` a table."""
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        show(console, *arguments)
    assert "…" not in capture.get()
    return capture.get()
