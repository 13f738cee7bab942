"""Shows how a stack starts: a live table on a terminal, else a line for each process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table

from autellix.client.child import Child
from autellix.client.stack import Stack

REFRESH_S = 0.1
BAR_COLUMNS = 20

Painter = Callable[[Sequence[Child]], None]


@asynccontextmanager
async def started(stack: Stack, console: Console) -> AsyncIterator[Stack]:
    """Enter `stack`, showing how it starts, and leave it in the end.

    Raises:
        StackError: when it does not start.
    """
    async with AsyncExitStack() as life:
        watching = asyncio.create_task(_watch(stack, console))
        try:
            await life.enter_async_context(stack)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        yield stack


async def _watch(stack: Stack, console: Console) -> None:
    """Paint until cancelled, and then once more."""
    with _live(console) if console.is_terminal else _plain(console) as paint:
        try:
            while True:
                paint(stack.children)
                await asyncio.sleep(REFRESH_S)
        finally:
            paint(stack.children)


@contextmanager
def _live(console: Console) -> Iterator[Painter]:
    """Return a painter of a table that changes in place; it starts no thread, since the stack forks."""
    spinner = Spinner("dots")

    def table(children: Sequence[Child]) -> Table:
        grid = Table.grid(padding=(0, 1))
        for child in children:
            ready = child.readiness.event.is_set()
            grid.add_row("[green]✓" if ready else spinner, child.name, f"{child.readiness.seconds:.1f} s")
        done = sum(child.readiness.event.is_set() for child in children)
        grid.add_row("", ProgressBar(total=max(1, len(children)), completed=done, width=BAR_COLUMNS))
        return grid

    with Live(console=console, auto_refresh=False) as live:
        yield lambda children: live.update(table(children), refresh=True)


@contextmanager
def _plain(console: Console) -> Iterator[Painter]:
    """Return a painter that prints a line once a process is ready."""
    told: set[str] = set()

    def tell(children: Sequence[Child]) -> None:
        for child in children:
            if child.readiness.event.is_set() and child.name not in told:
                told.add(child.name)
                console.print(f"{child.name} is ready after {child.readiness.seconds:.1f} s", highlight=False)

    yield tell
