"""What changed on disk: the witness of persistent change, complete whatever system call made the change.

Two ways to see it, one record (``change`` of ``docs/reference/evidence.md``):

- :func:`walk_upper` reads the upper layer of an overlay against its lower layer. Nothing that a program in the world
  does to a file can miss the upper layer (kernel: ``Documentation/filesystems/overlayfs.rst``).
- :func:`snapshot` before and after, and :func:`compare`, where there is no overlay (tiers N and P).

Everything is read when the world is dead, relative to directory descriptors, and no symbolic link is ever followed.
The content is hostile: names need not be text, a file may claim a terabyte, trees may be deeper than a path can say.
All work is bounded by :class:`WalkLimits`; a bound that was hit becomes a ``limit`` event, an object that could not be
read a ``witness`` event with ``ok`` false, so the oracle can tell "nothing changed" from "not all was looked at".
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import _linux as linux

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ..evidence.canary import Scanner

Record = dict[str, object]
"""An event without its common fields: plain data for the log."""

_CHUNK = 1 << 20
_MAGIC = 20  # up to and with e_type of an ELF header, which tells a shared object from other code (elf(5))
_SCAN_WHOLE = 256 << 10
_SHORTEST_SEARCHED = 8  # no canary is as short as this, and most file names are
_PATH_CHUNK = 4000
_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # RESOLVE_NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH (linux/openat2.h)
_OVERLAY = ("user.overlay.", "trusted.overlay.")
# Set by the host's security modules on every file, not by a program in the world.
_HOST_ATTRIBUTES = frozenset(
    {"security.selinux", "security.apparmor", "security.ima", "security.evm", "security.SMACK64"}
)
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "sock",
    stat.S_IFCHR: "chr",
    stat.S_IFBLK: "blk",
}


@dataclass(frozen=True, slots=True)
class WalkLimits:
    """Bounds of one walk.

    ``entries`` files and directories looked at; ``seconds`` of wall time; ``depth`` of directories below the root;
    ``file_bytes`` and ``hash_bytes``: the largest file that is hashed, and the sum of all; ``scan_bytes`` searched for
    canaries and ``scan_seconds`` of processor time for that, over all files; ``content_bytes``: the largest file handed
    to the content sink.
    """

    entries: int = 250_000
    seconds: float = 60.0
    depth: int = 4096
    file_bytes: int = 1 << 30
    hash_bytes: int = 8 << 30
    scan_bytes: int = 256 << 20
    scan_seconds: float = 10.0
    content_bytes: int = 1 << 20


@dataclass(slots=True)
class Item:
    """One object of a tree as it was when it was read.

    ``kind`` as in the event record; ``digest`` is the lower-case hex SHA-256 of a regular file, None when a bound or
    an error kept it from being read; ``attributes`` are extended attributes without those of the overlay itself.
    """

    kind: str
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: tuple[int, int]
    device: tuple[int, int] | None = None
    link: str | None = None
    digest: str | None = None
    magic: bytes = b""
    attributes: dict[str, bytes] = field(default_factory=dict)
    overlay: dict[str, bytes] = field(default_factory=dict)
    canaries: list[dict[str, str]] = field(default_factory=list)

    def before(self) -> Record:
        """The ``before`` field of a ``change`` record."""
        fields: Record = {"mode": self.mode, "uid": self.uid, "mtime": self.mtime_ns / 1e9}
        if self.kind == "file":
            fields["size"] = self.size
        if self.digest is not None:
            fields["h256"] = self.digest
        if self.link is not None:
            fields["link"] = self.link
        return fields


class _Reader:
    """Reads objects within the limits of one walk, and collects what it could not do."""

    def __init__(
        self,
        witness: str,
        limits: WalkLimits,
        scanner: Scanner | None,
        content_sink: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.limits = limits
        self.notes: list[Record] = []
        self._witness = witness
        self._scanner = scanner
        self._sink = content_sink
        self._deadline = time.monotonic() + limits.seconds
        self._entries = 0
        self._hashed = 0
        self._scanned = 0
        self._scan_time = 0.0
        self._noted: set[str] = set()
        self._linked: dict[tuple[tuple[int, int], bool], Item] = {}

    # --- bounds ---

    def drain(self) -> Iterator[Record]:
        """The notes since the last call."""
        notes, self.notes = self.notes, []
        yield from notes

    def limit(self, what: str, detail: str) -> None:
        """Note that a bound was hit; each bound once."""
        if detail not in self._noted:
            self._noted.add(detail)
            self.notes.append({"e": "limit", "what": what, "d": detail})

    def lost(self, path: str, error: OSError) -> None:
        """Note an object that could not be read; the first few by name."""
        if len(self._noted) < 16 and path not in self._noted:
            self._noted.add(path)
            detail = f"cannot read {path[:1024]}: {error.strerror or error}"
            self.notes.append(
                {"e": "witness", "name": self._witness, "ok": False, "detail": detail, "classes": ["change"]}
            )

    def go_on(self) -> bool:
        """Count one entry; false when the walk has to stop."""
        self._entries += 1
        if self._entries > self.limits.entries:
            self.limit("events", f"more than {self.limits.entries} files in the tree: the rest was not looked at")
            return False
        if self._entries & 63 == 0 and time.monotonic() > self._deadline:
            self._out_of_time()
            return False
        return True

    def _out_of_time(self) -> None:
        self.limit("wall", f"reading the tree took more than {self.limits.seconds:g} s: the rest was not looked at")

    def _may_scan(self, path: str) -> bool:
        """Whether the budget of the search for canaries lasts; told once when it does not."""
        limits = self.limits
        if self._scanned < limits.scan_bytes and self._scan_time < limits.scan_seconds:
            return True
        spent = (
            f"{limits.scan_bytes} bytes"
            if self._scanned >= limits.scan_bytes
            else f"{limits.scan_seconds:g} s of processor time"
        )
        if "scan" not in self._noted:
            self._noted.add("scan")
            told = "planted values were looked for in changed files for"
            detail = f"{told} {spent}, hence not in all of {path[:1024]} and what follows it"
            self.notes.append({"e": "limit", "what": "scan", "d": detail})
        return False

    # --- reading ---

    @staticmethod
    def stat(directory: int, name: str) -> os.stat_result | None:
        """lstat(2) below a directory; None when the name does not exist."""
        try:
            return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def item(self, directory: int, name: str, info: os.stat_result, path: str, *, changed: bool = False) -> Item:
        """Read one object; one that is known to have changed is also searched for canaries and kept."""
        kind = _KINDS.get(stat.S_IFMT(info.st_mode), "other")
        item = Item(
            kind,
            stat.S_IMODE(info.st_mode),
            info.st_uid,
            info.st_gid,
            info.st_size,
            info.st_mtime_ns,
            info.st_ctime_ns,
            (info.st_dev, info.st_ino),
        )
        try:
            if kind == "file":
                self._read_file(item, directory, name, info, path, changed=changed)
            elif kind == "dir":
                fd = _open(name, _DIR, directory)
                try:
                    self._read_attributes(item, fd)
                finally:
                    os.close(fd)
            elif kind == "symlink":
                # Links, FIFOs, sockets and devices cannot hold the attributes an unprivileged program may set.
                item.link = os.readlink(name, dir_fd=directory)
            elif kind in {"chr", "blk"}:
                item.device = (os.major(info.st_rdev), os.minor(info.st_rdev))
        except OSError as e:
            self.lost(path, e)
        if changed and self._scanner is not None:
            # Names, targets and attributes carry data as well as content does.
            item.canaries += self._search(os.fsencode(name), "name", path)
            if item.link:
                item.canaries += self._search(os.fsencode(item.link), "link", path)
            for value in item.attributes.values():
                item.canaries += self._search(value, "xattr", path)
        return item

    def _read_file(
        self, item: Item, directory: int, name: str, info: os.stat_result, path: str, *, changed: bool
    ) -> None:
        known = self._linked.get((item.inode, changed)) if info.st_nlink > 1 else None
        if known is not None and (known.ctime_ns, known.size) == (item.ctime_ns, item.size):
            item.digest, item.magic = known.digest, known.magic
            item.attributes, item.overlay = known.attributes, known.overlay
            item.canaries = [c for c in known.canaries if c.get("at") == "content"]
            return
        fd = _open(name, _FILE, directory)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.ESTALE, "it changed its type while it was read")
            self._read_attributes(item, fd)
            if item.overlay.keys().isdisjoint(("metacopy", "whiteout")):
                self._read_content(item, fd, path, changed=changed)
        finally:
            os.close(fd)
        if info.st_nlink > 1:
            self._linked[item.inode, changed] = item

    @staticmethod
    def _read_attributes(item: Item, fd: int) -> None:
        try:
            names = os.listxattr(fd)
        except OSError as e:
            if e.errno == errno.ENOTSUP:
                return
            raise
        for name in names:
            shown = name
            prefix = next((p for p in _OVERLAY if name.startswith(p)), None)
            if prefix is not None:
                own = name.removeprefix(prefix)
                if not own.startswith("overlay."):
                    item.overlay[own] = os.getxattr(fd, name)
                    continue
                # Set inside the overlay under the overlay's own prefix: stored with the prefix doubled (Linux 6.7).
                shown = prefix + own.removeprefix("overlay.")
            if shown not in _HOST_ATTRIBUTES:
                item.attributes[shown] = os.getxattr(fd, name)

    def _read_content(self, item: Item, fd: int, path: str, *, changed: bool) -> None:
        limits = self.limits
        keep = changed and self._sink is not None and item.size <= limits.content_bytes
        if item.size <= _SCAN_WHOLE:
            data = _read_all(fd, item.size)
            item.digest = hashlib.sha256(data).hexdigest()
            item.magic = data[:_MAGIC]
            self._hashed += len(data)
            if changed and data:
                item.canaries += self._search(data, "content", path)
            if keep:
                self._keep(item.digest, data)
            return
        digest = None
        if item.size > limits.file_bytes:
            self.limit("disk", f"{path[:1024]} claims {item.size} bytes: it is too large to be hashed")
        elif self._hashed + item.size > limits.hash_bytes:
            self.limit("disk", f"the files have more than {limits.hash_bytes} bytes: the rest is not hashed")
        else:
            digest = hashlib.sha256()
            self._hashed += item.size
        stream = self._scanner.stream("content") if changed and self._scanner is not None else None
        position = 0
        kept: list[bytes] = []
        for start, data in _extents(fd, item.size):
            if time.monotonic() > self._deadline:
                self._out_of_time()
                digest = None
                break
            if start == 0:
                item.magic = data[:_MAGIC]
            if digest is not None:
                for zeros in _zeros(start - position):
                    digest.update(zeros)
                digest.update(data)
            if keep:
                kept += [*_zeros(start - position), data]
            position = start + len(data)
            searching = stream is not None and self._may_scan(path)
            if stream is not None and searching:
                began = time.thread_time()
                stream.feed(data)
                self._scan_time += time.thread_time() - began
                self._scanned += len(data)
            elif digest is None:
                break
        if stream is not None:
            began = time.thread_time()
            item.canaries += [hit.to_dict() for hit in stream.close()]
            self._scan_time += time.thread_time() - began
        if digest is not None:
            for zeros in _zeros(item.size - position):
                digest.update(zeros)
            item.digest = digest.hexdigest()
            if keep:
                self._keep(item.digest, b"".join([*kept, *_zeros(item.size - position)]))

    def _keep(self, digest: str, data: bytes) -> None:
        if self._sink is not None:
            try:
                self._sink(digest, data)
            except OSError as e:
                self.limit("disk", f"the content of changed files could not be kept: {e.strerror}")

    def _search(self, data: bytes, at: str, path: str) -> list[dict[str, str]]:
        if self._scanner is None or len(data) < _SHORTEST_SEARCHED or not self._may_scan(path):
            return []
        began = time.thread_time()
        hits = self._scanner.scan(data, at)
        self._scan_time += time.thread_time() - began
        self._scanned += len(data)
        return [hit.to_dict() for hit in hits]


def _open(name: str, flags: int, directory: int) -> int:
    """openat(2) that leaves the access time alone where it may (only the owner may ask for that)."""
    try:
        return os.open(name, flags | os.O_NOATIME, dir_fd=directory)
    except PermissionError:
        return os.open(name, flags, dir_fd=directory)


def _open_directory(root: int, path: str) -> int:
    """Open a directory below ``root`` by a relative path of any length, through no link and no other mount."""
    if not path:
        return os.open(".", _DIR, dir_fd=root)
    current = root
    position = 0
    while position < len(path):
        end = len(path)
        if end - position > _PATH_CHUNK:
            # A name has at most 255 bytes, so there is a separator; one character may be four bytes (or one byte).
            end = path.rindex("/", position, position + _PATH_CHUNK // 4)
        try:
            following = _step(current, path[position:end])
        finally:
            if current != root:
                os.close(current)
        current = following
        position = end + 1
    return current


def _step(directory: int, path: str) -> int:
    try:
        return linux.openat2(directory, path, _DIR, 0, _RESOLVE)
    except OSError as e:
        if e.errno not in {errno.ENOSYS, errno.EPERM, errno.E2BIG}:
            raise
    # Without openat2 (before Linux 5.6, or refused by a container's filter): one component at a time.
    current = directory
    for name in path.split("/"):
        try:
            following = os.open(name, _DIR, dir_fd=current)
        finally:
            if current != directory:
                os.close(current)
        current = following
    return current


def _read_all(fd: int, size: int) -> bytes:
    data = os.read(fd, size + 1)
    if len(data) < size:
        pieces = [data]
        while data := os.read(fd, _CHUNK):
            pieces.append(data)
        data = b"".join(pieces)
    return data[:size]


def _extents(fd: int, size: int) -> Iterator[tuple[int, bytes]]:
    """The parts of a file that hold data, as (offset, at most 1 MiB); holes are jumped over."""
    position = 0
    while position < size:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
            end = min(size, os.lseek(fd, position, os.SEEK_HOLE))
        except OSError as e:
            if e.errno == errno.ENXIO:  # only a hole is left
                return
            if e.errno != errno.EINVAL:
                raise
            end = size  # the file system knows no holes
        while position < end:
            data = os.pread(fd, min(_CHUNK, end - position), position)
            if not data:
                return
            yield position, data
            position += len(data)


_ZEROS = bytes(_CHUNK)


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield _ZEROS[:count]
        count -= _CHUNK


# --- comparing -------------------------------------------------------------------------------------------------


def differences(before: Item, after: Item, *, started_ns: int | None = None) -> list[str]:
    """In what two objects of the same kind differ: ``content``, ``mode``, ``owner``, ``times``, ``xattr``.

    Access and change times do not count. A directory's modification time changes by itself when entries come and go;
    it counts only when it lies before ``started_ns`` (the start of the world, nanoseconds since the epoch) or in the
    future, hence was set on purpose.
    """
    found = []
    if before.kind == "file":
        same = before.size == after.size and before.digest is not None and before.digest == after.digest
    else:
        same = (before.link, before.device) == (after.link, after.device)
    if not same:
        found.append("content")
    # The mode of a link means nothing.
    if before.mode != after.mode and before.kind != "symlink":
        found.append("mode")
    if (before.uid, before.gid) != (after.uid, after.gid):
        found.append("owner")
    if before.mtime_ns != after.mtime_ns and (
        before.kind != "dir"
        or (started_ns is not None and not started_ns - _CLOCK_TICK_NS <= after.mtime_ns <= time.time_ns() + 10**9)
    ):
        found.append("times")
    if before.attributes != after.attributes:
        found.append("xattr")
    return found


_CLOCK_TICK_NS = 20_000_000  # file times come from a coarse clock that lags by up to a tick


def _record(
    path: str, what: str, before: Item | None, after: Item | None, differing: list[str] | None = None
) -> Record:
    shown = after or before
    assert shown is not None
    record: Record = {"e": "change", "x": path, "w": what, "k": shown.kind}
    if len(path) > _MAX_PATH:
        # A long path is never a reason to fill memory: the start and the name say where it is.
        record["x"] = path[: _MAX_PATH - 256] + "…" + path[-255:]
        record["cut"] = True
    if after is not None:
        record.update(mode=after.mode, uid=after.uid, mtime=after.mtime_ns / 1e9)
        if after.kind == "file":
            record["size"] = after.size
            if after.digest is not None:
                record["h256"] = after.digest
            if after.magic:
                record["magic"] = after.magic.hex()
        if after.link is not None:
            record["link"] = after.link
        if after.device is not None:
            record["rdev"] = list(after.device)
        names = set(after.attributes)
        if before is not None:
            names = {n for n in names | set(before.attributes) if after.attributes.get(n) != before.attributes.get(n)}
        if names:
            record["xattrs"] = sorted(names)
        if after.canaries:
            record["canaries"] = after.canaries
    if before is not None:
        record["before"] = before.before()
    if differing:
        record["d"] = differing
    return record


_MAX_PATH = 4096


def _join(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix != "/" else "/" + name


# --- the overlay -----------------------------------------------------------------------------------------------


def walk_upper(
    upper: int,
    lower: int | None,
    target: str,
    *,
    limits: WalkLimits | None = None,
    scanner: Scanner | None = None,
    content_sink: Callable[[str, bytes], None] | None = None,
    started: float | None = None,
    ignore: Collection[str] = (),
) -> Iterator[Record]:
    """Yield what the upper layer of one overlay changes in its lower layer, parents before children.

    Nobody may write to the layers meanwhile. The caller needs to be able to read objects of mode 0 (the owner of the
    user namespace the world ran in can: CAP_DAC_READ_SEARCH); what it cannot read becomes a ``witness`` event.

    Args:
        upper: descriptor of the upper directory (O_PATH will do).
        lower: descriptor of the lower directory; None for an overlay over nothing.
        target: absolute path inside the world at which the overlay is mounted.
        limits: bounds; ``limit`` events are yielded for those that were hit.
        scanner: searches new content, names, link targets and attributes for canaries.
        content_sink: called with (sha256, bytes) for changed files of at most ``limits.content_bytes``.
        started: when the world started (seconds since the epoch), to tell a directory time that was set from one that
            moved by itself.
        ignore: paths inside the world, with all below them, that the world itself made (mount points).

    Yields:
        ``change`` records, and ``limit`` and ``witness`` records in between. A file that was copied up and equals the
        lower one in content and metadata is no change. A removed directory is one record, not one for each file in it.

    Raises:
        OSError: one of the two directories themselves cannot be read.
    """
    reader = _Reader("overlay", limits or WalkLimits(), scanner, content_sink)
    started_ns = None if started is None else int(started * 1e9)
    skip = frozenset(ignore)
    root = target.rstrip("/") or "/"
    if lower is not None:
        yield from _root_change(reader, upper, lower, root)
    # Paths relative to the layers' roots; descriptors are opened on demand, so depth costs none.
    pending: list[tuple[str, str | None, bool, int]] = [("", "" if lower is not None else None, False, 0)]
    while pending:
        path, lower_path, opaque, depth = pending.pop()
        shown = _join(root, path) if path else root
        directories = []
        try:
            up = _open_directory(upper, path)
            directories.append(up)
            names = sorted(os.listdir(up))
            down = None
            if lower is not None and lower_path is not None:
                down = _open_lower(lower, lower_path)
                if down is not None:
                    directories.append(down)
            deeper: list[tuple[str, str | None, bool, int]] = []
            going = True
            for name in names:
                if _join(shown, name) in skip:
                    continue
                going = reader.go_on()
                if not going:
                    break
                below_this = None if opaque else down
                step = _Entry(reader, up, below_this, lower_path, name, _join(shown, name), started_ns)
                yield from step.changes()
                if step.descend:
                    inside = f"{path}/{name}" if path else name
                    below = step.redirect
                    if below is None and step.has_lower_directory:
                        below = f"{lower_path}/{name}" if lower_path else name
                    deeper.append((inside, below, step.opaque, depth + 1))
            if going and opaque and down is not None:
                yield from _hidden(reader, down, frozenset(names), shown, skip)
            if depth >= reader.limits.depth and deeper:
                reader.limit("events", f"directories deeper than {reader.limits.depth}: {shown[:1024]} was not entered")
            else:
                pending += reversed(deeper)
        except OSError as e:
            if not path:
                raise
            reader.lost(shown, e)
            going = True
        finally:
            for fd in directories:
                os.close(fd)
        yield from reader.drain()
        if not going:
            return


def _open_lower(lower: int, path: str) -> int | None:
    try:
        return _open_directory(lower, path)
    except OSError as e:
        # Another mount on the host lies on it, or the host removed it meanwhile: the overlay shows nothing there.
        if e.errno in {errno.EXDEV, errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            return None
        raise


def _root_change(reader: _Reader, upper: int, lower: int, shown: str) -> Iterator[Record]:
    """The mount point itself: its owner and times are those of the layer the world made, its mode is comparable."""
    before = reader.item(lower, ".", os.stat(".", dir_fd=lower), shown)
    after = reader.item(upper, ".", os.stat(".", dir_fd=upper), shown)
    differing = []
    # The world gives itself access to its own layer.
    if after.mode != before.mode | 0o700 and after.mode != before.mode:
        differing.append("mode")
    if after.attributes != before.attributes and after.attributes:
        differing.append("xattr")
    if differing:
        yield _record(shown, "meta", before, after, differing)
    yield from reader.drain()


class _Entry:
    """One name in the upper layer, and what it means."""

    def __init__(
        self,
        reader: _Reader,
        up: int,
        down: int | None,
        lower_path: str | None,
        name: str,
        shown: str,
        started_ns: int | None,
    ) -> None:
        self._reader = reader
        self._up = up
        self._down = down
        self._lower_path = lower_path
        self._name = name
        self._shown = shown
        self._started_ns = started_ns
        self.descend = False
        self.opaque = False
        self.redirect: str | None = None
        self.has_lower_directory = False

    def changes(self) -> Iterator[Record]:
        reader, name, shown = self._reader, self._name, self._shown
        info = reader.stat(self._up, name)
        if info is None:
            return
        below = reader.stat(self._down, name) if self._down is not None else None
        if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:  # a whiteout; no program can make one through an overlay
            if below is not None and self._down is not None:
                yield _record(shown, "deleted", reader.item(self._down, name, below, shown), None)
            return
        where = self._down
        after: Item | None = None
        if stat.S_ISDIR(info.st_mode):
            after = reader.item(self._up, name, info, shown)
            self.descend = True
            self.opaque = after.overlay.get("opaque") in {b"y", b"x"}
            redirect = after.overlay.get("redirect")
            if redirect is not None:
                # Absolute from the root of the layer, or a name beside this one.
                origin = os.fsdecode(redirect)
                beside = f"{self._lower_path}/{origin}" if self._lower_path else origin
                yield from self._moved(origin.strip("/") if origin.startswith("/") else beside, info)
                return
            self.has_lower_directory = below is not None and stat.S_ISDIR(below.st_mode)
        if below is None or where is None:
            after = reader.item(self._up, name, info, shown, changed=True)
            if "whiteout" not in after.overlay:
                yield _record(shown, "created", None, after)
            return
        before = reader.item(where, name, below, shown)
        if stat.S_IFMT(info.st_mode) != stat.S_IFMT(below.st_mode):
            yield _record(shown, "replaced", before, reader.item(self._up, name, info, shown, changed=True))
            return
        if after is None:
            after = reader.item(self._up, name, info, shown, changed=info.st_size != below.st_size)
        if "whiteout" in after.overlay:
            yield _record(shown, "deleted", before, None)
            return
        if "metacopy" in after.overlay:
            after.digest, after.magic = before.digest, before.magic
        differing = differences(before, after, started_ns=self._started_ns)
        if not differing:
            return
        if after.kind != "dir" and info.st_size == below.st_size and "metacopy" not in after.overlay:
            after = reader.item(self._up, name, info, shown, changed=True)
        yield _record(shown, "modified" if "content" in differing else "meta", before, after, differing)

    def _moved(self, origin: str, info: os.stat_result) -> Iterator[Record]:
        """A renamed lower directory: the upper one names where its content comes from (``redirect_dir=on``)."""
        record = _record(
            self._shown, "created", None, self._reader.item(self._up, self._name, info, self._shown, changed=True)
        )
        record["from"] = origin
        self.redirect = origin
        yield record


def _hidden(reader: _Reader, down: int, present: frozenset[str], shown: str, skip: frozenset[str]) -> Iterator[Record]:
    """What an opaque directory hides of the lower one: it was deleted."""
    for name in sorted(os.listdir(down)):
        path = _join(shown, name)
        if name in present or path in skip:
            continue
        if not reader.go_on():
            return
        info = reader.stat(down, name)
        if info is not None:
            yield _record(path, "deleted", reader.item(down, name, info, path), None)


# --- before and after ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Snapshot:
    """A tree as it was: ``items`` by path relative to its root, and notes about what could not be read.

    ``complete`` is false when some path was not looked at; its absence from ``items`` then means nothing.
    """

    items: dict[str, Item]
    notes: list[Record]
    complete: bool


def snapshot(
    directory: int,
    *,
    limits: WalkLimits | None = None,
    previous: Snapshot | None = None,
    scanner: Scanner | None = None,
    content_sink: Callable[[str, bytes], None] | None = None,
    ignore: Collection[str] = (),
) -> Snapshot:
    """Read a whole tree, for tiers without an overlay.

    Args:
        directory: descriptor of its root.
        limits: bounds; hit ones are noted in the result.
        previous: an earlier snapshot of the same tree. A file whose inode, size, modification and change time are the
            same keeps its digest unread: no unprivileged program can set the change time back.
        scanner: searches what is new or different from ``previous`` for canaries.
        content_sink: called with (sha256, bytes) for what is new or different.
        ignore: relative paths left out, with all below them.

    Raises:
        OSError: the root itself cannot be read.
    """
    reader = _Reader("walk", limits or WalkLimits(), scanner, content_sink)
    skip = frozenset(ignore)
    old = previous.items if previous is not None else {}
    items: dict[str, Item] = {}
    pending = [("", 0)]
    going = complete = True
    while pending and going:
        path, depth = pending.pop()
        try:
            fd = _open_directory(directory, path)
        except OSError as e:
            if not path:
                raise
            reader.lost(path, e)
            complete = False
            continue
        try:
            deeper = []
            for name in sorted(os.listdir(fd)):
                inside = f"{path}/{name}" if path else name
                if inside in skip:
                    continue
                going = reader.go_on()
                if not going:
                    break
                info = reader.stat(fd, name)
                if info is None:
                    continue
                known = old.get(inside)
                if known is not None and known.digest is not None and _unchanged(known, info):
                    items[inside] = known
                else:
                    items[inside] = reader.item(fd, name, info, inside, changed=previous is not None)
                if stat.S_ISDIR(info.st_mode):
                    deeper.append((inside, depth + 1))
            if depth >= reader.limits.depth and deeper:
                reader.limit("events", f"directories deeper than {reader.limits.depth}: {path[:1024]} was not entered")
                complete = False
            else:
                pending += reversed(deeper)
        except OSError as e:
            reader.lost(path, e)
            complete = False
        finally:
            os.close(fd)
    return Snapshot(items, reader.notes, complete and going)


def _unchanged(known: Item, info: os.stat_result) -> bool:
    return (known.inode, known.size, known.mtime_ns, known.ctime_ns) == (
        (info.st_dev, info.st_ino),
        info.st_size,
        info.st_mtime_ns,
        info.st_ctime_ns,
    )


def compare(before: Snapshot, after: Snapshot, target: str, *, started: float | None = None) -> Iterator[Record]:
    """Yield the ``change`` records between two snapshots, parents before children; then the notes of both.

    ``target`` is the absolute path of the tree inside the world; ``started`` as for :func:`walk_upper`.
    """
    started_ns = None if started is None else int(started * 1e9)
    root = target.rstrip("/") or "/"
    gone: set[str] = set()
    for path in sorted(before.items.keys() | after.items.keys(), key=lambda p: p.split("/")):
        old, new = before.items.get(path), after.items.get(path)
        shown = _join(root, path)
        if new is None and old is not None:
            if not after.complete:
                continue
            # A removed directory is one record.
            parent = path.rpartition("/")[0]
            if parent not in gone and not _replaced(before, after, parent):
                yield _record(shown, "deleted", old, None)
            gone.add(path)
        elif old is None:
            if before.complete:
                yield _record(shown, "created", None, new)
        elif new is not None and new is not old:
            if old.kind != new.kind:
                yield _record(shown, "replaced", old, new)
                continue
            differing = differences(old, new, started_ns=started_ns)
            if differing:
                yield _record(shown, "modified" if "content" in differing else "meta", old, new, differing)
    yield from before.notes
    yield from after.notes


def _replaced(before: Snapshot, after: Snapshot, path: str) -> bool:
    """A directory is now something else: the record of that stands for all that was in it."""
    old, new = before.items.get(path), after.items.get(path)
    return old is not None and new is not None and old.kind != new.kind
