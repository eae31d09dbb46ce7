"""Answers to calls about programs, processes and privileges."""

from __future__ import annotations

import errno
import os
import stat
from hashlib import sha256
from typing import TYPE_CHECKING

from . import _linux as linux
from .calls import AT_FDCWD, Call, signed
from .files import AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW
from .log import text
from .syscalls import ABSENT_NOTIFIED, ROUTING_OPTIONS

if TYPE_CHECKING:
    from ..contract import Rules
    from .supervisor import Supervisor

_HASH_NOW = 1 << 20
_HASH_MAX = 1 << 30
_HASH_TOTAL, _HASH_LATER = 4 << 30, 64
_CACHE_BYTES = 2 << 20
_ARGUMENTS, _ARGUMENT_BYTES = 128, 16 << 10
_PR_SET_DUMPABLE, _PR_SET_MM = 4, 35


class DigestCache:
    """Digests of files by (path, inode, size, mtime, ctime), kept between worlds in a file of the user's cache.

    The change time cannot be set by a program, so an entry never outlives the content it stands for.
    """

    def __init__(self, fd: int = -1) -> None:
        self._fd = fd
        self._known: dict[str, str] = {}
        if fd >= 0:
            size = min(os.fstat(fd).st_size, 1 << 22)
            for line in os.pread(fd, size, 0).decode("utf-8", "replace").splitlines():
                digest, _, key = line.partition(" ")
                if len(digest) == 64:
                    self._known[key] = digest

    @staticmethod
    def key(path: bytes, info: os.stat_result) -> str:
        return f"{info.st_ino} {info.st_size} {info.st_mtime_ns} {info.st_ctime_ns} {path.hex()}"

    def get(self, key: str) -> str | None:
        return self._known.get(key)

    def put(self, key: str, digest: str, *, lasting: bool) -> None:
        """Keep a digest for this world, and for later ones if ``lasting`` (a full file starts anew)."""
        self._known[key] = digest
        if lasting and self._fd >= 0:
            try:
                if os.fstat(self._fd).st_size > _CACHE_BYTES:
                    os.ftruncate(self._fd, 0)
                os.write(self._fd, f"{digest} {key}\n".encode())
            except OSError:
                self._fd = -1


def file_digest(fd: int, limit: int = _HASH_MAX) -> str:
    """SHA-256 of an open file's content, at most ``limit`` bytes."""
    digest = sha256()
    offset = 0
    while offset < limit:
        chunk = os.pread(fd, 1 << 20, offset)
        if not chunk:
            break
        digest.update(chunk)
        offset += len(chunk)
    return digest.hexdigest()


