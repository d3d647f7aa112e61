"""Waiting for what other threads, processes and pages do: until it is so, and never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import Any, TypeVar

WAIT_S = 90.0  # for a machine several times slower than a quiet one; only a failing test waits this long

T = TypeVar("T")


def until(read: Callable[[], T], what: str, *, rest: Callable[[float], object] = time.sleep) -> T:
    """The first true value of ``read()``.

    Args:
        read: Asked every 10 ms.
        what: What is waited for, as the failure's sentence tells it.
        rest: Sleeps for some seconds.

    Raises:
        AssertionError: ``WAIT_S`` seconds have gone by.
    """
    end = time.monotonic() + WAIT_S
    while not (value := read()):
        assert time.monotonic() < end, f"waited {WAIT_S:.0f} s in vain: {what}"
        rest(0.01)
    return value


def until_over(read: Callable[[], Any], what: str) -> Any:
    """Waits until what is read, with a ``state``, neither waits nor runs, and returns it."""
    return until(lambda: (now := read())["state"] not in ("queued", "running") and now, f"{what} is over")


def children(pid: int | None = None) -> list[Any]:
    """The processes (psutil's) that one, or this one, has started, and theirs."""
    import psutil

    return psutil.Process(pid).children(recursive=True)


def alive(process: Any) -> bool:
    """True while a process, psutil's or by its number, goes on."""
    import psutil

    try:
        return (psutil.Process(process) if isinstance(process, int) else process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until_ended(before: Container[Any], what: str) -> None:
    """Waits until of ``children`` only those of ``before`` run."""
    until(lambda: not any(process not in before and alive(process) for process in children()), what)


def expect(locator: Any) -> Any:
    """Playwright's ``expect`` (imported here: without Playwright the browser tests are skipped)."""
    from playwright.sync_api import expect as assertions

    return assertions(locator)


def becomes(page: Any, read: Callable[[], Any], expected: Any) -> None:
    """Asserts that ``read()`` comes to be ``expected`` while a browser's page lives on (``expect`` for any value)."""
    end = time.monotonic() + WAIT_S
    while (value := read()) != expected and time.monotonic() < end:
        page.wait_for_timeout(25)
    assert value == expected


def idle(page: Any) -> None:
    """Waits until the page has done what it was about to do: its second idle moment from now."""
    page.evaluate("new Promise((idle) => requestIdleCallback(() => requestIdleCallback(idle)))")


def steady(page: Any, locator: Any) -> dict[str, float]:
    """The box of an element that no longer moves: the same in two looks, 100 ms apart."""
    boxes = [{}, locator.bounding_box() or {}]
    end = time.monotonic() + WAIT_S
    while (boxes[-1] != boxes[-2] or not boxes[-1]) and time.monotonic() < end:
        page.wait_for_timeout(100)
        boxes.append(locator.bounding_box() or {})
    assert boxes[-1] and boxes[-1] == boxes[-2], f"it still moves: {boxes[-2:]}"
    return boxes[-1]


def fits(page: Any, width: int, height: int = 800) -> None:
    """Asserts that the page, at rest in a window of this size, is not wider than it."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(150)  # charts follow the window's size a moment later
    becomes(page, lambda: page.evaluate("[innerWidth, Math.max(innerWidth, document.documentElement.scrollWidth)]"),
            [width, width])  # fmt: skip
