# ruff: noqa: B023 - every function made in a loop is called before the loop goes on
"""Calls at the edges of what the kernel defines, and what each answered: run natively and in a world, then compared.

A program of its own, with the standard library only: ``odd_calls.py`` prints a JSON object of name → outcome. An
outcome is an errno name or what came back. Started as root it first becomes an ordinary user, since a world's
programs are that. Nothing here may depend on the file system the box lies on.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import Callable

CALLS: dict[str, Callable[[], object]] = {}
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x200, 0x400, 0x1000
NOREPLACE, EXCHANGE = 1, 2
SHOWN_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_DSYNC | os.O_SYNC | os.O_NOATIME | os.O_PATH


def call(function: Callable[[], object]) -> Callable[[], object]:
    """Registers one call under its function's name."""
    CALLS[function.__name__] = function
    return function


def c(name: str, *args: object) -> int:
    """A C function; raises OSError with its errno."""
    result: int = getattr(libc, name)(*args)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def raw(number: int, *args: object) -> int:
    """A system call by its number (those from 424 on are the same on every machine)."""
    return c("syscall", ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))


def touch(path: str | bytes, content: bytes = b"", mode: int = 0o644) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.write(fd, content)
    os.close(fd)
    os.chmod(path, mode)


def mode_of(path: str) -> str:
    return oct(os.lstat(path).st_mode)


def opened(path: str | bytes, flags: int, mode: int = 0o666, dir_fd: int | None = None) -> str:
    """The status flags of a descriptor just opened, and whether it is close-on-exec."""
    fd = os.open(path, flags, mode, dir_fd=dir_fd)
    try:
        shown = fcntl.fcntl(fd, fcntl.F_GETFL) & SHOWN_FLAGS
        return f"flags {shown:#o} {'cloexec' if fcntl.fcntl(fd, fcntl.F_GETFD) & 1 else 'kept'}"
    finally:
        os.close(fd)


def names() -> list[str]:
    return sorted(os.fsencode(n).hex() for n in os.listdir("."))


# --- creation masks -----------------------------------------------------------------------------------------------


@call
def umask_of_open() -> object:
    os.umask(0o027)
    os.close(os.open("a", os.O_CREAT | os.O_WRONLY, 0o777))
    os.umask(0o777)
    os.close(os.open("b", os.O_CREAT | os.O_WRONLY, 0o777))
    os.umask(0)
    os.close(os.open("c", os.O_CREAT | os.O_WRONLY, 0o6755))
    return [mode_of(n) for n in "abc"]


@call
def umask_of_mkdir() -> object:
    os.umask(0o077)
    os.mkdir("a", 0o777)
    os.umask(0)
    os.mkdir("b", 0o1777)
    os.umask(0o007)
    os.mkdir("c", 0o7777)
    return [mode_of(n) for n in "abc"]


@call
def umask_of_mknod() -> object:
    os.umask(0o037)
    os.mkfifo("a", 0o666)
    os.mknod("b", stat.S_IFREG | 0o777)
    os.mknod("c", 0o777)  # no type: a regular file
    os.mknod("d", stat.S_IFSOCK | 0o777)
    return [mode_of(n) for n in "abcd"]


@call
def umask_of_a_thread() -> object:
    found: list[str] = []

    def work() -> None:
        os.close(os.open("a", os.O_CREAT | os.O_WRONLY, 0o666))
        found.append(mode_of("a"))

    os.umask(0o077)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found


@call
def mknod_of_a_device() -> object:
    os.mknod("a", stat.S_IFCHR | 0o666, os.makedev(1, 3))


@call
def mknod_of_a_whiteout() -> object:
    os.mknod("a", stat.S_IFBLK | 0o666, os.makedev(7, 0))


@call
def mknod_of_a_directory() -> object:
    os.mknod("a", stat.S_IFDIR | 0o777)


@call
def mknod_existing() -> object:
    touch("a")
    os.mknod("a")


# --- flags of open ------------------------------------------------------------------------------------------------


