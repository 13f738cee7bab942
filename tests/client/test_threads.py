"""The threads of a program: who waited for whom."""

import asyncio
import gc

from autellix.client.threads import PARENTS_MAX, Thread, Threads
from autellix.schemas.ids import CallId, ThreadId


def thread(name: str, *after: str, done: bool = True) -> Thread:
    """Return a thread that has made the calls `after`."""
    return Thread(ThreadId(name), lambda: done, tuple(CallId(call) for call in after))


def test_first_call_has_no_parents() -> None:
    """A thread that has made no call and has no children starts from nothing."""
    assert thread("main").parents() == ()


def test_call_comes_after_the_previous_one() -> None:
    """Only the previous call of the own thread counts, not those before it."""
    main = thread("main")

    main.made(CallId("a"))
    main.made(CallId("b"))

    assert main.parents() == ("b",)


def test_finished_children_are_joined_once() -> None:
    """A finished child's last call is a parent of the next call only, and without repetition."""
    main = thread("main", "a")
    main.children = [thread("t2", "b"), thread("t3", "a")]

    assert main.parents() == ("a", "b")
    assert main.children == []


def test_running_child_is_not_a_parent() -> None:
    """What still runs was not waited for."""
    main = thread("main", "a")
    main.children = [thread("t2", "b", done=False)]

    assert main.parents() == ("a",)


def test_orphans_are_adopted() -> None:
    """What a finished child left running is joined by its grandparent when it is done."""
    running, main = True, thread("main")
    orphan = Thread(ThreadId("t3"), lambda: not running, (CallId("c"),))
    child = thread("t2", "b")
    child.children = [orphan]
    main.children = [child]

    assert main.parents() == ("b",)

    running = False

    assert main.parents() == ("b", "c")


def test_parents_are_bounded() -> None:
    """Of more parents than a call may name, the last count."""
    main = thread("main")
    main.children = [thread(f"t{number}", f"c{number}") for number in range(PARENTS_MAX + 1)]

    assert len(main.parents()) == PARENTS_MAX
    assert "c0" not in main.parents()


class Calls:
    """Makes pretended calls and notes thread and parents of each."""

    def __init__(self) -> None:
        self.threads = Threads()
        self.made: dict[str, tuple[str, tuple[str, ...]]] = {}

    async def call(self, name: str) -> str:
        """Make a call."""
        mine = self.threads.current()
        self.made[name] = mine.id, mine.parents()
        self.threads.made(mine, CallId(name))
        await asyncio.sleep(0)
        return name


async def test_tasks_are_threads() -> None:
    """Calls of one task share a thread; each further task has its own."""
    calls = Calls()

    await calls.call("a")
    await asyncio.create_task(calls.call("b"))
    await calls.call("c")

    assert calls.made == {"a": ("main", ()), "b": ("t2", ("a",)), "c": ("main", ("a", "b"))}


async def test_gather_is_map_reduce() -> None:
    """Parallel calls have the call before them as parent, and are the parents of the call behind them."""
    calls = Calls()

    await calls.call("split")
    await asyncio.gather(*(calls.call(f"map{number}") for number in range(3)))
    await calls.call("reduce")

    assert calls.made["reduce"] == ("main", ("split", "map0", "map1", "map2"))
    assert {("split",)} == {calls.made[f"map{number}"][1] for number in range(3)}


async def test_parent_is_what_the_spawner_had_called_when_it_spawned() -> None:
    """A task that starts late still comes after the call that was the last when it was made."""
    calls = Calls()
    start = asyncio.Event()

    async def late() -> None:
        await start.wait()
        await calls.call("late")

    await calls.call("before")
    task = asyncio.create_task(late())
    await calls.call("after")
    start.set()
    await task

    assert calls.made["late"] == ("t2", ("before",))


async def test_task_between_makes_no_thread() -> None:
    """A task that makes no calls of its own passes its place on to the tasks it spawns."""
    calls = Calls()

    async def group() -> None:
        await asyncio.gather(calls.call("b"), calls.call("c"))

    await calls.call("a")
    await asyncio.create_task(group())
    await calls.call("d")

    assert calls.made["d"] == ("main", ("a", "b", "c"))


async def test_programs_do_not_mix() -> None:
    """Two programs in one task have their own threads and parents."""
    first, second = Calls(), Calls()

    await first.call("a")
    await second.call("b")
    await asyncio.gather(first.call("c"), second.call("d"))

    assert first.made == {"a": ("main", ()), "c": ("t2", ("a",))}
    assert second.made == {"b": ("main", ()), "d": ("t2", ("b",))}


async def test_foreign_task_is_a_thread_of_main() -> None:
    """A task made before the program opened is a thread that comes after nothing, and is joined by main."""
    work: asyncio.Queue[Calls] = asyncio.Queue()

    async def worker() -> None:
        await (await work.get()).call("b")

    task = asyncio.create_task(worker())
    calls = Calls()
    await calls.call("a")
    work.put_nowait(calls)
    await task
    await calls.call("c")

    assert calls.made == {"a": ("main", ()), "b": ("t2", ()), "c": ("main", ("a", "b"))}


async def test_results_are_not_kept_alive() -> None:
    """A thread does not keep its finished task, so thousands of tasks cost their bookkeeping only."""
    calls = Calls()
    await asyncio.gather(*(calls.call(str(number)) for number in range(100)))
    await asyncio.sleep(0)  # the loop itself keeps what woke the running task
    gc.collect()

    assert len(calls.threads._by_flow) == 1