class Programs:
    """Handlers of exec, clone, signals, and of calls that are refused."""

    def __init__(self, supervisor: Supervisor, rules: Rules | None, cache: DigestCache) -> None:
        self._s = supervisor
        self._log = supervisor.log
        self._memory = supervisor.memory
        self._rules = rules
        self._cache = cache
        self._later: dict[str, tuple[int, bytes, os.stat_result]] = {}
        self._budget = supervisor.limits.processes
        self._launched: set[int] = set()
        self._launchers: set[int] = set()
        self._hashed = 0

    def exec(self, call: Call) -> None:
        """execve, execveat: record the program that was named, then let the kernel run it.

        The kernel's answer cannot be given for it, so the program that really runs is read from
        ``/proc/PID/exe`` at the process's next call and recorded as a ``proc`` event.
        """
        a, process = call.args, call.process
        if call.name == "execveat":
            dirfd, pointer, argv_at, flags = signed(a[0]), a[1], a[2], a[4]
        else:
            dirfd, pointer, argv_at, flags = AT_FDCWD, a[0], a[1], 0
        path = self._memory.string(call.tid, pointer)
        argv = self._arguments(call, argv_at)
        fields = f',"s":"{call.name}","n":{text(path)},"argv":[{",".join(map(text, argv))}]'
        try:
            if not path and flags & AT_EMPTY_PATH:
                fd = self._s.files.base(call, dirfd)
            else:
                fd = self._s.files.open_object(call, dirfd, path, follow=not flags & AT_SYMLINK_NOFOLLOW)
        except OSError as e:
            number = e.errno or errno.EIO
            self._log.add("exec", process.pid, call.command, f'{fields},"r":"{errno.errorcode.get(number, number)}"')
            return call.fail(number)
        try:
            real, info = self._s.files.name_of(fd), os.fstat(fd)
            if real != path:
                fields += f',"x":{text(real)}'
            fields += f',"v":[{info.st_dev},{info.st_ino}]'
            if info.st_nlink == 0 or real.startswith(b"/memfd:"):
                fields += ',"fileless":true'
            first = call.command not in self._launched
            if first:
                fields += ',"main":true'
            # `#!/usr/bin/env python3`: the launcher of the command hands over to what it was asked to run.
            handed_over = process.pid in self._launchers and os.path.basename(process.exe) == "env"
            allowed = first or handed_over or self._rules is None
            denied = not allowed and not self._may_run(path, real, fd, info)
            digest = self._digest(fd, real, info)
            if digest:
                fields += f',"h256":"{digest}"'
        finally:
            os.close(fd)
        if denied:
            self._log.add("exec", process.pid, call.command, fields + ',"r":"denied"')
            return call.fail(errno.EACCES)
        if first:
            self._launchers.add(process.pid)
        self._launched.add(call.command)
        self._log.add("exec", process.pid, call.command, fields + ',"r":"passed"')
        process.unchecked = True
        process.known = False
        process.forget_memory()
        return call.proceed()

    def _may_run(self, path: bytes, real: bytes, fd: int, info: os.stat_result) -> bool:
        digest = self._digest(fd, real, info, now=True) or ""
        assert self._rules is not None
        original = os.fsdecode(real).startswith(tuple(self._s.runtime_roots))
        return self._rules.programs.rule(os.fsdecode(path), os.fsdecode(real), digest, original=original) is not None

    def _digest(self, fd: int, real: bytes, info: os.stat_result, *, now: bool = False) -> str | None:
        """The digest if known or cheap; else it is made when the world is idle (``finish``)."""
        if not stat.S_ISREG(info.st_mode):
            return None
        key = self._cache.key(real, info)
        known = self._cache.get(key)
        if known or key in self._later:
            return known
        try:
            # Without O_NONBLOCK a lease on the file would hold the supervisor up.
            readable = os.open(f"self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        self._hashed += info.st_size
        if self._hashed > _HASH_TOTAL or len(self._later) >= _HASH_LATER:
            os.close(readable)
            self._s.limit_once("hash", "more bytes of programs than are hashed in one world")
            return None
        if now or info.st_size <= _HASH_NOW:
            try:
                digest = file_digest(readable)
            finally:
                os.close(readable)
            self._remember(key, digest, real, info)
            return digest
        self._later[key] = (readable, real, info)
        return None

    def _remember(self, key: str, digest: str, real: bytes, info: os.stat_result) -> None:
        """Keep a digest for other worlds only when the file is the runtime's and older than this world."""
        lasting = os.fsdecode(real).startswith(tuple(r.rstrip("/") + "/" for r in self._s.runtime_roots))
        self._cache.put(key, digest, lasting=lasting and info.st_ctime < self._s.spec["started"] - 1)

    def finish(self) -> None:
        """Hash the large programs that ran."""
        for key, (fd, real, info) in self._later.items():
            try:
                digest = file_digest(fd)
            finally:
                os.close(fd)
            self._remember(key, digest, real, info)
            self._log.add("hash", 0, 0, f',"v":[{info.st_dev},{info.st_ino}],"x":{text(real)},"h256":"{digest}"')
        self._later.clear()

    def _arguments(self, call: Call, address: int) -> list[bytes]:
        size = 8 if call.abi == linux.ARCH else 4
        if not address:
            return []
        room = _ARGUMENT_BYTES
        pointers = self._memory.read(call.tid, address, size * (_ARGUMENTS + 1))
        out = []
        for offset in range(0, len(pointers) - size + 1, size):
            pointer = int.from_bytes(pointers[offset : offset + size], "little")
            if not pointer:
                break
            if room <= 0:
                out.append(b"...")
                break
            try:
                out.append(self._memory.string(call.tid, pointer, 4096))
                room -= len(out[-1])
            except OSError as e:
                if e.errno != errno.ENAMETOOLONG:
                    break
                out.append(self._memory.read(call.tid, pointer, 4096) + b"...")
        return out

    def clone(self, call: Call) -> None:
        """fork, vfork, clone: counted and bounded; new namespaces are refused."""
        flags = call.args[0] if call.name == "clone" else 0
        if flags & linux.CLONE_NEW_ANY & ~0xFF:
            return self.refuse(call, f"clone flags {flags:#x}")
        if flags & linux.CLONE_THREAD and not flags & linux.CLONE_FILES:
            return self.refuse(call, "a thread with descriptors of its own")
        if flags & linux.CLONE_UNTRACED:
            self._log.add("escape", call.process.pid, call.command, ',"s":"clone","d":"CLONE_UNTRACED","r":"passed"')
        self._budget -= 1
        if self._budget <= 0 and not self._recount():
            self._s.limit_once("processes", f"more than {self._s.limits.processes} tasks at once", call.process.pid)
            return call.fail(errno.EAGAIN)
        thread = bool(flags & linux.CLONE_THREAD)
        self._s.placement.more(self._s.tasks, thread)
        self._s.tasks.counted(thread)
        return call.proceed()

    def _recount(self) -> bool:
        """Count live tasks; the next count is due when as many again as are free may have been made."""
        live = 0
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    live += os.stat(f"/proc/{entry.name}/task").st_nlink - 2
                except OSError:
                    continue
        self._budget = self._s.limits.processes - live
        return self._budget > 0

    def signal(self, call: Call) -> None:
        """kill and its relatives: those that aim beyond the sender's own family are recorded."""
        name, a, process = call.name, call.args, call.process
        if name == "pidfd_send_signal":
            target, sig = self._pidfd_target(call, signed(a[0])), a[1]
        elif name in ("tgkill", "rt_tgsigqueueinfo"):
            target, sig = signed(a[0]), a[2]
        else:
            target, sig = signed(a[0]), a[1]
        own = target in (0, process.ns, -process.ns)  # 0: the sender's own process group
        if sig and not own and not (target > 0 and self._descends(target, process.ns)):
            fields = f',"s":"{name}","to":{target},"sig":{sig & 0xFF},"r":"passed"'
            self._log.add("signal", process.pid, call.command, fields)
        return call.proceed()

    def _pidfd_target(self, call: Call, fd: int) -> int:
        try:
            with open(f"{call.tid}/fdinfo/{fd}", "rb") as f:
                for line in f:
                    if line.startswith(b"NSpid:"):
                        return int(line.split()[-1])
        except (OSError, ValueError):
            pass
        return 0

    @staticmethod
    def _descends(pid: int, ancestor: int) -> bool:
        """True when ``pid`` is a child, grandchild … of ``ancestor`` (ids inside), or a thread of its."""
        for _ in range(32):
            if pid == ancestor:
                return True
            if pid <= 1:
                return False
            try:
                with open(f"/proc/{pid}/stat", "rb") as f:
                    pid = int(f.read(512).rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                return True  # gone: a signal to nobody
        return False

    def control(self, call: Call) -> None:
        """prctl, ioctl and unshare with arguments that matter."""
        name, a = call.name, call.args
        pid = call.process.pid
        if name == "unshare":
            if a[0] & (linux.CLONE_NEW_ANY | linux.CLONE_FILES):
                return self.refuse(call, f"flags {a[0]:#x}")
            return call.proceed()
        if name == "setsockopt":
            level, option = signed(a[1]), signed(a[2])
            if (level == 41 and option in ROUTING_OPTIONS) or (level == 0 and option == 4):
                return self.refuse(call, f"level {level} option {option}: a route of the packet's own")
            return call.proceed()
        if name == "close_range":
            if a[2] & 2:  # CLOSE_RANGE_UNSHARE, like unshare(CLONE_FILES): the supervisor looks at one table a process
                return self.refuse(call, "CLOSE_RANGE_UNSHARE")
            return call.proceed()
        if name == "seccomp":
            if call.abi == linux.ARCH or a[1] & linux.SECCOMP_FILTER_FLAG_NEW_LISTENER:
                return self.refuse(call, "a listener of its own")
            return call.proceed()
        if name == "ioctl":
            if a[1] & 0xFFFFFFFF in (0x40086602, 0x401C5820):
                try:
                    fd = self._s.files.base(call, signed(a[0]))
                    real = self._s.files.name_of(fd)
                    os.close(fd)
                except OSError:
                    real = b""
                self._log.add("meta", pid, call.command, f',"s":"ioctl","n":{text(real)},"d":"flags","r":"passed"')
                return call.proceed()
            if a[1] & 0xFFFFFFFF in (0x5412, 0x541C):
                return self.refuse(call, "terminal input injection")
            return call.proceed()
        option = a[0] & 0xFFFFFFFF
        if option == _PR_SET_DUMPABLE:
            # Not carried out: an undumpable caller could blind a supervisor without privileges.
            self._log.add("probe", pid, call.command, f',"s":"prctl","n":"PR_SET_DUMPABLE={a[1]}"')
            return call.value(0)
        if option == _PR_SET_MM:
            return self.refuse(call, "PR_SET_MM")
        return call.proceed()

    def umask(self, call: Call) -> None:
        """umask: files that are created for callers must have the mode they would get."""
        self._s.tasks.umask_changes()
        return call.proceed()

    def memory_file(self, call: Call) -> None:
        """memfd_create: noted, since a program may be run from it."""
        name = self._memory.string(call.tid, call.args[0], 256)
        self._log.add("probe", call.process.pid, call.command, f',"s":"memfd_create","n":{text(b"memfd:" + name)}')
        return call.proceed()

    def refuse(self, call: Call, detail: str = "") -> None:
        """A call with no place in a task: recorded, then EPERM (ENOSYS for features that programs probe for)."""
        name = call.name
        fields = f',"s":"{name or call.number}"' if name else f',"s":"unknown","d":"number {call.number}"'
        if call.abi != linux.ARCH:
            fields += f',"abi":"{call.abi}"'
        extra = detail or self._describe(call)
        if extra and name:
            fields += f',"d":{text(extra)}'
        self._log.add("escape", call.process.pid, call.command, fields + ',"r":"denied"')
        return call.fail(errno.ENOSYS if not name or name in ABSENT_NOTIFIED else errno.EPERM)

    def _describe(self, call: Call) -> str:
        name, a = call.name, call.args
        if name in ("mount", "umount2", "chroot", "pivot_root"):
            try:
                return os.fsdecode(self._memory.string(call.tid, a[1 if name == "mount" else 0], 512))
            except OSError:
                return ""
        if name in ("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "setns", "bpf"):
            return f"{signed(a[0])}, {signed(a[1])}"
        return ""


def rusage_fields(usage: tuple[float, ...]) -> dict[str, object]:
    """The ``rusage`` object of a ``status`` event from wait4's resource usage."""
    return {"utime": round(usage[0], 4), "stime": round(usage[1], 4), "maxrss_kib": int(usage[2])}