@call
def excl_on_a_file() -> object:
    touch("a")
    return opened("a", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


@call
def excl_on_a_link_to_nothing() -> object:
    os.symlink("gone", "a")
    try:
        return opened("a", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    finally:
        assert names() == [b"a".hex()]


@call
def excl_on_a_directory() -> object:
    os.mkdir("a")
    return opened("a", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


@call
def creat_through_a_link_to_nothing() -> object:
    os.symlink("gone", "a")
    opened("a", os.O_CREAT | os.O_WRONLY)
    return names()


@call
def creat_of_a_directory() -> object:
    os.mkdir("a")
    return opened("a", os.O_CREAT | os.O_RDONLY)


@call
def creat_by_its_own_call() -> object:
    os.umask(0o022)
    touch("a", b"old")
    os.close(c("creat", b"a", 0o777))
    os.close(c("creat", b"b", 0o777))
    return [os.stat("a").st_size, mode_of("a"), mode_of("b")]


@call
def nofollow_on_a_link() -> object:
    touch("a")
    os.symlink("a", "b")
    return opened("b", os.O_RDONLY | os.O_NOFOLLOW)


@call
def nofollow_creating_through_a_link() -> object:
    os.symlink("gone", "b")
    return opened("b", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW)


@call
def nofollow_on_a_file_behind_a_link() -> object:
    os.mkdir("a")
    touch("a/f")
    os.symlink("a", "b")
    return opened("b/f", os.O_RDONLY | os.O_NOFOLLOW)


@call
def path_of_a_link_itself() -> object:
    os.symlink("gone", "b")
    fd = os.open("b", os.O_PATH | os.O_NOFOLLOW)
    return [oct(os.fstat(fd).st_mode), os.readlink("", dir_fd=fd)]


@call
def path_then_read() -> object:
    touch("a", b"x")
    fd = os.open("a", os.O_PATH)
    return os.read(fd, 1)


@call
def path_then_fchmod() -> object:
    touch("a")
    os.fchmod(os.open("a", os.O_PATH), 0o600)


@call
def path_with_other_flags() -> object:
    touch("a")
    return opened("a", os.O_PATH | os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)


@call
def path_of_an_unreadable_file() -> object:
    touch("a", b"x", 0)
    return opened("a", os.O_PATH)


@call
def directory_on_a_file() -> object:
    touch("a")
    return opened("a", os.O_RDONLY | os.O_DIRECTORY)


@call
def directory_through_a_link() -> object:
    os.mkdir("a")
    os.symlink("a", "b")
    return opened("b", os.O_RDONLY | os.O_DIRECTORY)


@call
def directory_for_writing() -> object:
    os.mkdir("a")
    return opened("a", os.O_WRONLY)


@call
def directory_truncated() -> object:
    os.mkdir("a")
    return opened("a", os.O_RDONLY | os.O_TRUNC)


@call
def directory_to_be_created() -> object:
    return opened("a", os.O_RDONLY | os.O_DIRECTORY | os.O_CREAT)


@call
def access_mode_three() -> object:
    touch("a")
    fd = os.open("a", os.O_ACCMODE)
    try:
        return os.read(fd, 1)
    finally:
        os.close(fd)


@call
def read_only_truncation() -> object:
    touch("a", b"content")
    shown = opened("a", os.O_RDONLY | os.O_TRUNC)
    return [shown, os.stat("a").st_size]


@call
def flags_are_kept() -> object:
    touch("a")
    kinds = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_APPEND | os.O_WRONLY, os.O_NONBLOCK, os.O_SYNC, os.O_DSYNC)
    return [opened("a", flags | extra) for flags in kinds for extra in (0, os.O_CLOEXEC)]


@call
def flags_of_a_blocking_open_of_a_device() -> object:
    return [opened("/dev/null", f) for f in (os.O_RDWR, os.O_RDWR | os.O_NONBLOCK, os.O_WRONLY | os.O_APPEND)]


@call
def noatime_on_an_own_file() -> object:
    touch("a")
    return opened("a", os.O_RDONLY | os.O_NOATIME)


@call
def noatime_on_a_foreign_file() -> object:
    return opened("/etc/passwd", os.O_RDONLY | os.O_NOATIME)


@call
def appending_after_another_wrote() -> object:
    touch("a", b"one")
    first = os.open("a", os.O_WRONLY | os.O_APPEND)
    second = os.open("a", os.O_WRONLY | os.O_APPEND)
    os.write(first, b" two")
    os.write(second, b" three")
    with open("a", "rb") as f:
        return f.read().decode()


@call
def unknown_flags_are_ignored() -> object:
    touch("a")
    return opened("a", os.O_RDONLY | 1 << 30)


@call
def lowest_descriptor_first() -> object:
    touch("a")
    one, two, three = (os.open("a", os.O_RDONLY) for _ in range(3))
    os.close(two)
    again = os.open("a", os.O_RDONLY)
    return [two - one, three - two, again == two]


# --- nameless files -----------------------------------------------------------------------------------------------


@call
def tmpfile_for_reading() -> object:
    return opened(".", os.O_TMPFILE | os.O_RDONLY)


@call
def tmpfile_gets_a_name() -> object:
    os.umask(0o022)
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o666)
    os.write(fd, b"content")
    c("linkat", AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, b"a", AT_SYMLINK_FOLLOW)
    return [mode_of("a"), os.stat("a").st_size]


@call
def tmpfile_exclusive_gets_none() -> object:
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL)
    return c("linkat", AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, b"a", AT_SYMLINK_FOLLOW)


@call
def tmpfile_in_a_file() -> object:
    touch("a")
    return opened("a", os.O_TMPFILE | os.O_RDWR)


@call
def tmpfile_in_nothing() -> object:
    return opened("gone", os.O_TMPFILE | os.O_RDWR)


# --- slashes, dots, empty and long names --------------------------------------------------------------------------


def each(paths: list[str], attempt: Callable[[str], object]) -> dict[str, object]:
    return {path: outcome(lambda: attempt(path)) for path in paths}


@call
def slashes_in_open() -> object:
    touch("f")
    os.mkdir("d")
    os.symlink("d", "l")
    os.symlink("gone", "n")
    return each(
        ["f/", "f/.", "f/..", "d/", "d//", "d/.", "l/", "n/", "new/", "new/.", ".", "..", "./", "//tmp//"],
        lambda p: opened(p, os.O_RDONLY),
    ) | {f"creat {p}": outcome(lambda: opened(p, os.O_CREAT | os.O_WRONLY)) for p in ("f/", "new/", "d/", "n/", ".")}


@call
def slashes_in_mkdir() -> object:
    touch("f")
    os.symlink("gone", "n")
    made = ["a", "b/", "c//", "f", "f/", "n", "n/", ".", "..", "/", "a/.", "a/..", "x/y", "a/../z"]
    return [each(made, os.mkdir), names()]


@call
def slashes_in_rmdir() -> object:
    for name in ("a", "b", "c", "d"):
        os.mkdir(name)
    os.mkdir("d/e")
    touch("f")
    os.symlink("c", "l")
    return each(["a/", "b/.", "b/..", "d", "f", "f/", "l", "l/", ".", "..", "/", "gone", "b"], os.rmdir)


