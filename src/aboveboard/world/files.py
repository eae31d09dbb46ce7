"""Answers to calls that name files: the supervisor does them itself, on the object it resolved.

The supervisor lives in the world's mount and user namespaces, with the candidate's ids and without capabilities over
files, so the kernel resolves a path for it as it would for the candidate, symbolic links and ``..`` included. Its own
current directory is the *host's* ``/proc`` (a descriptor from before the pivot), through which a caller's
directory, descriptors and status are reached. What the candidate gets is the descriptor the supervisor opened, so there
is no time between check and use (``docs/explanation/process-oracle.md``).
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import struct
from collections.abc import Callable
from ctypes import c_char_p as _c
from dataclasses import dataclass
from fcntl import F_SETFL as _F_SETFL
from fcntl import fcntl as _set_flags
from functools import partial
from typing import TYPE_CHECKING

from . import _linux as linux
from .calls import AT_FDCWD, Call, signed
from .log import text

if TYPE_CHECKING:
    from ..contract import Rules
    from .supervisor import Supervisor

_Action = Callable[[int], None]
_ACCESS = {os.O_RDONLY: "r", os.O_WRONLY: "w", os.O_RDWR: "rw", 3: ""}
O_PATH, O_TMPFILE = os.O_PATH, os.O_TMPFILE
_PASSED_ON = (
    os.O_ACCMODE
    | os.O_CREAT
    | os.O_EXCL
    | os.O_TRUNC
    | os.O_APPEND
    | os.O_DIRECTORY
    | os.O_NOFOLLOW
    | os.O_NOATIME
    | os.O_SYNC
    | os.O_DSYNC
    | os.O_DIRECT
    | O_PATH
    | O_TMPFILE
    | 0o100000  # O_LARGEFILE
)
_WITH_PATH = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BENEATH, _IN_ROOT, _CACHED = 0x08, 0x10, 0x20
_TEE_NONBLOCK = 2
PHASE_PREFIX = b"/run/phase/"
AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = 0x100, 0x200, 0x400, 0x1000
_OWN_PROC_WRITES = frozenset(
    {b"comm", b"oom_score_adj", b"oom_adj", b"coredump_filter", b"timerslack_ns", b"clear_refs"}
)
_OPEN_OF_INIT = frozenset(
    {"task", "1", "stat", "status", "cmdline", "comm", "statm", "cgroup", "mounts", "mountinfo", "loginuid"}
)


def access_letters(flags: int) -> str:
    """The ``a`` field of an ``open`` event for open(2) flags."""
    if flags & O_PATH:
        return "p"
    letters = _ACCESS[flags & os.O_ACCMODE]
    if flags & os.O_CREAT:
        letters += "c"
    if flags & os.O_TRUNC:
        letters += "t"
    if flags & O_TMPFILE == O_TMPFILE:
        return letters + "m"
    if flags & os.O_DIRECTORY:
        letters += "d"
    return letters


def object_type(mode: int) -> str:
    """``dir``, ``chr``, ``fifo``, ``sock``, ``blk``, ``link``, or ``file`` for st_mode."""
    for test, name in (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "dir"),
        (stat.S_ISCHR, "chr"),
        (stat.S_ISFIFO, "fifo"),
        (stat.S_ISSOCK, "sock"),
        (stat.S_ISBLK, "blk"),
        (stat.S_ISLNK, "link"),
    ):
        if test(mode):
            return name
    return "other"


@dataclass
class _Waiting:
    """A caller blocked in open(2) on a FIFO until the other end comes."""

    call: Call
    fd: int
    flags: int
    fields: str


class Files:
    """Handlers of the open, name and metadata families."""

    def __init__(self, supervisor: Supervisor, rules: Rules | None) -> None:
        self._s = supervisor
        self._log = supervisor.log
        self._memory = supervisor.memory
        self._rules = rules
        self._letters: dict[int, str] = {}
        self._fifos: dict[tuple[int, int], list[_Waiting]] = {}
        self._tee: tuple[int, int] | None = None
        self.proc_device = -1
        self._own = os.open("self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _path(self, call: Call, pointer: int) -> bytes:
        """A path from the caller's memory, by a descriptor of it that lives until the caller's next exec."""
        process = call.process
        if process.memory < 0:
            try:
                process.memory = os.open(f"{process.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return self._memory.string(call.tid, pointer)
        try:
            data = os.pread(process.memory, 256, pointer)
        except (OSError, OverflowError):
            return self._memory.string(call.tid, pointer)
        end = data.find(b"\0")
        return data[:end] if end >= 0 else self._memory.string(call.tid, pointer)

    def _exactly(self, call: Call, pointer: int, size: int) -> bytes:
        """A structure from the caller's memory. Raises OSError (EFAULT) when it is not all there."""
        data = self._memory.read(call.tid, pointer, size)
        if len(data) < size:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        return data

    # --- resolving -------------------------------------------------------------------------------------

    def base(self, call: Call, dirfd: int) -> int:
        """An O_PATH descriptor of the directory a relative path starts from. The caller closes it."""
        where = f"{call.tid}/cwd" if dirfd == AT_FDCWD else f"{call.tid}/fd/{dirfd}"
        try:
            return os.open(where, O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def located(self, call: Call, dirfd: int, path: bytes) -> tuple[int | None, bytes]:
        """(directory descriptor or None, path) to use instead of the caller's; ``/proc/self`` becomes the caller."""
        if path[:1] == b"/":
            if path[:6] == b"/proc/":
                path = self._own_proc(call, path)
            return None, path
        if not path:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        base = self.base(call, dirfd)
        if os.fstat(base).st_dev == self.proc_device:
            real = os.readlink(b"self/fd/%d" % base)
            os.close(base)
            return None, self._own_proc(call, real + b"/" + path)
        return base, path

    def _own_proc(self, call: Call, path: bytes) -> bytes:
        """Replace ``self``, ``thread-self`` and the links that lead there: for the supervisor they lead nowhere."""
        parts = [p for p in path.split(b"/") if p and p != b"."]
        ns = call.process.ns
        if len(parts) > 1:
            first = parts[1]
            if first == b"self":
                parts[1] = b"%d" % ns
            elif first == b"thread-self":
                parts[1] = b"%d/task/%d" % (ns, self._s.tasks.ns_of(call.tid))
            elif first in (b"net", b"mounts"):
                parts[1] = b"%d/%s" % (ns, first)
            else:
                return path
        rebuilt = b"/" + b"/".join(parts)
        return rebuilt + b"/" if path.endswith(b"/") else rebuilt

    def _through_links(self, call: Call, base: int | None, path: bytes) -> bytes | None:
        """The path with its symbolic links followed here, if they lead into ``/proc/self``; else None.

        The kernel, resolving for the supervisor, finds nothing behind ``/proc/self``. ``/dev/stdin`` and
        ``/dev/fd`` go there, and any link a candidate makes may.
        """
        current = b"/" if base is None else os.readlink(b"self/fd/%d" % base)
        pending = [p for p in path.split(b"/") if p]
        if path[:1] == b"/":
            current = b"/"
        for _ in range(400):
            if not pending:
                return None
            part = pending.pop(0)
            if part == b".":
                continue
            if part == b"..":
                current = os.path.dirname(current.rstrip(b"/")) or b"/"
                continue
            step = current.rstrip(b"/") + b"/" + part
            if step in (b"/proc/self", b"/proc/thread-self", b"/proc/net", b"/proc/mounts"):
                return self._own_proc(call, b"/".join([step, *pending]))
            try:
                target = os.readlink(step)
            except OSError:
                current = step
                continue
            pending = [p for p in target.split(b"/") if p] + pending
            if target[:1] == b"/":
                current = b"/"
        return None

    def open_object(self, call: Call, dirfd: int, path: bytes, *, follow: bool = True) -> int:
        """An O_PATH descriptor of the object a caller's path names. Raises OSError."""
        base, located = self.located(call, dirfd, path)
        flags = O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        try:
            try:
                return os.open(located, flags, dir_fd=base)
            except FileNotFoundError:
                other = self._through_links(call, base, located)
                if other is None:
                    raise
                return os.open(other, flags)
        finally:
            if base is not None:
                os.close(base)

    def name_of(self, fd: int) -> bytes:
        """The path of an own descriptor, inside the world."""
        return os.readlink(b"%d" % fd, dir_fd=self._own)

    def parent(self, call: Call, dirfd: int, path: bytes) -> tuple[int, bytes, bytes]:
        """(descriptor of the parent directory, last component, resolved path of the entry). The caller closes it."""
        if not path:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        stripped = path.rstrip(b"/")
        slash = path[len(stripped) :]
        head, _, base = stripped.rpartition(b"/")
        if not base:  # the root itself
            return self.open_object(call, AT_FDCWD, b"/"), b"/", b"/"
        directory = head or (b"/" if path[:1] == b"/" else b".")
        fd = self.open_object(call, dirfd, directory)
        real = self.name_of(fd)
        return fd, base + slash[:1], real.rstrip(b"/") + b"/" + base

    # --- the open family ---------------------------------------------------------------------------------

    def open(self, call: Call) -> None:
        """open, openat, openat2, creat."""
        name, a = call.name, call.args
        resolve = 0
        if name == "openat":
            dirfd, pointer, flags, mode = signed(a[0]), a[1], a[2], a[3]
        elif name == "open":
            dirfd, pointer, flags, mode = AT_FDCWD, a[0], a[1], a[2]
        elif name == "creat":
            dirfd, pointer, flags, mode = AT_FDCWD, a[0], os.O_CREAT | os.O_WRONLY | os.O_TRUNC, a[1]
        else:
            size = a[3]
            if size < 24 or size > 4096:
                return call.fail(errno.EINVAL if size < 24 else errno.E2BIG)
            how = self._exactly(call, a[2], size)
            if any(how[24:]):
                return call.fail(errno.E2BIG)
            dirfd, pointer = signed(a[0]), a[1]
            flags, mode, resolve = struct.unpack_from("=QQQ", how)
            problem = self._objection(flags, mode, resolve)
            if problem:
                return call.fail(problem)
        flags &= 0xFFFFFFFF
        if flags & O_PATH:  # the others have no meaning with it (open(2))
            flags &= _WITH_PATH
        path = self._path(call, pointer)
        if path.startswith(PHASE_PREFIX):
            self._s.announce_phase(call.command, path[len(PHASE_PREFIX) :])
            return call.fail(errno.ENOENT)
        letters = self._letters.get(flags)
        if letters is None:
            letters = self._letters[flags] = access_letters(flags)
        fields = f',"s":"{name}"' if call.abi == linux.ARCH else f',"s":"{name}","abi":"{call.abi}"'
        fields += f',"n":{text(path)},"a":"{letters}"'
        base: int | None = None
        if self._fifos:
            self._forget_dead_waiters()
        try:
            if resolve & (_BENEATH | _IN_ROOT):
                base, located = self.base(call, dirfd), path
            else:
                base, located = self.located(call, dirfd, path)
            if flags & os.O_CREAT or flags & O_TMPFILE == O_TMPFILE:
                mode = mode & 0o7777 & ~self._s.tasks.umask(call.tid)
                if flags & os.O_CREAT and not self._exists(base, located):
                    fields += ',"new":true'
            else:
                mode = 0
            if self._rules is not None:
                fd = self._open_decided(call, base, located, flags, mode, fields)
            else:
                fd = self._open_at(call, base, located, flags, mode, resolve)
        except FileNotFoundError:
            self._log.add("open", call.process.pid, call.command, fields + ',"r":"ENOENT"')
            return call.fail(errno.ENOENT)
        except OSError as e:
            return self._open_failed(call, dirfd, path, flags, fields, e)
        finally:
            if base is not None:
                os.close(base)
        if fd < 0:
            return None
        self._deliver(call, fd, path, flags, fields)
        return None

    @staticmethod
    def _exists(base: int | None, path: bytes) -> bool:
        """Is there something behind this path? Nobody else can make it meanwhile: names are made here."""
        try:
            os.stat(path, dir_fd=base)
        except OSError:
            return False
        return True

    def _open_at(self, call: Call, base: int | None, path: bytes, flags: int, mode: int, resolve: int) -> int:
        wanted = flags & _PASSED_ON | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        if flags & O_PATH:
            wanted &= ~(os.O_NONBLOCK | os.O_NOCTTY)
        if resolve:
            return linux.openat2(AT_FDCWD if base is None else base, os.fsdecode(path), wanted, mode, resolve)
        try:
            return os.open(path, wanted, mode, dir_fd=base)
        except FileNotFoundError:
            if not self._has_link(base, path):
                raise
            other = self._through_links(call, base, path)
            if other is None:
                raise
            return os.open(other, wanted, mode)

    def _objection(self, flags: int, mode: int, resolve: int) -> int:
        """What the kernel has against these arguments of openat2, whose rules are stricter than openat's; or 0."""
        if self._rules is not None and resolve & ~_CACHED:
            return errno.ENOSYS  # not decided upon in block mode; programs fall back to openat
        try:
            linux.openat2(-1, "", flags, mode, resolve)
        except OSError as e:
            if e.errno != errno.ENOENT:  # an empty path is found out after everything else
                return e.errno or errno.EINVAL
        return 0

    @staticmethod
    def _has_link(base: int | None, path: bytes) -> bool:
        """True when a symbolic link lies on the way of ``path`` (RESOLVE_NO_SYMLINKS says ELOOP)."""
        try:
            os.close(linux.openat2(AT_FDCWD if base is None else base, os.fsdecode(path), O_PATH | os.O_CLOEXEC, 0, 4))
        except OSError as e:
            return e.errno == errno.ELOOP
        return False

    def _open_failed(self, call: Call, dirfd: int, path: bytes, flags: int, fields: str, e: OSError) -> None:
        number = e.errno or errno.EIO
        if number == errno.ENXIO and not flags & os.O_NONBLOCK and flags & os.O_ACCMODE == os.O_WRONLY:
            try:
                fd = self.open_object(call, dirfd, path)
            except OSError:
                fd = -1
            if fd >= 0 and stat.S_ISFIFO(os.fstat(fd).st_mode):
                info = os.fstat(fd)
                real = self.name_of(fd)
                fields += (f',"x":{text(real)}' if real != path else "") + ',"k":"fifo"'
                self._wait((info.st_dev, info.st_ino), _Waiting(call, fd, flags, fields))
                return
            if fd >= 0:
                os.close(fd)
        self._log.add("open", call.process.pid, call.command, f'{fields},"r":"{errno.errorcode.get(number, number)}"')
        call.fail(number)

    def _deliver(self, call: Call, fd: int, path: bytes, flags: int, fields: str) -> None:
        """Record what was opened and give it to the caller."""
        try:
            info = os.fstat(fd)
            real = self.name_of(fd)
            kind = info.st_mode & 0o170000
            if real != path:
                fields += f',"x":{text(real)}'
            if info.st_dev == self.proc_device:
                refusal = self._guard_proc(call, real, flags)
                if refusal:
                    self._log.add("open", call.process.pid, call.command, fields + ',"r":"denied"')
                    return call.fail(refusal)
            if kind == stat.S_IFREG:
                fields += f',"v":[{info.st_dev},{info.st_ino}]'
            else:
                fields += f',"k":"{object_type(info.st_mode)}"'
                named = kind == stat.S_IFIFO and real[:1] == b"/" and not flags & O_PATH
                if named and self._meet((info.st_dev, info.st_ino), _Waiting(call, fd, flags, fields)):
                    fd = -1
                    return None
            if not flags & (os.O_NONBLOCK | O_PATH):
                linux_flags = flags & (os.O_APPEND | os.O_DIRECT | os.O_NOATIME)
                _set_flags(fd, _F_SETFL, linux_flags)
            self._log.add("open", call.process.pid, call.command, fields + ',"r":"ok"')
            if flags & O_PATH:
                # The kernel does not hand over O_PATH descriptors. One gives no content: to read, it has to be opened
                # again (by /proc/self/fd), and that call comes here.
                call.proceed()
            else:
                call.inject(fd, cloexec=bool(flags & os.O_CLOEXEC))
        finally:
            if fd >= 0:
                os.close(fd)
        return None

    def _meet(self, key: tuple[int, int], opened: _Waiting) -> bool:
        """FIFO semantics without a blocked thread (fifo(7)): True when the caller now waits for the other end.

        Every open of a FIFO goes through here, so the two ends can be brought together. A reader that waits already
        holds the reading end; a writer that waits holds the path, since no writing end exists before there is a reader.
        """
        mode = opened.flags & os.O_ACCMODE
        met = False
        waiting = self._fifos.pop(key, [])
        for other in waiting:
            reads = other.flags & os.O_ACCMODE == os.O_RDONLY
            if mode == (os.O_RDONLY if reads else os.O_WRONLY):
                self._wait(key, other)
            else:
                met = True
                self._go_on(other, reads)
        # A writer that could be opened without waiting has a reader.
        if met or mode != os.O_RDONLY or opened.flags & os.O_NONBLOCK or self._has_writer(opened.fd):
            return False
        self._wait(key, opened)
        return True

    def _wait(self, key: tuple[int, int], caller: _Waiting) -> None:
        self._fifos.setdefault(key, []).append(caller)
        caller.call.answered = True

    def _go_on(self, caller: _Waiting, reads: bool) -> None:
        """The other end has come: answer a caller that waited for it."""
        end = caller.fd
        if not reads:
            end = os.open(f"self/fd/{caller.fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.close(caller.fd)
        try:
            _set_flags(end, _F_SETFL, caller.flags & (os.O_APPEND | os.O_DIRECT | os.O_NOATIME))
            self._log.add("open", caller.call.process.pid, caller.call.command, caller.fields + ',"r":"ok"')
            caller.call.inject(end, cloexec=bool(caller.flags & os.O_CLOEXEC))
        finally:
            os.close(end)

    def _forget_dead_waiters(self) -> None:
        """Close the ends held for callers that died while they waited: nobody may take them for a living other end."""
        for key, waiting in list(self._fifos.items()):
            alive = [w for w in waiting if linux.notif_id_valid(w.call.listener, w.call.id)]
            for w in waiting:
                if w not in alive:
                    os.close(w.fd)
            if alive:
                self._fifos[key] = alive
            else:
                del self._fifos[key]

    def _has_writer(self, reader: int) -> bool:
        """Does anybody hold this FIFO open for writing? Asked of the kernel by a tee(2), which takes nothing away."""
        if self._tee is None:
            self._tee = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            copied = linux.syscall("tee", reader, self._tee[1], 1, _TEE_NONBLOCK)
        except BlockingIOError:
            return True
        if copied:
            os.read(self._tee[0], copied)
        return bool(copied)

    def _guard_proc(self, call: Call, real: bytes, flags: int) -> int:
        """An errno when a file of procfs must not be given out: the supervisor may open more than its caller."""
        parts = real.split(b"/")
        if len(parts) < 4 or not parts[2].isdigit():
            return 0
        pid, leaf = int(parts[2]), parts[-1]
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        own = pid == call.process.ns
        if pid == 1 and len(parts) > 3 and os.fsdecode(leaf) not in _OPEN_OF_INIT:
            return errno.EACCES
        if leaf == b"mem" and (writes or not own):
            self._escape(call, f"open {os.fsdecode(real)} for {'writing' if writes else 'reading'}", real)
            return errno.EACCES
        if writes and not (own and leaf in _OWN_PROC_WRITES) and b"attr" not in parts:
            return errno.EACCES
        return 0

    def _escape(self, call: Call, detail: str, path: bytes = b"") -> None:
        self._log.add(
            "escape",
            call.process.pid,
            call.command,
            f',"s":"{call.name}","n":{text(path)},"d":{text(detail)},"r":"denied"',
        )

    # --- blocking mode -------------------------------------------------------------------------------------

    def _open_decided(self, call: Call, base: int | None, path: bytes, flags: int, mode: int, fields: str) -> int:
        """Open only what the contract allows, deciding on the object before any side effect. -1: answered."""
        for _ in range(40):
            try:
                itself = flags & os.O_NOFOLLOW or (flags & os.O_CREAT and flags & os.O_EXCL)
                pin_flags = O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if itself else 0)
                try:
                    pinned = os.open(path, pin_flags, dir_fd=base)
                except FileNotFoundError:
                    other = self._through_links(call, base, path) if self._has_link(base, path) else None
                    if other is None:
                        raise
                    pinned = os.open(other, pin_flags)
            except (FileNotFoundError, NotADirectoryError) as e:
                slash = path.endswith(b"/")
                if not flags & os.O_CREAT or (e.errno == errno.ENOTDIR and not slash):
                    raise
                head, _, leaf = path.rstrip(b"/").rpartition(b"/")
                directory = head or (b"/" if path[:1] == b"/" else b".")
                parent = os.open(directory, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=base)
                try:
                    if slash:
                        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
                    real = self.name_of(parent).rstrip(b"/") + b"/" + leaf
                    try:
                        target = os.readlink(leaf, dir_fd=parent)
                    except OSError:
                        target = b""
                    if target:
                        path = target if target[:1] == b"/" else self.name_of(parent) + b"/" + target
                        continue
                    if not self._allowed(real, flags):
                        return self._deny(call, fields, real)
                    wanted = flags & _PASSED_ON | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
                    try:
                        return os.open(leaf, wanted, mode, dir_fd=parent)
                    except OSError as e:
                        if e.errno != errno.ELOOP:
                            raise
                finally:
                    os.close(parent)
                continue
            try:
                real = self.name_of(pinned)
                if flags & os.O_CREAT and flags & os.O_EXCL:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                info = os.fstat(pinned)
                if stat.S_ISLNK(info.st_mode) and not flags & O_PATH:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if flags & os.O_CREAT and stat.S_ISDIR(info.st_mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                plain = (stat.S_ISDIR(info.st_mode) and flags & O_TMPFILE != O_TMPFILE) or flags & O_PATH
                if not plain and not self._allowed(real, flags):
                    return self._deny(call, fields, real)
                wanted = flags & _PASSED_ON & ~(os.O_CREAT | os.O_NOFOLLOW)
                if flags & O_TMPFILE != O_TMPFILE:
                    wanted &= ~os.O_EXCL
                if flags & O_PATH:
                    return os.dup(pinned)
                return os.open(f"self/fd/{pinned}", wanted | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
            finally:
                os.close(pinned)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def _allowed(self, real: bytes, flags: int) -> bool:
        path = os.fsdecode(real)
        if flags & os.O_ACCMODE == os.O_RDONLY and not flags & (os.O_CREAT | os.O_TRUNC):
            return self._s.may_read(path)
        return self._s.may_write(path)

    def _deny(self, call: Call, fields: str, real: bytes) -> int:
        self._log.add("open", call.process.pid, call.command, f'{fields},"x":{text(real)},"r":"denied"')
        call.fail(errno.EACCES)
        return -1

    # --- names ---------------------------------------------------------------------------------------------

    def names(self, call: Call) -> None:
        """rename, link, symlink, unlink, mkdir, rmdir, truncate, mknod and their variants, carried out here."""
        name, a = call.name, call.args
        at = name.endswith(("at", "at2"))
        if name in ("symlink", "symlinkat"):
            return self._symlink(call)
        if name in ("truncate", "truncate64"):
            return self._truncate(call)
        first = (signed(a[0]), a[1]) if at else (AT_FDCWD, a[0])
        path = self._memory.string(call.tid, first[1])
        fields = f',"s":"{name}","n":{text(path)}'
        second, to = (AT_FDCWD, 0), b""
        two = name.startswith(("rename", "link"))
        if two:
            second = (signed(a[2]), a[3]) if at else (AT_FDCWD, a[1])
            to = self._memory.string(call.tid, second[1])
        parent, to_parent, to_leaf, to_real = -1, -1, b"", b""
        try:
            try:
                parent, leaf, real = self.parent(call, first[0], path)
                fields += f',"x":{text(real)}' if real != path else ""
                fields += f',"to":{text(to)}' if two else ""
                if two:
                    to_parent, to_leaf, to_real = self.parent(call, second[0], to)
                    fields += f',"tox":{text(to_real)}' if to_real != to else ""
                    if name == "renameat2" and a[4] & 2:
                        fields += ',"d":"exchange"'
            except OSError as e:
                return self._finish(call, "fs", fields, e.errno or errno.EIO)
            if self._rules is not None and not self._names_allowed(name, real, to_real):
                self._log.add("fs", call.process.pid, call.command, fields + ',"r":"denied"')
                return call.fail(errno.EACCES)
            try:
                self._apply_name(call, parent, leaf, to_parent, to_leaf)
            except OSError as e:
                number = e.errno or errno.EIO
                result = errno.errorcode.get(number, str(number))
                self._log.add("fs", call.process.pid, call.command, f'{fields},"r":"{result}"')
                return call.fail(number)
        finally:
            for fd in (parent, to_parent):
                if fd >= 0:
                    os.close(fd)
        self._log.add("fs", call.process.pid, call.command, fields + ',"r":"ok"')
        return call.value(0)

    def _names_allowed(self, name: str, real: bytes, to_real: bytes) -> bool:
        paths = [os.fsdecode(p) for p in (real, to_real) if p]
        if name.startswith(("unlink", "rmdir")) and self._s.may_delete(paths[0]):
            return True
        return all(self._s.may_write(p) for p in paths)

    def _apply_name(self, call: Call, parent: int, leaf: bytes, to_parent: int, to_leaf: bytes) -> None:
        name, a = call.name, call.args
        if name.startswith("rename"):
            flags = a[4] & 0xFFFFFFFF if name == "renameat2" else 0
            linux.syscall("renameat2", parent, _c(leaf), to_parent, _c(to_leaf), flags)
        elif name.startswith("link"):
            flags = a[4] & 0xFFFFFFFF if name == "linkat" else 0
            if flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            if flags & AT_SYMLINK_FOLLOW:  # linkat(…, AT_SYMLINK_FOLLOW) is how O_TMPFILE files get a name
                pinned = self.open_object(call, signed(a[0]), self._memory.string(call.tid, a[1]))
                try:
                    linux.syscall(
                        "linkat", AT_FDCWD, _c(b"self/fd/%d" % pinned), to_parent, _c(to_leaf), AT_SYMLINK_FOLLOW
                    )
                finally:
                    os.close(pinned)
            else:
                linux.syscall("linkat", parent, _c(leaf), to_parent, _c(to_leaf), 0)
        elif name in ("unlink", "rmdir", "unlinkat"):
            flags = AT_REMOVEDIR if name == "rmdir" else a[2] & 0xFFFFFFFF if name == "unlinkat" else 0
            linux.syscall("unlinkat", parent, _c(leaf), flags)
        elif name in ("mkdir", "mkdirat"):
            mode = a[2] if name == "mkdirat" else a[1]
            os.mkdir(leaf, mode & 0o7777 & ~self._s.tasks.umask(call.tid), dir_fd=parent)
        else:
            mode, device = (a[2], a[3]) if name == "mknodat" else (a[1], a[2])
            mode = mode & 0o170000 | mode & 0o7777 & ~self._s.tasks.umask(call.tid)
            os.mknod(leaf, mode, device & 0xFFFFFFFF, dir_fd=parent)

    def _symlink(self, call: Call) -> None:
        a = call.args
        target = self._memory.string(call.tid, a[0])
        dirfd, pointer = (signed(a[1]), a[2]) if call.name == "symlinkat" else (AT_FDCWD, a[1])
        path = self._memory.string(call.tid, pointer)
        parent, leaf, real = self.parent(call, dirfd, path)
        fields = f',"s":"{call.name}","n":{text(target)},"to":{text(path)}'
        fields += f',"tox":{text(real)}' if real != path else ""
        result = 0
        try:
            if self._rules is not None and not self._s.may_write(os.fsdecode(real)):
                self._log.add("fs", call.process.pid, call.command, fields + ',"r":"denied"')
                return call.fail(errno.EACCES)
            os.symlink(target, leaf, dir_fd=parent)
        except OSError as e:
            result = e.errno or errno.EIO
        finally:
            os.close(parent)
        self._finish(call, "fs", fields, result)
        return None

    def _truncate(self, call: Call) -> None:
        path = self._memory.string(call.tid, call.args[0])
        fd = self.open_object(call, AT_FDCWD, path)
        real = self.name_of(fd)
        fields = f',"s":"truncate","n":{text(path)}' + (f',"x":{text(real)}' if real != path else "")
        result = 0
        try:
            if self._rules is not None and not self._s.may_write(os.fsdecode(real)):
                self._log.add("fs", call.process.pid, call.command, fields + ',"r":"denied"')
                return call.fail(errno.EACCES)
            self._set_length(call, fd)
        except OSError as e:
            result = e.errno or errno.EIO
        finally:
            os.close(fd)
        self._finish(call, "fs", fields, result)
        return None

    def _set_length(self, call: Call, fd: int) -> None:
        """truncate(2) on the object of an O_PATH descriptor, within the caller's limit on the size of files."""
        length = call.args[1]
        if call.name == "truncate64":
            length |= call.args[2] << 32
        bits = 64 if call.abi == linux.ARCH or call.name == "truncate64" else 32
        info = os.fstat(fd)
        if length >> bits - 1:  # negative
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if not stat.S_ISREG(info.st_mode):
            number = errno.EISDIR if stat.S_ISDIR(info.st_mode) else errno.EINVAL
            raise OSError(number, os.strerror(number))
        writable = os.open(f"self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            limit = resource.prlimit(call.tid, resource.RLIMIT_FSIZE)[0]
            if length > info.st_size and limit not in (resource.RLIM_INFINITY, -1) and length > limit:
                os.kill(call.process.pid, signal.SIGXFSZ)
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            os.ftruncate(writable, length)
        finally:
            os.close(writable)

    def _finish(self, call: Call, kind: str, fields: str, number: int) -> None:
        result = errno.errorcode.get(number, str(number)) if number else "ok"
        self._log.add(kind, call.process.pid, call.command, f'{fields},"r":"{result}"')
        if number:
            call.fail(number)
        else:
            call.value(0)

    # --- metadata --------------------------------------------------------------------------------------------

    def metadata(self, call: Call) -> None:
        """chmod, chown, utime, xattr families.

        In observe mode the kernel carries them out: the upper layer shows the outcome whatever path was meant. In
        block mode they are done here on the object that was decided upon.
        """
        target, path, detail, action = self._metadata_target(call)
        if target < 0:
            fields = f',"s":"{call.name}","n":{text(path)},"d":{text(detail)}'
            if self._rules is not None:  # what is not there now must not be there a moment later
                return self._finish(call, "meta", fields, -target)
            self._log.add("meta", call.process.pid, call.command, fields + ',"r":"passed"')
            return call.proceed()
        try:
            real = self.name_of(target)
            fields = f',"s":"{call.name}","n":{text(path)},"d":{text(detail)}'
            fields += f',"x":{text(real)}' if real != path else ""
            if self._rules is None:
                self._log.add("meta", call.process.pid, call.command, fields + ',"r":"passed"')
                return call.proceed()
            if action is None or not self._s.may_change_metadata(os.fsdecode(real)):
                self._log.add("meta", call.process.pid, call.command, fields + ',"r":"denied"')
                return call.fail(errno.EPERM)
            try:
                action(target)
            except OSError as e:
                self._finish(call, "meta", fields, e.errno or errno.EIO)
                return None
            self._finish(call, "meta", fields, 0)
        finally:
            os.close(target)
        return None

    def _metadata_target(self, call: Call) -> tuple[int, bytes, str, _Action | None]:
        """(O_PATH descriptor or minus an errno, path as given, detail, what to do to the descriptor)."""
        name, a, memory, tid = call.name, call.args, self._memory, call.tid
        flags, held = 0, False
        if name.startswith("f") and not name.endswith(("at", "at2")) and name != "file_setattr":
            where, path, rest, held = signed(a[0]), b"", a[1:], True
        elif name.endswith("at") or name in ("fchmodat2", "utimensat_time64", "file_setattr"):
            where, path, rest = signed(a[0]), memory.string(tid, a[1]) if a[1] else b"", a[2:]
            flag_at = {"fchmodat2": 1, "fchownat": 2, "utimensat": 1, "utimensat_time64": 1}.get(name)
            if name in ("setxattrat", "removexattrat"):
                flag_at = 0
            flags = rest[flag_at] & 0xFFFFFFFF if flag_at is not None else 0
            held = not a[1]
        else:
            where, path, rest = AT_FDCWD, memory.string(tid, a[0]), a[1:]
            flags = AT_SYMLINK_NOFOLLOW if name.startswith("l") else 0
        detail, action = self._metadata_action(call, rest)
        try:
            if flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            if held:
                target = self._held(call, where)
            elif not path and flags & AT_EMPTY_PATH:
                target = self.base(call, where)
            else:
                target = self.open_object(call, where, path, follow=not flags & AT_SYMLINK_NOFOLLOW)
        except OSError as e:
            return -(e.errno or errno.EIO), path, detail, None
        return target, path, detail, action

    def _held(self, call: Call, fd: int) -> int:
        """An O_PATH descriptor of the object of a caller's descriptor, which must be one that calls work on."""
        if fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        target = self.base(call, fd)
        with open(f"{call.tid}/fdinfo/{fd}", "rb") as f:
            flags = next((int(line[6:], 8) for line in f if line.startswith(b"flags:")), 0)
        if flags & O_PATH:
            os.close(target)
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return target

    def _metadata_action(self, call: Call, rest: tuple[int, ...]) -> tuple[str, _Action | None]:
        name, memory, tid = call.name, self._memory, call.tid
        if "chmod" in name:
            mode = rest[0] & 0o7777
            return f"mode=0o{mode:o}", lambda fd: os.chmod(f"self/fd/{fd}", mode)
        if "chown" in name:
            uid, gid = signed(rest[0]), signed(rest[1])
            return f"owner={uid}:{gid}", lambda fd: os.chown(f"self/fd/{fd}", uid, gid)
        if name.startswith(("utime", "futime")):
            times = self._times(call, rest[0])
            if isinstance(times, str):
                return times, None
            return "times", partial(_set_times, times)
        if "xattr" in name:
            key = memory.string(tid, rest[1] if name.endswith("at") else rest[0])
            if name.endswith("at"):
                return f"xattr={os.fsdecode(key)}", None
            if "remove" in name:
                return f"xattr={os.fsdecode(key)}", lambda fd: os.removexattr(f"self/fd/{fd}", key)
            size = min(rest[2], 1 << 16)
            value = memory.read(tid, rest[1], size) if size else b""
            flags = signed(rest[3])
            return f"xattr={os.fsdecode(key)}", lambda fd: os.setxattr(f"self/fd/{fd}", key, value, flags)
        return name, None

    def _times(self, call: Call, pointer: int) -> tuple[int, int] | str | None:
        """(atime, mtime) in ns, None for now, or a text when the form is not carried out here."""
        if call.abi != linux.ARCH:
            return "times"
        if not pointer:
            return None
        name = call.name
        if name == "utime":
            atime, mtime = struct.unpack("=qq", self._exactly(call, pointer, 16))
            return atime * 10**9, mtime * 10**9
        s1, f1, s2, f2 = struct.unpack("=qqqq", self._exactly(call, pointer, 32))
        if name in ("utimes", "futimesat"):
            return s1 * 10**9 + f1 * 1000, s2 * 10**9 + f2 * 1000
        if {f1, f2} == {0x3FFFFFFF}:
            return None
        if {f1, f2} & {0x3FFFFFFE, 0x3FFFFFFF}:
            return "times"  # one of the two left alone
        return s1 * 10**9 + f1, s2 * 10**9 + f2


def _set_times(times: tuple[int, int] | None, fd: int) -> None:
    """Set access and modification time (ns; None: now) of the object an O_PATH descriptor stands for."""
    if times is None:
        os.utime(f"self/fd/{fd}")
    else:
        os.utime(f"self/fd/{fd}", ns=times)
