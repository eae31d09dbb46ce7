"""Tiers N and P: files without a root of their own. The candidate sees the host's tree, and *shadows* of some places.

Without a mount namespace nothing can be hidden and nothing can be put elsewhere, so what may change lies in a fresh
directory, the *shadow*, which repeats the names of the places it stands for: the home directory ``/home/dev`` is
``SHADOW/home/dev``, ``/tmp`` is ``SHADOW/tmp``, the workspace is a private copy below its own name. Programs are
started there (directory, ``HOME``, ``TMPDIR``, arguments); a path that names the original place is led to its shadow
as far as the supervisor answers the call. The record and the contract know the original names only.

Everything else is a wall: what is not part of the runtime cannot be read, what is not in a shadow cannot be changed.
The decision is taken on an object that was reached step by step, and carried out on that object; Landlock holds the
same wall in the kernel, for the supervisor as well.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import struct
from ctypes import c_char_p as _c
from fcntl import ioctl
from typing import TYPE_CHECKING, NamedTuple

from . import _linux as linux
from .calls import AT_FDCWD, Call, signed
from .files import _OWN_PROC_WRITES, _PASSED_ON, O_PATH, O_TMPFILE, Files
from .log import text
from .rooting import StepFailed
from .syscalls import EXEC
from .view import CA_BUNDLE, ETC_ENTRIES, HOME, SYS_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..contract import Rules
    from .lower import LowerSupervisor

DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts/ptmx")
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
_TIOCGPTN = 0x80045430
_LINKS = 40
_COPIED_ENTRIES = 250_000
_ETC = frozenset(f"/etc/{name}" for name in (*ETC_ENTRIES, "networks", "protocols", "gitconfig", "ssl/certs", "fstab"))
_PROC_HIDDEN = frozenset(b"tcp tcp6 udp udp6 udplite udplite6 raw raw6 unix packet netlink arp".split())
"""Files of ``/proc/PID/net`` that tell of the host's own connections."""
_RESOLVE_HARMLESS = 0x20  # RESOLVE_CACHED
_BENEATH_WITHOUT_LINKS = 0x08 | 0x04


class Refused(PermissionError):
    """The wall: recorded as ``denied``, answered with EACCES."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, os.strerror(errno.EACCES))


class Shadow:
    """The directory ``root`` and the original places it stands for. Paths are absolute bytes, as the kernel's."""

    def __init__(self, root: str, places: Iterable[str], files: Iterable[str] = ()) -> None:
        self.root = os.fsencode(root)
        self.places = sorted((os.fsencode(p) for p in {*places}), key=len, reverse=True)
        self.files = frozenset(os.fsencode(f) for f in files)
        # Temporary directories are left as they are in texts: TMPDIR says where they are.
        moved = [os.fsdecode(p) for p in self.places if os.fsdecode(p) not in TEMPORARY] + [CA_BUNDLE]
        alternatives = "|".join(re.escape(p) for p in sorted(moved, key=len, reverse=True))
        self._in_text = re.compile(rf"(?<![\w.~/-])(?:{alternatives})(?=$|[/:;,=\s'\")\]}}>])")

    def place(self, path: bytes) -> bytes | None:
        """The shadowed place that an original, resolved path is in, or None."""
        if path in self.files:
            return path
        if self.holds(path):
            return None
        for place in self.places:
            if path == place or path.startswith(place + b"/"):
                return place
        return None

    def holds(self, path: bytes) -> bool:
        """Is this a real path below the shadow?"""
        return path == self.root or path.startswith(self.root + b"/")

    def real(self, path: bytes) -> bytes:
        """Where an original path really is."""
        if self.holds(path) or self.place(path) is None:
            return path
        return self.root + path

    def original(self, path: bytes) -> bytes:
        """What a real path stands for."""
        return (path[len(self.root) :] or b"/") if self.holds(path) else path

    def in_text(self, value: str) -> str:
        """An argument or a variable with the original places it names replaced by their shadows."""
        root = os.fsdecode(self.root)
        return self._in_text.sub(lambda found: root + found.group(0), value)


class Place(NamedTuple):
    """Where a path leads: a descriptor of the directory, the last name, and of the object (-1: there is none)."""

    parent: int
    leaf: bytes
    fd: int

    def close(self) -> None:
        os.close(self.parent)
        if self.fd >= 0:
            os.close(self.fd)