@call
def slashes_in_unlink() -> object:
    touch("f")
    touch("g")
    os.mkdir("d")
    os.symlink("d", "l")
    os.symlink("gone", "n")
    return each(["f/", "f", "d", "d/", "l/", "l", "n", ".", "..", "/", "g/.", "gone", "gone/"], os.unlink)


@call
def slashes_in_rename() -> object:
    touch("f")
    os.mkdir("d")
    os.mkdir("e")
    os.symlink("e", "l")
    pairs = [("f", "g/"), ("f/", "g"), ("d", "new/"), ("new/", "d"), ("d/", "d2"), (".", "x"), ("d2", "."), ("..", "x")]
    pairs += [("d2", "d2/sub"), ("/", "x"), ("l/", "m"), ("l", "m"), ("gone", "x"), ("f", "gone/x"), ("f", "f")]
    return [{f"{a} {b}": outcome(lambda: os.rename(a, b)) for a, b in pairs}, names()]


@call
def slashes_in_links() -> object:
    touch("f")
    os.mkdir("d")
    os.symlink("f", "l")
    made = {f"symlink {p}": outcome(lambda: os.symlink("t", p)) for p in ("a", "b/", "d", "d/", "f", ".", "gone/x")}
    made |= {f"link {p}": outcome(lambda: os.link("f", p)) for p in ("h", "i/", "d", "d/", "f", ".", "gone/x")}
    made |= {f"link of {p}": outcome(lambda: os.link(p, "j")) for p in ("d", "d/", "f/", "l/", "gone", ".")}
    made |= {f"readlink {p}": outcome(lambda: os.readlink(p)) for p in ("l", "l/", "f", "d", "gone", ".")}
    return [made, names()]


@call
def empty_paths() -> object:
    touch("f")
    return {
        "open": outcome(lambda: opened("", os.O_RDONLY)),
        "creat": outcome(lambda: opened("", os.O_CREAT | os.O_WRONLY)),
        "mkdir": outcome(lambda: os.mkdir("")),
        "mknod": outcome(lambda: os.mknod("")),
        "rmdir": outcome(lambda: os.rmdir("")),
        "unlink": outcome(lambda: os.unlink("")),
        "rename from": outcome(lambda: os.rename("", "g")),
        "rename to": outcome(lambda: os.rename("f", "")),
        "link from": outcome(lambda: os.link("", "g")),
        "link to": outcome(lambda: os.link("f", "")),
        "symlink of": outcome(lambda: os.symlink("", "g")),
        "symlink at": outcome(lambda: os.symlink("f", "")),
        "truncate": outcome(lambda: os.truncate("", 0)),
        "chmod": outcome(lambda: os.chmod("", 0o600)),
        "chown": outcome(lambda: os.chown("", -1, -1)),
        "utime": outcome(lambda: os.utime("")),
        "exec": outcome(lambda: os.execv("", ["x"])),
        "at a descriptor": outcome(lambda: opened("", os.O_RDONLY, dir_fd=os.open(".", os.O_RDONLY))),
    }


@call
def long_names() -> object:
    lengths = (254, 255, 256, 1000)
    return [
        {f"name {n}": outcome(lambda: opened("x" * n, os.O_CREAT | os.O_WRONLY)) for n in lengths},
        {f"mkdir {n}": outcome(lambda: os.mkdir("d" * n)) for n in lengths},
    ]


