"""The Linux system calls that the standard library does not offer, through ctypes.

Every function raises ``OSError`` with the kernel's errno. Structures and constants are those of the
kernel's UAPI headers (``linux/seccomp.h``, ``linux/landlock.h``, ``linux/capability.h``, ``linux/mount.h``).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import stat
import struct
from typing import TYPE_CHECKING

from . import _numbers

if TYPE_CHECKING:
    from collections.abc import Callable

ARCH = platform.machine()
NUMBERS = {"x86_64": _numbers.X86_64, "aarch64": _numbers.AARCH64}.get(ARCH, {})
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}.get(ARCH, 0)
AUDIT_ARCH_I386 = 0x40000003

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


def syscall(name: str, *args: object) -> int:
    """Make the system call ``name``; arguments as for C. Raises OSError."""
    number = NUMBERS.get(name)
    if number is None:
        raise OSError(errno.ENOSYS, f"{name} is not known on {ARCH}")
    result: int = _syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result


# --- namespaces and mounts ---------------------------------------------------------------------------

CLONE_NEWTIME = 0x00000080
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_NEW_ANY = (
    CLONE_NEWTIME
    | CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET
)
CLONE_UNTRACED = 0x00800000
CLONE_THREAD = 0x00010000
CLONE_FILES = 0x00000400
PIDFD_THREAD = 0x80

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2


def unshare(flags: int) -> None:
    """unshare(2)."""
    syscall("unshare", flags)


def mount(source: str, target: str, fstype: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Strings may hold surrogate-escaped bytes."""
    syscall(
        "mount",
        ctypes.c_char_p(os.fsencode(source)),
        ctypes.c_char_p(os.fsencode(target)),
        ctypes.c_char_p(fstype.encode()),
        flags,
        ctypes.c_char_p(os.fsencode(data)),
    )


def umount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    syscall("umount2", ctypes.c_char_p(os.fsencode(target)), flags)


def pivot_root(new_root: str, put_old: str) -> None:
    """pivot_root(2)."""
    syscall("pivot_root", ctypes.c_char_p(os.fsencode(new_root)), ctypes.c_char_p(os.fsencode(put_old)))


# --- process attributes --------------------------------------------------------------------------------

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_SET_CHILD_SUBREAPER = 36
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER = 0, 1, 2, 3
CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW = 10, 12, 13
CAP_SYS_PTRACE, CAP_SYS_ADMIN = 19, 21
CAP_LAST = 40


