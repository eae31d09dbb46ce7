"""A control group for one world, where the machine lets us make one (cgroup v2, the kernel's ``cgroup-v2.rst``).

It adds bounds that no other mechanism gives in sum: tasks and memory of everything inside, and a kill that cannot be
outrun by forking. Without one the supervisor counts tasks and resident memory itself.
"""

from __future__ import annotations

import os
import secrets
import time


def _own_group() -> str | None:
    """The directory of the control group this process is in, on the unified hierarchy."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as f:
            path = next(line[3:].strip() for line in f if line.startswith("0::"))
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
            point = next(line.split()[4] for line in f if " - cgroup2 " in line)
    except (OSError, StopIteration):
        return None
    return os.path.normpath(point + path)


def _sweep(own: str) -> None:
    """Remove what supervisors that were killed left behind: the kernel removes only groups without processes."""
    try:
        old = [e.path for e in os.scandir(own) if e.name.startswith("world-") and e.stat().st_mtime < time.time() - 30]
    except OSError:
        return
    for path in old:
        try:
            os.rmdir(path)
        except OSError:
            continue


class Group:
    """One world's group. ``limits`` says which bounds the kernel took."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.limits: list[str] = []
        self._parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = os.path.basename(path)
        # Opened now: the kernel checks who opened the file, and the supervisor will have left its rights behind.
        self._members = os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        try:
            self._kill = os.open(f"{path}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self._kill = -1

    @classmethod
    def create(cls, processes: int, memory_bytes: int) -> Group | None:
        """Make a bounded group below our own; None where that is not possible."""
        own = _own_group()
        if own is None:
            return None
        _sweep(own)
        path = f"{own}/world-{secrets.token_hex(6)}"
        try:
            os.mkdir(path)
        except OSError:
            return None
        try:
            group = cls(path)
        except OSError:
            os.rmdir(path)
            return None
        for name, value in (
            ("pids.max", processes + 8),
            ("memory.max", memory_bytes),
            ("memory.swap.max", 0),
            ("memory.oom.group", 1),
        ):
            try:
                with open(f"{path}/{name}", "w", encoding="ascii") as f:
                    f.write(str(value))
                group.limits.append(name)
            except OSError:
                continue  # the controller is not delegated to us
        if not group.limits:
            # Moving a process into a group costs as much as the rest of a world; without bounds it is not worth it.
            group.remove()
            return None
        return group

    def add(self, pid: int) -> bool:
        """Move a process (and thereby all it will fork) into the group."""
        try:
            os.write(self._members, str(pid).encode())
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """Kill everything in the group (Linux 5.14)."""
        if self._kill >= 0:
            try:
                os.write(self._kill, b"1")
            except OSError:
                pass

    def remove(self) -> None:
        """Remove the empty group."""
        try:
            os.rmdir(self._name, dir_fd=self._parent)
        except OSError:
            pass
        for fd in (self._parent, self._members, self._kill):
            if fd >= 0:
                os.close(fd)