@call
def long_paths() -> object:
    os.mkdir("d")

    def path(length: int) -> str:
        return "./" * ((length - 1) // 2) + ("d" if length % 2 else "/d")

    lengths = (4001, 4094, 4095, 4096, 4097, 5000, 70_001)
    return {
        "open": {n: outcome(lambda: opened(path(n), os.O_RDONLY)) for n in lengths},
        "mkdir": {n: outcome(lambda: os.mkdir(path(n))) for n in lengths},
        "rename": {n: outcome(lambda: os.rename(path(n), "d")) for n in lengths},
        "rmdir": {n: outcome(lambda: os.rmdir(path(n) + "x")) for n in lengths},
        "exec": {n: outcome(lambda: os.execv(path(n), ["x"])) for n in lengths},
        "symlink": {n: outcome(lambda: os.symlink("t" * n, f"l{n}")) for n in (4000, 4095, 4096)},
        "chmod": {n: outcome(lambda: os.chmod(path(n), 0o700)) for n in lengths},
    }


@call
def names_that_are_no_text() -> object:
    for name in (b"\xff\xfe", b"new\nline", b'quo"te', b"\x01", "né".encode(), b"\xed\xa0\x80", b" ", b"\\"):
        touch(name, name)
        os.rename(name, name + b"2")
        os.symlink(name, name)
        with open(name + b"2", "rb") as f:
            assert f.read() == name
    return names()


# --- bad pointers and descriptors ---------------------------------------------------------------------------------


@call
def bad_pointers() -> object:
    touch("f")
    bad, s = ctypes.c_void_p(8), ctypes.c_char_p
    unix = socket.socket(socket.AF_UNIX)
    inet = socket.socket()
    length = ctypes.c_uint(16)
    return {
        "open": outcome(lambda: c("open", bad, 0)),
        "open null": outcome(lambda: c("open", None, 0)),
        "mkdir": outcome(lambda: c("mkdir", bad, 0)),
        "rename from": outcome(lambda: c("rename", bad, s(b"x"))),
        "rename to": outcome(lambda: c("rename", s(b"f"), bad)),
        "link": outcome(lambda: c("link", s(b"f"), bad)),
        "symlink": outcome(lambda: c("symlink", bad, s(b"x"))),
        "unlink": outcome(lambda: c("unlink", bad)),
        "truncate": outcome(lambda: c("truncate", bad, ctypes.c_long(0))),
        "chmod": outcome(lambda: c("chmod", bad, 0o600)),
        "exec": outcome(lambda: c("execve", bad, None, None)),
        "connect": outcome(lambda: c("connect", inet.fileno(), bad, length)),
        "connect unix": outcome(lambda: c("connect", unix.fileno(), bad, length)),
        "bind": outcome(lambda: c("bind", inet.fileno(), bad, length)),
        "sendmsg": outcome(lambda: c("sendmsg", inet.fileno(), bad, 0)),
        "openat2": outcome(lambda: raw(437, AT_FDCWD, s(b"f"), bad, 24)),
        "setxattr": outcome(lambda: c("setxattr", s(b"f"), bad, None, ctypes.c_size_t(0), 0)),
    }


@call
def descriptors_as_starting_points() -> object:
    os.mkdir("d")
    touch("d/f")
    touch("f")
    directory, handle, plain = os.open("d", os.O_RDONLY), os.open("d", os.O_PATH), os.open("f", os.O_RDONLY)
    reader, _ = os.pipe()
    starts = {"directory": directory, "handle": handle, "file": plain, "pipe": reader, "closed": 900, "negative": -1}
    found: dict[str, object] = {
        name: outcome(lambda: opened("f", os.O_RDONLY, dir_fd=fd)) for name, fd in starts.items()
    }
    found |= {f"absolute {n}": outcome(lambda: opened("/dev/null", 0, dir_fd=fd)) for n, fd in starts.items()}
    found |= {f"mkdir {n}": outcome(lambda: os.mkdir("m", dir_fd=fd)) for n, fd in starts.items()}
    found |= {f"unlink {n}": outcome(lambda: os.unlink("f", dir_fd=fd)) for n, fd in starts.items()}
    return [found, names()]


@call
def bad_flags() -> object:
    touch("f")
    touch("g")
    s = ctypes.c_char_p
    return {
        "unlinkat": outcome(lambda: c("unlinkat", AT_FDCWD, s(b"f"), 0x400)),
        "unlinkat file as directory": outcome(lambda: c("unlinkat", AT_FDCWD, s(b"f"), AT_REMOVEDIR)),
        "linkat": outcome(lambda: c("linkat", AT_FDCWD, s(b"g"), AT_FDCWD, s(b"h"), 0x1)),
        "fchownat": outcome(lambda: c("fchownat", AT_FDCWD, s(b"g"), -1, -1, 0x1)),
        "utimensat": outcome(lambda: c("utimensat", AT_FDCWD, s(b"g"), None, 0x1)),
        "setxattr": outcome(lambda: c("setxattr", s(b"g"), s(b"user.a"), s(b"v"), ctypes.c_size_t(1), 8)),
        "truncate": outcome(lambda: os.truncate("g", -1)),
        "left": names(),
    }


@call
def too_many_open_files() -> object:
    touch("f")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    fds = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        while len(fds) < 100:
            fds.append(os.open("f", os.O_RDONLY))
    finally:
        highest = max(fds)
        creating = outcome(lambda: opened("made", os.O_CREAT | os.O_WRONLY))
        for fd in fds:
            os.close(fd)
        sys.stderr.write(f"{highest} {creating}\n")
    return None


@call
def a_file_grown_past_the_limit() -> object:
    touch("f")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    return [outcome(lambda: os.truncate("f", size)) for size in (4096, 4097, 1 << 40)] + [os.stat("f").st_size]


# --- a directory that is gone -------------------------------------------------------------------------------------


@call
def current_directory_gone() -> object:
    os.mkdir("d")
    os.chdir("d")
    os.rmdir("../d")
    found = {
        "open": outcome(lambda: opened("f", os.O_RDONLY)),
        "creat": outcome(lambda: opened("f", os.O_CREAT | os.O_WRONLY)),
        "dot": outcome(lambda: opened(".", os.O_RDONLY)),
        "up": outcome(lambda: opened("..", os.O_RDONLY)),
        "mkdir": outcome(lambda: os.mkdir("x")),
        "symlink": outcome(lambda: os.symlink("a", "b")),
        "unlink": outcome(lambda: os.unlink("x")),
        "rename": outcome(lambda: os.rename("x", "y")),
        "absolute": outcome(lambda: opened("/dev/null", os.O_RDONLY)),
    }
    os.chdir("/")
    return found


# --- permissions --------------------------------------------------------------------------------------------------


@call
def modes_that_forbid() -> object:
    touch("nothing", b"x", 0)
    touch("readable", b"x", 0o444)
    os.mkdir("closed")
    touch("closed/f")
    os.chmod("closed", 0o600)
    os.mkdir("fixed")
    touch("fixed/f")
    os.chmod("fixed", 0o555)
    found = {
        "read": outcome(lambda: opened("nothing", os.O_RDONLY)),
        "write": outcome(lambda: opened("readable", os.O_WRONLY)),
        "truncate": outcome(lambda: opened("readable", os.O_RDONLY | os.O_TRUNC)),
        "truncate call": outcome(lambda: os.truncate("readable", 0)),
        "through": outcome(lambda: opened("closed/f", os.O_RDONLY)),
        "create": outcome(lambda: opened("fixed/g", os.O_CREAT | os.O_WRONLY)),
        "create existing": outcome(lambda: opened("fixed/f", os.O_CREAT | os.O_WRONLY)),
        "unlink": outcome(lambda: os.unlink("fixed/f")),
        "mkdir": outcome(lambda: os.mkdir("fixed/d")),
        "mkdir existing": outcome(lambda: os.mkdir("fixed/f")),
        "rename": outcome(lambda: os.rename("fixed/f", "g")),
        "symlink": outcome(lambda: os.symlink("x", "fixed/l")),
        "link": outcome(lambda: os.link("readable", "fixed/l")),
        "tmpfile": outcome(lambda: opened("fixed", os.O_TMPFILE | os.O_RDWR)),
        "foreign chmod": outcome(lambda: os.chmod("/etc/passwd", 0o666)),
        "foreign write": outcome(lambda: opened("/etc/passwd", os.O_WRONLY)),
        "foreign unlink": outcome(lambda: os.unlink("/etc/passwd")),
        "foreign mkdir": outcome(lambda: os.mkdir("/etc/new")),
        "give away": outcome(lambda: os.chown("readable", 0, -1)),
        "keep": outcome(lambda: os.chown("readable", os.getuid(), os.getgid())),
    }
    os.chmod("closed", 0o700)
    os.chmod("fixed", 0o700)
    return found


@call
def programs_that_cannot_run() -> object:
    touch("data", b"x", 0o644)
    touch("empty", b"", 0o755)
    touch("garbage", b"\x00\x01\x02", 0o755)
    touch("orphan", b"#!/no/such/interpreter\n", 0o755)
    touch("circle", b"#!" + os.fsencode(os.path.abspath("circle")) + b"\n", 0o755)
    os.mkdir("dir")
    os.symlink("gone", "link")
    os.symlink("self", "self")
    programs = ["data", "empty", "garbage", "orphan", "circle", "dir", "link", "self", "gone", "data/x", "dir/"]
    return each(programs, lambda p: os.execv(p, [p]))


@call
def programs_that_are_running() -> object:
    shutil.copy(os.path.realpath("/bin/sleep"), "prog")
    os.chmod("prog", 0o755)
    child = os.posix_spawn("./prog", ["prog", "60"], {})
    try:
        return [
            outcome(lambda: opened("prog", os.O_WRONLY)),
            outcome(lambda: os.truncate("prog", 0)),
            outcome(lambda: opened("prog", os.O_RDONLY)),
        ]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


# --- names: links and renames -------------------------------------------------------------------------------------


@call
def link_loops() -> object:
    os.symlink("b", "a")
    os.symlink("a", "b")
    touch("end")
    os.symlink("end", "l0")
    for n in range(1, 45):
        os.symlink(f"l{n - 1}", f"l{n}")
    found = {
        "open": outcome(lambda: opened("a", os.O_RDONLY)),
        "creat": outcome(lambda: opened("a", os.O_CREAT | os.O_WRONLY)),
        "through": outcome(lambda: opened("a/x", os.O_RDONLY)),
        "chmod": outcome(lambda: os.chmod("a", 0o600)),
        "mkdir": outcome(lambda: os.mkdir("a/x")),
    }
    return found | {n: outcome(lambda: opened(f"l{n}", os.O_RDONLY)) for n in (0, 38, 39, 40, 41, 44)}


@call
def rename_with_flags() -> object:
    def content(name: str) -> str:
        with open(name, "rb") as f:
            return f.read().decode()

    touch("a", b"a")
    touch("b", b"b")
    os.mkdir("d")

    def renamed(old: bytes, new: bytes, flags: int) -> object:
        return outcome(lambda: c("renameat2", AT_FDCWD, old, AT_FDCWD, new, flags))

    found = [
        renamed(b"a", b"b", NOREPLACE),
        renamed(b"a", b"b", EXCHANGE),
        [content("a"), content("b")],
        renamed(b"a", b"gone", EXCHANGE),
        renamed(b"gone", b"a", EXCHANGE),
        renamed(b"a", b"d", EXCHANGE),
        renamed(b"a", b"a", EXCHANGE),
        renamed(b"a", b"a", NOREPLACE),
        renamed(b"a", b"new", EXCHANGE | NOREPLACE),
        renamed(b"a", b"new", 0x40),
        renamed(b"d", b"new", NOREPLACE),
        renamed(b"gone", b"a", NOREPLACE),
    ]
    return [found, names()]


@call
def rename_onto_things() -> object:
    touch("f")
    touch("g")
    for name in ("d", "e", "full"):
        os.mkdir(name)
    touch("full/x")
    os.link("f", "same")
    pairs = [("f", "d"), ("d", "f"), ("d", "full"), ("d", "e"), ("f", "same"), ("full", "full/sub"), ("f", "g")]
    return [{f"{a} {b}": outcome(lambda: os.rename(a, b)) for a, b in pairs}, names()]


@call
def hard_links() -> object:
    touch("f", b"x")
    os.symlink("f", "l")
    os.link("f", "two")
    os.link("l", "same link", follow_symlinks=False)
    os.link("l", "followed", follow_symlinks=True)
    return [os.stat("f").st_nlink, os.path.islink("same link"), os.path.islink("followed")]


@call
def truncations() -> object:
    touch("f", b"content")
    os.mkdir("d")
    os.mkfifo("p")
    os.symlink("f", "l")
    found = each(["d", "p", "gone", "f/", "/dev/null", "l"], lambda p: os.truncate(p, 3))
    os.truncate("f", 1 << 20)
    return [found, os.stat("f").st_size]


@call
def times_are_set() -> object:
    touch("f")
    os.symlink("f", "l")
    os.utime("f", ns=(10**18 + 7, 10**18 + 9))
    first = [os.stat("f").st_atime_ns, os.stat("f").st_mtime_ns]
    os.utime("l", ns=(5, 6), follow_symlinks=False)
    second = [os.stat("f").st_mtime_ns, os.lstat("l").st_mtime_ns]
    os.utime("l", ns=(-5, 12))
    return [first, second, os.stat("f").st_mtime_ns, outcome(lambda: os.utime("gone"))]


# --- openat2 ------------------------------------------------------------------------------------------------------


@call
def openat2_forms() -> object:
    os.mkdir("d")
    touch("d/f")
    touch("f")
    os.symlink("f", "d/l")
    os.symlink("/", "d/root")
    directory = os.open("d", os.O_PATH)

    def attempt(
        path: bytes, flags: int = 0, mode: int = 0, resolve: int = 0, extra: bytes = b"", size: int = 0
    ) -> object:
        how = struct.pack("=QQQ", flags, mode, resolve) + extra

        def do() -> object:
            fd = raw(437, directory, ctypes.c_char_p(path), ctypes.c_char_p(how), size or len(how))
            try:
                return oct(fcntl.fcntl(fd, fcntl.F_GETFL) & SHOWN_FLAGS)
            finally:
                os.close(fd)

        return outcome(do)

    no_xdev, no_magic, no_links, beneath, in_root = 1, 2, 4, 8, 16
    os.umask(0o027)
    found = {
        "plain": attempt(b"f"),
        "links refused": attempt(b"l", resolve=no_links),
        "links": attempt(b"l"),
        "beneath": attempt(b"../f", resolve=beneath),
        "beneath absolute": attempt(b"/dev/null", resolve=beneath),
        "beneath link": attempt(b"root/dev/null", resolve=beneath),
        "in root": attempt(b"/f", resolve=in_root),
        "in root up": attempt(b"../../../f", resolve=in_root),
        "in root link": attempt(b"root/f", resolve=in_root),
        "one file system": attempt(b"/proc/version", resolve=no_xdev),
        "no magic": attempt(b"/proc/self/fd/%d" % directory, resolve=no_magic),
        "both": attempt(b"f", resolve=beneath | in_root),
        "unknown resolve": attempt(b"f", resolve=0x8000),
        "unknown flags": attempt(b"f", flags=1 << 30),
        "high flags": attempt(b"f", flags=1 << 40),
        "mode without creation": attempt(b"f", mode=0o644),
        "creation": attempt(b"new", flags=os.O_CREAT | os.O_WRONLY, mode=0o666),
        "strange mode": attempt(b"new2", flags=os.O_CREAT | os.O_WRONLY, mode=1 << 40),
        "longer, zero": attempt(b"f", extra=bytes(8)),
        "longer, not zero": attempt(b"f", extra=b"\1" * 8),
        "shorter": attempt(b"f", size=16),
        "enormous": attempt(b"f", extra=bytes(4096)),
        "bytes": attempt(b"gone"),
    }
    return [found, mode_of("d/new")]


# --- FIFOs --------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def until_asleep(pid: int) -> None:
    """Waits until a child is blocked in the kernel: no other way to see that an open waits."""
    for _ in range(200_000):
        with open(f"/proc/{pid}/stat", "rb") as f:
            if f.read().rpartition(b")")[2].split()[0] == b"S":
                return
        os.sched_yield()
    raise TimeoutError


def say(path: str, flags: int, words: bytes) -> None:
    fd = os.open(path, flags)
    os.write(fd, words)
    os.close(fd)


def heard(path: str, flags: int = os.O_RDONLY) -> list[object]:
    fd = os.open(path, flags)
    try:
        shown = fcntl.fcntl(fd, fcntl.F_GETFL) & SHOWN_FLAGS
        select.select([fd], [], [], 5)
        data = b""
        while chunk := os.read(fd, 100):
            data += chunk
        return [data.decode(), oct(shown)]
    finally:
        os.close(fd)


@call
def fifo_reader_first() -> object:
    os.mkfifo("p")
    mine = os.getpid()

    def write_when_the_reader_waits() -> None:
        until_asleep(mine)
        say("p", os.O_WRONLY, b"hello")

    child = in_child(write_when_the_reader_waits)
    result = heard("p")
    return [result, os.waitpid(child, 0)[1]]


@call
def fifo_writer_first() -> object:
    os.mkfifo("p")
    child = in_child(lambda: say("p", os.O_WRONLY, b"hello"))
    until_asleep(child)
    return [heard("p"), os.waitpid(child, 0)[1]]


@call
def fifo_without_waiting() -> object:
    os.mkfifo("p")
    found = {"writer alone": outcome(lambda: opened("p", os.O_WRONLY | os.O_NONBLOCK))}
    reader = os.open("p", os.O_RDONLY | os.O_NONBLOCK)
    found["reader alone"] = oct(fcntl.fcntl(reader, fcntl.F_GETFL) & SHOWN_FLAGS)
    found["read at the end"] = outcome(lambda: os.read(reader, 10).decode())
    writer = os.open("p", os.O_WRONLY | os.O_NONBLOCK)
    found["read nothing yet"] = outcome(lambda: os.read(reader, 10))
    os.write(writer, b"x")
    found["read"] = os.read(reader, 10).decode()
    return found


@call
def fifo_blocking_writer_meets_a_reader_that_is_there() -> object:
    os.mkfifo("p")
    reader = os.open("p", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open("p", os.O_WRONLY)
    os.write(writer, b"x")
    again = os.open("p", os.O_WRONLY)
    os.write(again, b"y")
    return os.read(reader, 10).decode()


@call
def fifo_blocking_reader_meets_a_writer_that_is_there() -> object:
    os.mkfifo("p")
    both = os.open("p", os.O_RDWR)
    os.write(both, b"x")
    reader = os.open("p", os.O_RDONLY)
    return os.read(reader, 10).decode()


@call
def fifo_waiting_reader_meets_a_writer_that_does_not_wait() -> object:
    os.mkfifo("p")
    child = in_child(lambda: heard("p"))
    until_asleep(child)
    say("p", os.O_WRONLY | os.O_NONBLOCK, b"x")
    return os.waitpid(child, 0)[1]


@call
def fifo_waiting_writer_meets_a_reader_that_does_not_wait() -> object:
    os.mkfifo("p")
    child = in_child(lambda: say("p", os.O_WRONLY, b"hello"))
    until_asleep(child)
    reader = os.open("p", os.O_RDONLY | os.O_NONBLOCK)
    status = os.waitpid(child, 0)[1]
    return [status, os.read(reader, 10).decode()]


@call
def fifo_waiting_reader_meets_both_ends_in_one() -> object:
    os.mkfifo("p")
    child = in_child(lambda: os.read(os.open("p", os.O_RDONLY), 1))
    until_asleep(child)
    both = os.open("p", os.O_RDWR)
    os.write(both, b"x")
    return os.waitpid(child, 0)[1]


@call
def fifo_two_waiting_readers_meet_one_writer() -> object:
    os.mkfifo("p")
    children = [in_child(lambda: os.close(os.open("p", os.O_RDONLY))) for _ in range(2)]
    for child in children:
        until_asleep(child)
    os.close(os.open("p", os.O_WRONLY))
    return [os.waitpid(child, 0)[1] for child in children]


@call
def fifo_reader_killed_while_it_waits() -> object:
    os.mkfifo("p")
    child = in_child(lambda: heard("p"))
    until_asleep(child)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    alone = outcome(lambda: opened("p", os.O_WRONLY | os.O_NONBLOCK))
    other = in_child(lambda: say("p", os.O_WRONLY, b"later"))
    return [status, alone, heard("p"), os.waitpid(other, 0)[1]]


@call
def fifo_writer_killed_while_it_waits() -> object:
    os.mkfifo("p")
    child = in_child(lambda: say("p", os.O_WRONLY, b"never"))
    until_asleep(child)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    other = in_child(lambda: say("p", os.O_WRONLY, b"later"))
    return [status, heard("p"), os.waitpid(other, 0)[1]]


@call
def fifo_of_a_relative_directory() -> object:
    os.mkdir("d")
    os.mkfifo("d/p")
    directory = os.open("d", os.O_PATH)
    child = in_child(lambda: os.write(os.open("p", os.O_WRONLY, dir_fd=directory), b"hello"))
    until_asleep(child)
    return [heard("d/p"), os.waitpid(child, 0)[1]]


# --- names that mean the caller -----------------------------------------------------------------------------------


@call
def own_descriptors_by_name() -> object:
    touch("f", b"content")
    fd = os.open("f", os.O_RDONLY)
    reader, writer = os.pipe()
    os.write(writer, b"piped")
    found = {
        "proc": outcome(lambda: os.read(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY), 20).decode()),
        "dev": outcome(lambda: os.read(os.open(f"/dev/fd/{fd}", os.O_RDONLY), 20).decode()),
        "write": outcome(lambda: opened(f"/dev/fd/{fd}", os.O_WRONLY | os.O_APPEND)),
        "pipe": outcome(lambda: os.read(os.open(f"/dev/fd/{reader}", os.O_RDONLY), 20).decode()),
        "closed": outcome(lambda: opened("/dev/fd/900", os.O_RDONLY)),
        "not a number": outcome(lambda: opened("/dev/fd/x", os.O_RDONLY)),
        "below": outcome(lambda: opened(f"/dev/fd/{fd}/x", os.O_RDONLY)),
        "creating": outcome(lambda: opened(f"/dev/fd/{fd}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
    }
    os.unlink("f")
    found["unlinked"] = outcome(lambda: os.read(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY), 20).decode())
    return found


@call
def own_standard_input_by_name() -> object:
    reader, writer = os.pipe()
    os.write(writer, b"typed")
    os.close(writer)
    os.dup2(reader, 0)
    return [os.read(os.open("/dev/stdin", os.O_RDONLY), 20).decode(), outcome(lambda: opened("/proc/self/fd/0", 0))]


@call
def own_process_by_name() -> object:
    def read(path: str) -> str:
        with open(path, "rb") as f:
            return f.read(4096).decode("utf-8", "replace")

    with open("/proc/self/comm", "w") as f:
        f.write("renamed")
    touch("f", b"here")
    os.symlink("/proc/self/comm", "link")
    pid = os.getpid()
    status = dict(line.split(":\t", 1) for line in read("/proc/self/status").splitlines() if ":\t" in line)
    return {
        "pid": int(read("/proc/self/stat").split()[0]) == pid,
        "numbered": read(f"/proc/{pid}/comm"),
        "self": read("/proc/self/comm"),
        "dots": read("/proc/./self//comm"),
        "link": read("link"),
        "cwd": read("/proc/self/cwd/f"),
        "root": outcome(lambda: opened("/proc/self/root/dev/null", os.O_RDONLY)),
        "exe": outcome(lambda: opened("/proc/self/exe", os.O_RDONLY)),
        "status": int(status["Tgid"]) == pid,
        "relative": outcome(lambda: opened("self/comm", os.O_RDONLY, dir_fd=os.open("/proc", os.O_RDONLY))),
        "directory": outcome(lambda: opened("/proc/self", os.O_RDONLY | os.O_DIRECTORY)),
        "through the directory": outcome(lambda: opened("comm", 0, dir_fd=os.open("/proc/self", os.O_RDONLY))),
        "net": outcome(lambda: opened("/proc/net/dev", os.O_RDONLY)),
        "mounts": outcome(lambda: opened("/proc/mounts", os.O_RDONLY)),
        "missing": outcome(lambda: opened("/proc/self/nothing", os.O_RDONLY)),
        "directory for writing": outcome(lambda: opened("/proc/self", os.O_WRONLY)),
        "create": outcome(lambda: opened("/proc/self/new", os.O_CREAT | os.O_WRONLY)),
        "no process": outcome(lambda: opened("/proc/4999999/comm", os.O_RDONLY)),
        "mkdir": outcome(lambda: os.mkdir("/proc/self/new")),
        "unlink": outcome(lambda: os.unlink("/proc/self/comm")),
    }


@call
def own_thread_by_name() -> object:
    found: dict[str, object] = {}

    def work() -> None:
        tid = threading.get_native_id()
        with open("/proc/thread-self/comm", "w") as f:
            f.write("worker")
        with open("/proc/thread-self/stat", "rb") as f:
            found["own"] = int(f.read().split()[0]) == tid
        with open(f"/proc/self/task/{tid}/comm", "rb") as f:
            found["task"] = f.read().decode()
        with open("/proc/self/stat", "rb") as f:
            found["process"] = int(f.read().split()[0]) == os.getpid()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found


# --- sockets by name ----------------------------------------------------------------------------------------------


@call
def sockets_in_the_file_system() -> object:
    server = socket.socket(socket.AF_UNIX)
    server.bind("s")
    touch("f")
    found = {
        "open": outcome(lambda: opened("s", os.O_RDONLY)),
        "bind again": outcome(lambda: socket.socket(socket.AF_UNIX).bind("s")),
        "bind file": outcome(lambda: socket.socket(socket.AF_UNIX).bind("f")),
        "bind nowhere": outcome(lambda: socket.socket(socket.AF_UNIX).bind("gone/s")),
        "connect deaf": outcome(lambda: socket.socket(socket.AF_UNIX).connect("s")),
        "connect file": outcome(lambda: socket.socket(socket.AF_UNIX).connect("f")),
        "connect gone": outcome(lambda: socket.socket(socket.AF_UNIX).connect("gone")),
        "connect abstract": outcome(lambda: socket.socket(socket.AF_UNIX).connect(b"\0no-such-name")),
    }
    server.listen()
    found["connect"] = outcome(lambda: socket.socket(socket.AF_UNIX).connect("s"))
    return found


@call
def sockets_used_wrongly() -> object:
    s = ctypes.c_char_p
    inet = socket.socket()
    address = struct.pack("=H", 2) + struct.pack(">H", 9) + bytes([127, 0, 0, 1]) + bytes(8)
    length = ctypes.c_uint

    def connect(fd: int, data: bytes, size: int) -> object:
        return outcome(lambda: c("connect", fd, s(data), length(size)))

    with open(os.devnull) as null:
        found = {
            "not a socket": connect(null.fileno(), address, 16),
            "closed": connect(900, address, 16),
            "negative": connect(-1, address, 16),
            "short": connect(inet.fileno(), address, 3),
            "empty": connect(inet.fileno(), b"", 0),
            "family": connect(inet.fileno(), struct.pack("=H", 77) + bytes(14), 16),
            "other family": connect(inet.fileno(), struct.pack("=H", 1) + b"x" + bytes(13), 16),
            "enormous": connect(inet.fileno(), address, 1 << 31),
            "listen on nothing": outcome(lambda: c("listen", null.fileno(), 1)),
            "listen closed": outcome(lambda: c("listen", 900, 1)),
            "bind closed": outcome(lambda: c("bind", 900, s(address), length(16))),
            "bind foreign": outcome(lambda: socket.socket().bind(("192.0.2.77", 0))),
            "send unconnected": outcome(lambda: socket.socket().send(b"x")),
            "unknown family": outcome(lambda: socket.socket(123, socket.SOCK_STREAM)),
            "unknown type": outcome(lambda: socket.socket(socket.AF_INET, 9)),
            "wrong protocol": outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 17)),
        }
    return found