class Wall:
    """What may be read and changed, by real path. ``readable``: whole trees beside the shadow."""

    def __init__(self, shadow: Shadow, readable: Iterable[str], read_only: Iterable[str] = ()) -> None:
        self.shadow = shadow
        self._read_only = tuple(os.fsencode(p) for p in read_only)
        self.trees = tuple(os.fsencode(p) for p in readable)
        self._plain = frozenset(os.fsencode(p) for p in (*_ETC, "/etc", "/", "/dev", "/dev/fd", "/proc"))
        self._entries = tuple(os.fsencode(p) for p in (*sorted(_ETC), *SYS_ENTRIES))
        self._devices = frozenset(os.fsencode(f"/dev/{name}") for name in DEVICES)

    def may_read(self, real: bytes) -> bool:
        """May the content of this object (or the list of names in this directory) be given out?"""
        if self.shadow.holds(real) or real in self._plain or self.is_device(real):
            return True
        return _in_any(real, self.trees) or _in_any(real, self._entries) or real.startswith(b"/proc/")

    def may_write(self, real: bytes) -> bool:
        """May this object be changed, or made?"""
        if self.is_device(real):
            return True
        if not self.shadow.holds(real):
            return False
        original = self.shadow.original(real)
        if original in self.shadow.files or _in_any(original, self._read_only):
            return False
        return self.shadow.place(original) is not None

    def readable_entries(self) -> list[str]:
        """Single files and directories beside the trees, as paths."""
        return [os.fsdecode(p) for p in self._entries]

    def is_device(self, real: bytes) -> bool:
        """The few device nodes that every program may use."""
        return real in self._devices


def _in_any(path: bytes, trees: Iterable[bytes]) -> bool:
    return any(path == tree or path.startswith(tree + b"/") for tree in trees)


class _OriginalMemory:
    """A caller's memory in which paths below the shadow read as the original names."""

    def __init__(self, reader: linux.MemoryReader, shadow: Shadow) -> None:
        self._reader = reader
        self._shadow = shadow
        self.read = reader.read

    def string(self, pid: int, address: int, limit: int = 4096) -> bytes:
        """As :meth:`MemoryReader.string`."""
        return self._shadow.original(self._reader.string(pid, address, limit))


