"""Reading in a thread while the screens go on."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


async def in_thread(read: Callable[[], T]) -> T:
    """The result of `read`.  Unlike with `asyncio.to_thread`, the end of the program does not wait
    for the thread, since a shared file system may stall."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on only the thread settles it

    def run() -> None:
        try:
            found = read()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(found)

    Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)