# --- running them -------------------------------------------------------------------------------------------------


def outcome(attempt: Callable[[], object]) -> object:
    """What came back, or the name of the errno."""
    try:
        result = attempt()
    except OSError as e:
        return errno.errorcode.get(e.errno or 0, str(e))
    except BlockingIOError as e:  # pragma: no cover - a subclass of OSError
        return str(e)
    return "ok" if result is None else result


def become_ordinary() -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(1000, 1000, 1000)
        os.setresuid(1000, 1000, 1000)
        libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: else /proc/self would be root's


def one(name: str, box: str) -> object:
    """The outcome of one call in a directory and a process of its own; ``hangs`` after some seconds."""
    os.mkdir(os.path.join(box, name))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.close(reader)
        os.chdir(os.path.join(box, name))
        os.umask(0o022)
        try:
            found = outcome(CALLS[name])
        except BaseException as e:
            found = f"{type(e).__name__}: {e}"
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    data = b""
    while select.select([reader], [], [], 10)[0]:
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            break
        data += chunk
    else:
        data = b'"hangs"'
    os.close(reader)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)
    return json.loads(data or b'"died"')


def main() -> None:
    become_ordinary()
    box = tempfile.mkdtemp(prefix="odd-calls-")
    chosen = sys.argv[1:] or list(CALLS)
    print(json.dumps({name: one(name, box) for name in chosen}))
    shutil.rmtree(box, ignore_errors=True)


if __name__ == "__main__":
    main()
