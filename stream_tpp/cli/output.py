"""What a command shows: its result on stdout, as text or as one JSON document, and its progress on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click
import orjson

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout, nothing else.")


def show(document: Mapping[str, object], text: str, as_json: bool) -> None:
    """Prints the document as one line of JSON (NumPy arrays as lists, NaN as null), or the text for a person."""
    click.echo(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY) if as_json else text)


@contextmanager
def progress(label: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, and the function that sets how much is done; silent where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(label, total=total)
        due = 0.0

        def done(amount: float) -> None:
            nonlocal due
            # A call may come with every event; the bar needs ten a second.
            if (now := time.monotonic()) >= due:
                due = now + 0.1
                bar.update(task, completed=amount)

        yield done