def prctl(option: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> int:
    """prctl(2)."""
    return syscall("prctl", option, a, b, c, d)


def set_name(name: str) -> None:
    """Set the name of the calling thread as ``/proc/self/comm`` shows it (15 bytes)."""
    syscall("prctl", PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)


def set_capabilities(permitted: set[int], effective: set[int]) -> None:
    """capset(2) on the calling thread; the inheritable set is cleared."""
    header = struct.pack("=Ii", 0x20080522, 0)
    masks = [sum(1 << c for c in caps) for caps in (effective, permitted)]
    data = b"".join(
        struct.pack("=III", masks[0] >> shift & 0xFFFFFFFF, masks[1] >> shift & 0xFFFFFFFF, 0) for shift in (0, 32)
    )
    syscall("capset", ctypes.c_char_p(header), ctypes.c_char_p(data))


def effective_capabilities() -> int:
    """The effective capability mask of the calling thread."""
    header = struct.pack("=Ii", 0x20080522, 0)
    data = ctypes.create_string_buffer(24)
    syscall("capget", ctypes.c_char_p(header), data)
    low, _, _, high, _, _ = struct.unpack("=6I", data.raw)
    return int(low | high << 32)


def drop_all_capabilities() -> None:
    """Empty the bounding, ambient, permitted, effective and inheritable sets of the calling thread."""
    for cap in range(64):
        try:
            prctl(PR_CAPBSET_DROP, cap)
        except OSError:
            break
    try:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError:
        pass
    set_capabilities(set(), set())


def rename_argv(title: bytes) -> None:
    """Overwrite the command line that ``/proc/self/cmdline`` shows; never longer than the original."""
    with open("/proc/self/stat", "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if end > start:
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, title[: end - start - 1], len(title[: end - start - 1]))


# --- pidfds --------------------------------------------------------------------------------------------


def pidfd_open(pid: int, flags: int = 0) -> int:
    """pidfd_open(2); ``PIDFD_THREAD`` (Linux 6.9) for a thread that leads no process."""
    return syscall("pidfd_open", pid, flags)


def pidfd_getfd(pidfd: int, fd: int) -> int:
    """pidfd_getfd(2): a duplicate of another process's descriptor."""
    return syscall("pidfd_getfd", pidfd, fd, 0)


# --- seccomp -------------------------------------------------------------------------------------------

SECCOMP_SET_MODE_FILTER = 1
SECCOMP_GET_ACTION_AVAIL = 2
SECCOMP_FILTER_FLAG_NEW_LISTENER = 1 << 3
SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV = 1 << 5
SECCOMP_RET_KILL_PROCESS = 0x80000000
SECCOMP_RET_ERRNO = 0x00050000
SECCOMP_RET_USER_NOTIF = 0x7FC00000
SECCOMP_RET_TRACE = 0x7FF00000
SECCOMP_RET_ALLOW = 0x7FFF0000

NOTIF_SIZE, RESP_SIZE, ADDFD_SIZE = 80, 24, 24
IOCTL_RECV = 0xC0502100
IOCTL_SEND = 0xC0182101
IOCTL_ID_VALID = 0x40082102
IOCTL_ADDFD = 0x40182103
IOCTL_SET_FLAGS = 0x40082104
SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP = 1
ADDFD_FLAG_SETFD = 1
ADDFD_FLAG_SEND = 2
RESP_CONTINUE = 1

NOTIF = struct.Struct("=QIIiIQ6Q")  # id, pid, flags, nr, arch, ip, args
RESP = struct.Struct("=QqiI")  # id, val, error, flags
ADDFD = struct.Struct("=QIIII")  # id, flags, srcfd, newfd, newfd_flags


class _SockFprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install_filter(program: bytes, *, listener: bool = True) -> int:
    """Install a cBPF seccomp filter on the calling thread; returns the listener's descriptor (or 0).

    ``SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`` (Linux 5.19) is used where the kernel has it: without it a
    signal may interrupt a call that the supervisor already carried out.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = _SockFprog(len(program) // 8, ctypes.addressof(buffer))
    if not listener:
        return syscall("seccomp", SECCOMP_SET_MODE_FILTER, 0, ctypes.byref(fprog))
    flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
    try:
        return syscall("seccomp", SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(fprog))
    except OSError as e:
        if e.errno != errno.EINVAL:
            raise
    return syscall("seccomp", SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, ctypes.byref(fprog))


def wake_on_same_cpu(listener: int) -> None:
    """Have the kernel switch straight between a caller and the supervisor on one processor (Linux 6.6).

    Each trapped call is a hand-over and nobody else works meanwhile: waking an idle processor for it costs more than
    the answer. Kernels without the flag go on as before.
    """
    try:
        fcntl.ioctl(listener, IOCTL_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
    except OSError:
        pass


def notif_id_valid(listener: int, ident: int) -> bool:
    """True while the notified call is still waiting (so its pid still names the same task)."""
    try:
        fcntl.ioctl(listener, IOCTL_ID_VALID, struct.pack("=Q", ident))
    except OSError:
        return False
    return True


# --- reading another process's memory --------------------------------------------------------------------


class _Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class MemoryReader:
    """process_vm_readv(2) with buffers allocated once; not thread-safe.

    Reads are cut at page borders by the remote vector, so a string that ends just before an unmapped page is
    read whole.
    """

    SIZE = 1 << 16

    def __init__(self) -> None:
        self.on_refusal: Callable[[Callable[[], int]], int] | None = None
        self._buffer = ctypes.create_string_buffer(self.SIZE)
        self._view = memoryview(self._buffer).cast("B")
        self._local = _Iovec(ctypes.addressof(self._buffer), self.SIZE)
        self._remote = (_Iovec * 2)()
        self._local_ref = ctypes.byref(self._local)
        self._remote_ref = ctypes.byref(self._remote)
        self._call = _libc.process_vm_readv
        self._call.restype = ctypes.c_ssize_t
        self._call.argtypes = [
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_ulong,
            ctypes.c_void_p,
            ctypes.c_ulong,
            ctypes.c_ulong,
        ]

    def read(self, pid: int, address: int, size: int) -> bytes:
        """Up to ``size`` bytes; shorter at the end of the mapping. Raises OSError (EFAULT, EPERM, ESRCH)."""
        size = min(size, self.SIZE)
        first = min(size, 4096 - (address & 4095))
        remote = self._remote
        remote[0].base = address
        remote[0].len = first
        remote[1].base = address + first
        remote[1].len = size - first
        self._local.len = size
        count = 2 if size > first else 1
        got = self._call(pid, self._local_ref, 1, self._remote_ref, count, 0)
        if got < 0 and ctypes.get_errno() == errno.EPERM and self.on_refusal is not None:
            got = self.on_refusal(lambda: int(self._call(pid, self._local_ref, 1, self._remote_ref, count, 0)))
        if got < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return self._view[:got].tobytes()

    def string(self, pid: int, address: int, limit: int = 4096) -> bytes:
        """A NUL-terminated string of at most ``limit`` bytes. Raises OSError; ENAMETOOLONG without a NUL."""
        data = self.read(pid, address, 256)
        end = data.find(b"\0")
        if end >= 0:
            return data[:end]
        data = self.read(pid, address, limit)
        end = data.find(b"\0")
        if end >= 0:
            return data[:end]
        if len(data) < limit:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


def write_memory(pid: int, address: int, data: bytes) -> None:
    """process_vm_writev(2). Raises OSError."""
    buffer = ctypes.create_string_buffer(data, len(data))
    local = _Iovec(ctypes.addressof(buffer), len(data))
    remote = _Iovec(address, len(data))
    call = _libc.process_vm_writev
    call.restype = ctypes.c_ssize_t
    call.argtypes = _libc.process_vm_readv.argtypes
    if call(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) != len(data):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def openat2(dirfd: int, path: str, flags: int, mode: int, resolve: int) -> int:
    """openat2(2)."""
    how = struct.pack("=QQQ", flags, mode, resolve)
    return syscall("openat2", dirfd, ctypes.c_char_p(os.fsencode(path)), ctypes.c_char_p(how), len(how))


# --- Landlock --------------------------------------------------------------------------------------------

LANDLOCK_EXECUTE = 1 << 0
LANDLOCK_WRITE_FILE = 1 << 1
LANDLOCK_READ_FILE = 1 << 2
LANDLOCK_READ_DIR = 1 << 3
LANDLOCK_REMOVE_DIR = 1 << 4
LANDLOCK_REMOVE_FILE = 1 << 5
LANDLOCK_MAKE = sum(1 << n for n in range(6, 13))
LANDLOCK_REFER = 1 << 13
LANDLOCK_TRUNCATE = 1 << 14
LANDLOCK_OF_FILES = LANDLOCK_EXECUTE | LANDLOCK_WRITE_FILE | LANDLOCK_READ_FILE | LANDLOCK_TRUNCATE


def landlock_abi() -> int:
    """The Landlock ABI of the running kernel, asked by system call (0 = none)."""
    try:
        return syscall("landlock_create_ruleset", 0, 0, 1)
    except OSError:
        return 0


def landlock_ruleset(handled: int, rules: list[tuple[int, int]]) -> int:
    """A ruleset that forbids the ``handled`` rights but for ``rules``: (descriptor of a path, rights under it)."""
    attr = struct.pack("=Q", handled)
    ruleset = syscall("landlock_create_ruleset", ctypes.c_char_p(attr), len(attr), 0)
    for fd, rights in rules:
        allowed = rights & handled
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            allowed &= LANDLOCK_OF_FILES
        rule = struct.pack("=Qi", allowed, fd)
        syscall("landlock_add_rule", ruleset, 1, ctypes.c_char_p(rule), 0)
    return ruleset


def landlock_restrict(ruleset: int) -> None:
    """Restrict the calling thread and its children for good. Needs no_new_privs."""
    syscall("landlock_restrict_self", ruleset, 0)
