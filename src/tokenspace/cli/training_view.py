"""Training as a terminal shows it: a bar while it lasts, the loss curve after it."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from tokenspace.cli.picture import screen
from tokenspace.plots import LossCurve
from tokenspace.train import Progress as Event


class Bar:
    """A progress bar on stderr: share done, tokens/s, loss, time left. Silent where stderr is no terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("reading", total=1.0, rate="")
        self._events: list[Event] = []

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def note(self, message: str) -> None:
        """A remark, above the bar where there is one."""
        self._bar.console.print(message, markup=False, highlight=False, soft_wrap=True)

    def draw_curve(self) -> None:
        """The loss over the whole run, where there is a terminal and training was long enough to tell."""
        if len(self._events) >= 2 and not self._bar.disable:
            screen(stderr=True).print(LossCurve.of(self._events))

    def show(self, event: Event) -> None:
        self._events.append(event)
        minutes, seconds = divmod(round(event.eta_seconds), 60)
        self._bar.update(
            self._task,
            completed=event.fraction,
            description=f"epoch {event.epoch}/{event.epochs}",
            rate=f"{event.tokens_per_second:,.0f} tokens/s  loss {event.loss:.4f}  "
            f"{minutes}:{seconds:02} left",
        )
