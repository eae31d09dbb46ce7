"""Which processor a world runs on: one, while there is only one thread of control inside.

A trapped call is a hand-over: the caller sleeps while the supervisor works, and the reverse. The scheduler, not
knowing, wakes whichever of the two on the idle processor, and waking a sleeping processor costs several times what the
answer does (in a virtual machine most of all). While a world has a single process with a single thread, both are
therefore kept on the same processor; with the first thread or a second process everything may run everywhere again. A
candidate does not notice: ``sched_getaffinity`` is answered with the mask it would have.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import _linux as linux

if TYPE_CHECKING:
    from .calls import Call
    from .tasks import Tasks

_WAIT_SHARE = 0.3
"""When a pinned caller waits for its processor more than this part of the time, another program wants it: let go."""

_YIELD_SECONDS = 1.0
"""Then another processor is tried: one busy moment must not cost a long command its place for good."""


class Placement:
    """Keeps the supervisor and a lone caller together. ``slot`` spreads worlds over the processors; ``pin`` false:
    nothing is kept anywhere."""

    def __init__(self, slot: int, *, pin: bool = True) -> None:
        self.all = os.sched_getaffinity(0)
        self._order = sorted(self.all)
        self._slot = slot
        self._possible = pin and len(self._order) > 1
        self._allowed = self._possible
        self._yielded_until = 0.0
        self.pinned = False
        self._seen: dict[int, tuple[float, int]] = {}

    def launch(self, live: int) -> set[int]:
        """The processors a new command may start on, ``live`` processes running already."""
        if not live:  # of what an earlier command did nothing is left
            self._allowed = self._possible
        if not self._allowed or live:
            self._release_self()
            return self.all
        self._yielded_until = 0.0
        self.pinned = True
        os.sched_setaffinity(0, self._cpu)
        return self._cpu

    @property
    def _cpu(self) -> set[int]:
        return {self._order[self._slot % len(self._order)]}

    def more(self, tasks: Tasks, thread: bool) -> None:
        """A thread or a process is about to be made."""
        if thread:
            self._allowed = False
        if self.pinned:
            self.release(tasks)

    def fewer(self, tasks: Tasks) -> None:
        """A process ended, or a busy processor was left: a single process has the supervisor to itself again."""
        if self.pinned or not self._allowed or self._yielded_until or len(tasks.processes) != 1:
            return
        (process,) = tasks.processes.values()
        try:
            os.sched_setaffinity(process.pid, self._cpu)
            os.sched_setaffinity(0, self._cpu)
        except OSError:
            return
        self.pinned = True

    def release(self, tasks: Tasks) -> None:
        """Everything may run everywhere."""
        self._release_self()
        for process in tasks.processes.values():
            try:
                os.sched_setaffinity(process.pid, self.all)
            except OSError:
                continue  # gone

    def _release_self(self) -> None:
        if self.pinned:
            self.pinned = False
            os.sched_setaffinity(0, self.all)

    def check(self, tasks: Tasks, now: float) -> None:
        """Called a few times a second: give way when the processor is wanted by others."""
        if not self.pinned:
            if self._yielded_until and now >= self._yielded_until:
                self._yielded_until = 0.0
                self.fewer(tasks)
            return
        for pid in tasks.processes:
            try:
                with open(f"{pid}/schedstat", "rb") as f:
                    waited = int(f.read().split()[1])
            except (OSError, IndexError, ValueError):
                continue
            before = self._seen.get(pid)
            self._seen = {pid: (now, waited)}
            if before is not None and waited - before[1] > _WAIT_SHARE * (now - before[0]) * 1e9:
                self._slot += 1
                self._yielded_until = now + _YIELD_SECONDS
                self.release(tasks)
                return

    def handle(self, call: Call) -> None:
        """sched_getaffinity, sched_setaffinity."""
        if call.name == "sched_setaffinity":
            self._allowed = False
            self.pinned = False
            os.sched_setaffinity(0, self.all)
            return call.proceed()
        if not self.pinned:
            return call.proceed()
        words = max(self.all) // 64 + 1
        size = min(call.args[1] & 0xFFFFFFFF, 8 * words)
        mask = sum(1 << cpu for cpu in self.all).to_bytes(8 * words, "little")[:size]
        linux.write_memory(call.tid, call.args[2], mask)
        return call.value(size)
