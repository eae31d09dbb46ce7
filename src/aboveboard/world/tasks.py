"""Who is calling: processes of a world as the supervisor knows them.

A notification names a thread. The first time one is seen its process, parent and program are read from ``/proc`` and
recorded; a pidfd per process tells when it is gone, so that a recycled id is not taken for the old process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import _linux as linux
from .log import Log, text

if TYPE_CHECKING:
    from collections.abc import Callable


class Process:
    """One process of a world. ``ns`` is its id inside, ``exe`` what it runs (``unchecked`` after an exec)."""

    __slots__ = (
        "command", "exe", "exe_id", "known", "memory", "ns", "parent", "pid", "pidfd", "threads", "umask", "unchecked"
    )  # fmt: skip

    def __init__(self, pid: int, parent: int, ns: int, command: int) -> None:
        self.pid = pid
        self.parent = parent
        self.ns = ns
        self.command = command
        self.exe = ""
        self.exe_id = (0, 0)
        self.pidfd = -1
        self.unchecked = True
        self.threads: set[int] = {pid}
        self.known = False
        self.memory = -1
        self.umask = -1

    def forget_memory(self) -> None:
        """An exec replaces the address space: a descriptor of the old one reads nothing of the new."""
        if self.memory >= 0:
            os.close(self.memory)
            self.memory = -1


class Tasks:
    """The table of live threads and processes of one world. The current directory must be the host's ``/proc``."""

    def __init__(
        self, log: Log, watch: Callable[[int, Callable[[], None]], None], unwatch: Callable[[int], None]
    ) -> None:
        self._log = log
        self._watch = watch
        self._unwatch = unwatch
        self.by_thread: dict[int, Process] = {}
        self.processes: dict[int, Process] = {}
        self.on_gone: Callable[[Tasks], None] | None = None
        self.clones = 0
        self.thread_clones = 0

    def status(self, tid: int) -> dict[str, str]:
        """Fields of ``/proc/TID/status`` (proc_pid_status(5)). Raises OSError when the task is gone."""
        fd = os.open(f"{tid}/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, 4096)
        finally:
            os.close(fd)
        fields = {}
        for line in data.decode("utf-8", "surrogateescape").split("\n"):
            key, _, value = line.partition(":\t")
            fields[key] = value.strip()
        return fields

    def of(self, tid: int, command: int) -> Process:
        """The process of thread ``tid``; recorded at first sight. Raises OSError when it is gone already."""
        process = self.by_thread.get(tid)
        if process is None:
            process = self._first_sight(tid, command)
        if process.unchecked:
            self._check_program(process)
        return process

    def _first_sight(self, tid: int, command: int) -> Process:
        fields = self.status(tid)
        pid = int(fields.get("Tgid", tid))
        process = self.processes.get(pid)
        if process is None:
            ns = int(fields.get("NSpid", "0").split()[-1])
            process = Process(pid, int(fields.get("PPid", 0)), ns, command)
            try:
                process.pidfd = linux.pidfd_open(pid)
                self._watch(process.pidfd, lambda: self.gone(pid))
            except OSError:
                pass
            self.processes[pid] = process
        process.threads.add(tid)
        self.by_thread[tid] = process
        return process

    def _check_program(self, process: Process) -> None:
        """Record what the process really runs, as the kernel has it (an exec's path can be changed while it is
        checked; the program that runs cannot)."""
        process.unchecked = False
        try:
            exe = os.readlink(f"{process.pid}/exe")
            info = os.stat(f"{process.pid}/exe")
        except OSError:
            exe, info = "", None
        ident = (info.st_dev, info.st_ino) if info else (0, 0)
        if process.known and exe == process.exe and ident == process.exe_id:
            return
        process.exe, process.exe_id, process.known = exe, ident, True
        self._log.add(
            "proc",
            process.pid,
            process.command,
            f',"pp":{process.parent},"ns":{process.ns},"x":{text(exe)}',
        )

    def umask(self, tid: int) -> int:
        """The caller's file mode creation mask, read once until somebody changes theirs."""
        process = self.by_thread.get(tid)
        if process is not None and process.umask >= 0:
            return process.umask
        try:
            mask = int(self.status(tid).get("Umask", "022"), 8)
        except (OSError, ValueError):
            return 0o022
        if process is not None:
            process.umask = mask
        return mask

    def umask_changes(self) -> None:
        """Someone is about to call umask(2); processes can share one, so all are read anew."""
        for process in self.processes.values():
            process.umask = -1

    def ns_of(self, tid: int) -> int:
        """The thread's id inside the world."""
        return int(self.status(tid).get("NSpid", "0").split()[-1])

    def gone(self, pid: int) -> None:
        """Forget a process that ended."""
        process = self.processes.pop(pid, None)
        if process is None:
            return
        for tid in process.threads:
            if self.by_thread.get(tid) is process:
                del self.by_thread[tid]
        process.forget_memory()
        if process.pidfd >= 0:
            self._unwatch(process.pidfd)
            os.close(process.pidfd)
        self._log.add("gone", pid, process.command)
        if self.on_gone is not None:
            self.on_gone(self)

    def counted(self, thread: bool) -> None:
        """Count a clone. After many, thread ids may have been recycled: read the threads anew."""
        self.clones += 1
        self.thread_clones += thread
        if self.clones % 8192 == 0:
            self.by_thread = dict(self.processes)
            for process in self.processes.values():
                process.threads = {process.pid}