class LowerFiles(Files):
    """Handlers of the open, name and metadata families where the world has no root of its own."""

    _s: LowerSupervisor

    def __init__(self, supervisor: LowerSupervisor, rules: Rules | None, wall: Wall) -> None:
        super().__init__(supervisor, rules)
        self.wall = wall
        self._raw_memory = supervisor.memory
        self._memory = _OriginalMemory(supervisor.memory, wall.shadow)  # type: ignore[assignment]
        self._contract = rules
        self._terminals: set[bytes] = set()
        # Whatever the contract, every open is decided upon, never just repeated.
        self._rules = rules if rules is not None else _ALWAYS

    def _path(self, call: Call, pointer: int) -> bytes:
        return self._memory.string(call.tid, pointer)

    # --- walking -------------------------------------------------------------------------------------------

    def real_name(self, fd: int) -> bytes:
        """The path of an own descriptor on the host."""
        return os.readlink(b"%d" % fd, dir_fd=self._own)

    def name_of(self, fd: int) -> bytes:
        """The path of an own descriptor by its original name."""
        return self.wall.shadow.original(self.real_name(fd))

    def walk(
        self, call: Call | None, start: int | None, path: bytes, *, follow: bool = True, shadows: bool = True
    ) -> Place:
        """Go along ``path`` (from ``start``, or the root) one name at a time, and into shadows where there are some.

        Every step is taken from a descriptor, so nobody can change what was passed already. ``/proc/self`` is the
        caller's. Raises OSError; :class:`Refused` for what belongs to processes that are not of this world.
        """
        pending = [part for part in path.split(b"/") if part and part != b"."]
        must_be_directory = path.endswith((b"/", b"/.")) or path in (b".", b"")
        current = os.open("/", O_PATH | os.O_CLOEXEC) if path[:1] == b"/" or start is None else os.dup(start)
        links = 0
        try:
            while True:
                where = self.name_of(current)
                if shadows:
                    current, pending, where = self._enter_shadow(current, where, pending)
                if not pending:
                    return Place(os.dup(current), b".", os.dup(current))
                part = pending.pop(0)
                if where == b"/proc" and part.isdigit() and not self._s.inside(int(part)):
                    raise Refused
                if where == b"/proc" and part in (b"self", b"thread-self"):
                    if call is None:
                        raise Refused
                    pid = call.process.pid
                    mine = [b"%d" % pid] if part == b"self" else [b"%d" % pid, b"task", b"%d" % call.tid]
                    pending = mine + pending
                    continue
                last = not pending
                try:
                    fd = os.open(part, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
                except FileNotFoundError:
                    if last and part != b"..":
                        return Place(os.dup(current), part + (b"/" if must_be_directory else b""), -1)
                    raise
                info = os.fstat(fd)
                if stat.S_ISLNK(info.st_mode) and (not last or follow or must_be_directory):
                    links += 1
                    try:
                        if links > _LINKS:
                            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                        if info.st_dev == self.proc_device and where != b"/proc":
                            # A link of procfs leads to an object, not along a path.
                            jumped = os.open(part, O_PATH | os.O_CLOEXEC, dir_fd=current)
                            if last:
                                return Place(os.dup(current), part, jumped)
                            os.close(current)
                            current = jumped
                            continue
                        target = os.readlink(b"", dir_fd=fd)
                    finally:
                        os.close(fd)
                    pending = [p for p in target.split(b"/") if p and p != b"."] + pending
                    if not pending:
                        must_be_directory = True
                    if target[:1] == b"/":
                        os.close(current)
                        current = -1
                        current = os.open("/", O_PATH | os.O_CLOEXEC)
                    continue
                if last:
                    if must_be_directory and not stat.S_ISDIR(info.st_mode):
                        os.close(fd)
                        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                    return Place(os.dup(current), part, fd)
                os.close(current)
                current = fd
        finally:
            if current >= 0:
                os.close(current)

    def _enter_shadow(self, current: int, where: bytes, pending: list[bytes]) -> tuple[int, list[bytes], bytes]:
        """Continue in the shadow when the way ahead names a shadowed place; else as given."""
        shadow = self.wall.shadow
        if shadow.holds(self.real_name(current)):
            return current, pending, where
        base = where.rstrip(b"/")
        ahead = b"/".join([base, *pending])
        place = shadow.place(ahead or b"/")
        if place is None:
            return current, pending, where
        if base.startswith(place + b"/"):  # a directory of the host below the place, entered by a call nobody hears of
            entered = self._open_shadow(base)
            os.close(current)
            return entered, pending, base
        count = len([p for p in place[len(base) :].split(b"/") if p])
        if b".." in pending[:count]:
            return current, pending, where
        if place in shadow.files:
            # A file of its own: its directory in the shadow holds nothing else that can be asked for.
            place, count = os.path.dirname(place), count - 1
        entered = self._open_shadow(place)
        os.close(current)
        return entered, pending[count:], place

    def _open_shadow(self, path: bytes) -> int:
        """The shadow of an original path, through no link."""
        below = os.fsdecode(path.lstrip(b"/"))
        root = os.open(self.wall.shadow.root, O_PATH | os.O_CLOEXEC)
        try:
            return linux.openat2(root, below, O_PATH | os.O_CLOEXEC, 0, _BENEATH_WITHOUT_LINKS)
        except OSError as e:
            if e.errno not in (errno.ENOSYS, errno.EPERM):
                raise
            return os.open(below, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
        finally:
            os.close(root)

    def located(self, call: Call, dirfd: int, path: bytes) -> tuple[int | None, bytes]:
        """The directory to start from (None: the root) and the path, unchanged."""
        if path[:1] == b"/":
            return None, path
        if not path:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.base(call, dirfd), path

    def open_object(self, call: Call, dirfd: int, path: bytes, *, follow: bool = True) -> int:
        """An O_PATH descriptor of the object a caller's path names. Raises OSError.

        For exec it is the object that the kernel will find, which knows of no shadow.
        """
        base, located = self.located(call, dirfd, path)
        try:
            if call.name in EXEC:
                return self._executable(call, base, located, follow)
            place = self.walk(call, base, located, follow=follow)
        finally:
            if base is not None:
                os.close(base)
        os.close(place.parent)
        if place.fd < 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return place.fd

    def _executable(self, call: Call, base: int | None, path: bytes, follow: bool) -> int:
        if path.startswith((b"/proc/self/", b"/proc/thread-self/")):
            path = b"/proc/%d/" % call.process.pid + path.split(b"/", 3)[3]
        fd = os.open(path, O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW), dir_fd=base)
        real = self.real_name(fd)
        if real[:1] == b"/" and not real.startswith(b"/memfd:") and not self.wall.may_read(real):
            os.close(fd)
            raise Refused
        return fd

    # --- the open family -----------------------------------------------------------------------------------

    def open(self, call: Call) -> None:
        """open, openat, openat2, creat."""
        if call.name == "openat2" and call.args[3] >= 24:
            resolve = struct.unpack("=Q", self._raw_memory.read(call.tid, call.args[2] + 16, 8))[0]
            if resolve & ~_RESOLVE_HARMLESS:
                # The walk knows nothing of these restrictions; programs fall back to openat.
                self._log.add("open", call.process.pid, call.command, ',"s":"openat2","n":"","r":"ENOSYS"')
                return call.fail(errno.ENOSYS)
        return super().open(call)

    def _open_decided(self, call: Call, base: int | None, path: bytes, flags: int, mode: int, fields: str) -> int:
        try:
            place = self.walk(call, base, path, follow=not flags & (os.O_NOFOLLOW | os.O_EXCL))
        except Refused:
            return self._deny(call, fields, path)
        try:
            if place.fd < 0:
                if not flags & os.O_CREAT:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                return self._make(call, place, flags, mode, fields)
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            info = os.fstat(place.fd)
            if stat.S_ISLNK(info.st_mode) and not flags & O_PATH:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if flags & O_PATH:
                return os.dup(place.fd)
            real = self.real_name(place.fd)
            if not self._given(call, real, info, flags):
                return self._deny(call, fields, self.wall.shadow.original(real))
            wanted = flags & _PASSED_ON & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
            wanted |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
            fd = os.open(f"self/fd/{place.fd}", wanted, mode)
            if real.endswith(b"/ptmx") and info.st_rdev:
                self._terminals.add(b"%d" % struct.unpack("=i", ioctl(fd, _TIOCGPTN, bytes(4)))[0])
            return fd
        finally:
            place.close()

    def _make(self, call: Call, place: Place, flags: int, mode: int, fields: str) -> int:
        real = self.real_name(place.parent).rstrip(b"/") + b"/" + place.leaf
        if not self._may(real, write=True):
            return self._deny(call, fields, self.wall.shadow.original(real))
        wanted = flags & _PASSED_ON | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
        return os.open(place.leaf, wanted, mode, dir_fd=place.parent)

    def _given(self, call: Call, real: bytes, info: os.stat_result, flags: int) -> bool:
        """May this object be opened so?"""
        if real[:1] != b"/":
            return self._is_held(call, info)  # a pipe or a socket, reached through /proc: only by those who have it
        if real.startswith(b"/memfd:"):
            return self._is_held(call, info)
        write = bool(flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC or flags & O_TMPFILE == O_TMPFILE)
        if info.st_dev == self.proc_device:
            return real == b"/proc" or real.startswith(b"/proc/")  # _guard_proc decides about these
        if real.startswith(b"/dev/pts/") and not real.endswith(b"/ptmx"):
            # The user's other terminals are there as well.
            return real[9:] in self._terminals or self._is_held(call, info)
        return self._may(real, write=write, directory=stat.S_ISDIR(info.st_mode) and not write)

    def _may(self, real: bytes, *, write: bool, directory: bool = False) -> bool:
        allowed = self.wall.may_write(real) if write else self.wall.may_read(real)
        if not allowed or self._contract is None or directory:
            return allowed
        path = os.fsdecode(self.wall.shadow.original(real))
        return self._s.may_write(path) if write else self._s.may_read(path)

    def open_for_client(self, path: str, flags: int, mode: int) -> int:
        """Open a path for the client, behind the same wall. Raises OSError."""
        place = self.walk(None, None, os.fsencode(path))
        try:
            if place.fd < 0:
                if not flags & os.O_CREAT:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                real = self.real_name(place.parent) + b"/" + place.leaf
                if not self.wall.may_write(real):
                    raise Refused
                return os.open(place.leaf, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=place.parent)
            real = self.real_name(place.fd)
            writes = flags & os.O_ACCMODE != os.O_RDONLY
            if not (self.wall.may_write(real) if writes else self.wall.may_read(real)):
                raise Refused
            return os.open(f"self/fd/{place.fd}", flags & ~os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        finally:
            place.close()

    def _is_held(self, call: Call, info: os.stat_result) -> bool:
        try:
            names = os.listdir(f"{call.tid}/fd")
        except OSError:
            return False
        for name in names:
            try:
                other = os.stat(f"{call.tid}/fd/{name}")
            except OSError:
                continue
            if (other.st_dev, other.st_ino) == (info.st_dev, info.st_ino):
                return True
        return False

    def _guard_proc(self, call: Call, real: bytes, flags: int) -> int:
        parts = real.split(b"/")
        leaf = parts[-1]
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        if len(parts) < 3 or not parts[2].isdigit():
            return errno.EACCES if writes else 0
        pid = int(parts[2])
        if not self._s.inside(pid):
            return errno.EACCES
        own = pid == call.process.pid
        if leaf in (b"mem", b"pagemap") and (writes or not own):
            self._escape(call, f"open {os.fsdecode(real)} for {'writing' if writes else 'reading'}", real)
            return errno.EACCES
        if b"net" in parts and leaf in _PROC_HIDDEN:
            return errno.EACCES
        return errno.EACCES if writes and not (own and leaf in _OWN_PROC_WRITES) else 0

    # --- names -----------------------------------------------------------------------------------------------

    def _names_allowed(self, name: str, real: bytes, to_real: bytes) -> bool:
        # The walk leads into the shadow wherever there is one, so an original name stands for the real one.
        for path in (real, to_real):
            if path and not self.wall.may_write(self.wall.shadow.real(path.rstrip(b"/"))):
                return False
        return self._contract is None or super()._names_allowed(name, real, to_real)

    def _symlink(self, call: Call) -> None:
        a = call.args
        target = self._raw_memory.string(call.tid, a[0])
        dirfd, pointer = (signed(a[1]), a[2]) if call.name == "symlinkat" else (AT_FDCWD, a[1])
        path = self._memory.string(call.tid, pointer)
        parent, leaf, real = self.parent(call, dirfd, path)
        fields = f',"s":"{call.name}","n":{text(target)},"to":{text(path)}'
        fields += f',"tox":{text(real)}' if real != path else ""
        result = 0
        try:
            if not self._names_allowed(call.name, real, b""):
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
        real = self.real_name(fd)
        name = self.wall.shadow.original(real)
        fields = f',"s":"truncate","n":{text(path)}' + (f',"x":{text(name)}' if name != path else "")
        result = 0
        try:
            if not self._may(real, write=True):
                self._log.add("fs", call.process.pid, call.command, fields + ',"r":"denied"')
                return call.fail(errno.EACCES)
            writable = os.open(f"self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.ftruncate(writable, call.args[1])
            finally:
                os.close(writable)
        except OSError as e:
            result = e.errno or errno.EIO
        finally:
            os.close(fd)
        self._finish(call, "fs", fields, result)
        return None

    # --- metadata ----------------------------------------------------------------------------------------------

    def metadata(self, call: Call) -> None:
        """chmod, chown, utime, xattr families, carried out here: no other wall stands in their way."""
        target, path, detail, action = self._metadata_target(call)
        fields = f',"s":"{call.name}","n":{text(path)},"d":{text(detail)}'
        if target < 0:
            return self._finish(call, "meta", fields, -target)
        try:
            real = self.real_name(target)
            name = self.wall.shadow.original(real)
            fields += f',"x":{text(name)}' if name != path else ""
            if action is None and detail == "times" and call.name in ("utimensat", "futimesat", "utimes"):
                data = self._raw_times(call)
                if data is not None:
                    times = data

                    def action(fd: int) -> None:
                        linux.syscall("utimensat", AT_FDCWD, _c(b"self/fd/%d" % fd), _c(times), 0)

            allowed = real[:1] != b"/" or real.startswith(b"/memfd:") or self.wall.may_write(real)
            if allowed and self._contract is not None and real[:1] == b"/":
                allowed = self._s.may_change_metadata(os.fsdecode(name))
            if action is None or not allowed or self.wall.is_device(real):
                self._log.add("meta", call.process.pid, call.command, fields + ',"r":"denied"')
                return call.fail(errno.EPERM)
            try:
                action(target)
            except OSError as e:
                return self._finish(call, "meta", fields, e.errno or errno.EIO)
            return self._finish(call, "meta", fields, 0)
        finally:
            os.close(target)

    def _raw_times(self, call: Call) -> bytes | None:
        """The two timespecs of utimensat(2) as they stand in memory, when one of the two is to be left alone."""
        if call.abi != linux.ARCH or call.name != "utimensat" or not call.args[2]:
            return None
        data = self._raw_memory.read(call.tid, call.args[2], 32)
        return data if len(data) == 32 else None


class _Always:
    """Stands where the rules of a contract would: says only that every call is decided upon."""


_ALWAYS: Rules = _Always()  # type: ignore[assignment]


# --- copies ------------------------------------------------------------------------------------------------------


class Copied(NamedTuple):
    """What could not be taken along, each as a short text."""

    left_out: list[str]


def copy_tree(source: str, target: str, *, max_bytes: int, skip: Iterable[str] = ()) -> Copied:
    """A private copy of a file or tree: regular files, directories and links with their modes and times.

    Raises StepFailed when it is larger than ``max_bytes`` or has more files than are looked at.
    """
    left_out: list[str] = []
    budget = [max_bytes, _COPIED_ENTRIES]
    skipped = frozenset(skip)
    directories: list[tuple[str, os.stat_result]] = []
    for path, relative in _tree(source):
        budget[1] -= 1
        if budget[1] < 0:
            raise StepFailed(f"copy {source}", OSError(errno.EFBIG, f"it has more than {_COPIED_ENTRIES} files"))
        to = os.path.join(target, relative) if relative else target
        if path in skipped:
            continue
        try:
            info = os.lstat(path)
            if stat.S_ISDIR(info.st_mode):
                os.makedirs(to, exist_ok=True)
                os.chmod(to, stat.S_IMODE(info.st_mode) & 0o777 | stat.S_IRWXU)
                directories.append((to, info))
            elif stat.S_ISLNK(info.st_mode):
                os.symlink(os.readlink(path), to)
            elif stat.S_ISREG(info.st_mode):
                budget[0] -= info.st_size
                if budget[0] < 0:
                    raise StepFailed(f"copy {source}", OSError(errno.EFBIG, f"it is larger than {max_bytes} bytes"))
                os.makedirs(os.path.dirname(to), exist_ok=True)
                shutil.copyfile(path, to, follow_symlinks=False)
            else:
                left_out.append(f"{path} is no file, directory or link")
                continue
            if stat.S_ISREG(info.st_mode):
                os.chmod(to, stat.S_IMODE(info.st_mode) & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
                os.utime(to, ns=(info.st_atime_ns, info.st_mtime_ns))
        except PermissionError as e:
            left_out.append(f"{path}: {e.strerror}")
    for to, info in reversed(directories):
        os.utime(to, ns=(info.st_atime_ns, info.st_mtime_ns))
    return Copied(left_out)


def _tree(source: str) -> Iterator[tuple[str, str]]:
    """Each (path, path relative to ``source``), directories before what is in them."""
    yield source, ""
    if os.path.islink(source) or not os.path.isdir(source):
        return
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            names = sorted(os.listdir(os.path.join(source, below)))
        except PermissionError:
            continue  # told by nobody else: it is listed as a directory that stays empty
        for name in names:
            relative = os.path.join(below, name)
            path = os.path.join(source, relative)
            yield path, relative
            if os.path.isdir(path) and not os.path.islink(path):
                pending.append(relative)


__all__ = ["HOME", "TEMPORARY", "Copied", "LowerFiles", "Place", "Refused", "Shadow", "Wall", "copy_tree"]
