"""Which system calls the supervisor hears of, as data, and the seccomp filter made from it.

Three answers exist for a call: *allow* (hot and harmless: the class of effect it could serve has another witness),
*notify* (the supervisor decides, and records), *absent* (``ENOSYS`` at once, so that the C library falls back to
an older call whose arguments a filter can read). A number that is in no table is notified, recorded and refused.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from . import _numbers
from ._linux import (
    ARCH,
    AUDIT_ARCH,
    AUDIT_ARCH_I386,
    CLONE_FILES,
    CLONE_NEW_ANY,
    NUMBERS,
    SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO,
    SECCOMP_RET_USER_NOTIF,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPEN = _words("open openat openat2 creat")
EXEC = _words("execve execveat")
NAMES = _words(
    "rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat mkdir mkdirat rmdir truncate"
    " truncate64 mknod mknodat"
)
METADATA = _words(
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat chown32 fchown32 lchown32 utime utimes futimesat"
    " utimensat utimensat_time64 setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr"
    " removexattrat file_setattr"
)
NETWORK = _words("connect bind listen sendmsg sendmmsg sendto socket socketcall")
TASKS = _words("clone fork vfork")
SIGNALS = _words("kill tkill tgkill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo")
CONTROL = _words("prctl ioctl unshare seccomp close_range setsockopt")
ROUTING_OPTIONS = (3, 4, 5, 6, 54, 55, 57, 59)
"""IPv6 options (RFC 3542, and 2292 forms) that put routing, hop or destination headers into what is sent."""
MEMORY = _words("memfd_create")
UMASK = _words("umask")
"""Notified so that the mask is known without asking for it at every file that is created."""

PLACEMENT = _words("sched_getaffinity sched_setaffinity")
"""Notified only so that a caller does not notice on which processor it is kept (``placement``)."""

REFUSED = _words(
    "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd mount umount umount2 pivot_root chroot setns"
    " open_by_handle_at open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr"
    " bpf perf_event_open keyctl add_key request_key userfaultfd fanotify_init fanotify_mark"
    " init_module finit_module delete_module create_module get_kernel_syms query_module kexec_load kexec_file_load"
    " swapon swapoff reboot acct quotactl quotactl_fd syslog settimeofday stime clock_settime clock_settime64 adjtimex"
    " clock_adjtime clock_adjtime64 sethostname setdomainname iopl ioperm vhangup uselib lookup_dcookie nfsservctl"
    " modify_ldt vm86 vm86old statmount listmount ustat sysfs _sysctl afs_syscall vserver security tuxcall"
    " getpmsg putpmsg"
)
"""Calls with no place in an agent's task: recorded, then EPERM."""

ABSENT_NOTIFIED = _words("io_uring_setup io_uring_enter io_uring_register")
"""Recorded, then ENOSYS: programs that probe for the feature fall back to calls that can be seen."""

ABSENT = _words("clone3")
"""ENOSYS without a record: the C library tries it first for every thread and then uses ``clone``."""

NOTIFIED = (
    OPEN
    | EXEC
    | NAMES
    | METADATA
    | NETWORK
    | TASKS
    | SIGNALS
    | CONTROL
    | MEMORY
    | UMASK
    | PLACEMENT
    | REFUSED
    | ABSENT_NOTIFIED
)

ALLOWED = frozenset(_numbers.X86_64) | frozenset(_numbers.I386) | frozenset(_numbers.AARCH64)
ALLOWED -= NOTIFIED | ABSENT

FOREIGN = {"x86_64": (AUDIT_ARCH_I386, _numbers.I386)}.get(ARCH)
"""The second instruction set interface this kernel may run, with its table."""

NAME_OF: dict[int, dict[int, str]] = {AUDIT_ARCH: {number: name for name, number in NUMBERS.items()}}
if FOREIGN:
    NAME_OF[FOREIGN[0]] = {number: name for name, number in FOREIGN[1].items()}
ABI_OF = {AUDIT_ARCH: ARCH, AUDIT_ARCH_I386: "i386"}

X32_BIT = 0x40000000

# Classic BPF: code values of linux/bpf_common.h, offsets of struct seccomp_data. Jumps are relative, so blocks of
# instructions that end in a return on every path can be composed like expressions.
_LD, _JA, _JEQ, _JGE, _JSET, _RET, _AND = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06, 0x54
_OFF_NR, _OFF_ARCH = 0, 4
_INSTRUCTION = struct.Struct("=HBBI")
_Block = list[tuple[int, int, int, int]]


def _ret(action: int) -> _Block:
    return [(_RET, 0, 0, action)]


def _load(offset: int, then: _Block) -> _Block:
    return [(_LD, 0, 0, offset), *then]


def _arg(index: int, high: bool = False) -> int:
    """Offset of the low (or high) half of argument ``index`` (both supported machines are little-endian)."""
    return 16 + 8 * index + (4 if high else 0)


def _test(code: int, k: int, yes: _Block, no: _Block) -> _Block:
    if len(yes) < 256:
        return [(code, 0, len(yes), k), *yes, *no]
    return [(code, 1, 0, k), (_JA, 0, 0, len(yes)), *yes, *no]  # a conditional jump reaches 255 instructions


def _any_of(values: tuple[int, ...], yes: _Block, no: _Block) -> _Block:
    block = no
    for value in reversed(values):
        block = _test(_JEQ, value, yes, block)
    return block


def _conditions(notify: _Block) -> dict[str, _Block]:
    """The calls that matter only with some arguments."""
    allow = _ret(SECCOMP_RET_ALLOW)
    plain_type = _load(_arg(1), [(_AND, 0, 0, 0xF), *_any_of((1, 2), allow, notify)])
    plain_inet = _load(_arg(2), _any_of((0, 6, 17), plain_type, notify))
    return {
        # An address is given: argument 4 is not NULL.
        "sendto": _load(_arg(4), _test(_JEQ, 0, _load(_arg(4, high=True), _test(_JEQ, 0, allow, notify)), notify)),
        # AF_UNIX, AF_NETLINK; stream and datagram sockets of AF_INET and AF_INET6 with the usual protocols.
        "socket": _load(_arg(0), _any_of((1, 16), allow, _any_of((2, 10), plain_inet, notify))),
        # PR_SET_DUMPABLE, PR_SET_MM, PR_SET_CHILD_SUBREAPER, PR_SET_PTRACER
        "prctl": _load(_arg(0), _any_of((4, 35, 36, 0x59616D61), notify, allow)),
        # TIOCSTI, TIOCLINUX, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR
        "ioctl": _load(_arg(1), _any_of((0x5412, 0x541C, 0x40086602, 0x401C5820), notify, allow)),
        # SIGURG is how Go preempts its own threads, many times a second.
        "tgkill": _load(_arg(2), _any_of((23,), allow, notify)),
        # A program may restrict itself further; a notification listener of its own it may not have.
        "seccomp": _load(_arg(1), _test(_JSET, 8, notify, allow)),
        # Of the flags, only those that make a namespace matter.
        "unshare": _load(_arg(0), _test(_JSET, CLONE_NEW_ANY | CLONE_FILES, notify, allow)),
        # A descriptor table of a thread's own would hide sockets from the supervisor.
        "close_range": _load(_arg(2), _test(_JSET, 2, notify, allow)),
        # Options that send a packet elsewhere than its address says: source routes, extension headers.
        "setsockopt": _load(
            _arg(1),
            _test(
                _JEQ,
                41,
                _load(_arg(2), _any_of(ROUTING_OPTIONS, notify, allow)),
                _test(_JEQ, 0, _load(_arg(2), _any_of((4,), notify, allow)), allow),
            ),
        ),
    }


def _table(numbers: dict[str, int], notify: _Block, conditions: dict[str, _Block]) -> _Block:
    """A binary search over the numbers of one table; the accumulator holds the number."""
    allow, absent = _ret(SECCOMP_RET_ALLOW), _ret(SECCOMP_RET_ERRNO | 38)
    blocks = {
        number: absent if name in ABSENT else conditions.get(name, notify) if name in NOTIFIED else allow
        for name, number in numbers.items()
    }
    intervals: list[tuple[int, _Block]] = []
    for number in range(max(blocks) + 2):
        block = blocks.get(number, notify)
        if not intervals or intervals[-1][1] is not block:
            intervals.append((number, block))

    def search(low: int, high: int) -> _Block:
        if high - low == 1:
            return intervals[low][1]
        middle = (low + high) // 2
        return _test(_JGE, intervals[middle][0], search(middle, high), search(low, middle))

    return search(0, len(intervals))


@lru_cache(maxsize=4)
def build_filter(notify: int = SECCOMP_RET_USER_NOTIF, *, foreign: bool = True) -> bytes:
    """The filter as the kernel takes it. ``notify`` is the action for effects (or ``SECCOMP_RET_TRACE``).

    ``foreign``: the second instruction set interface has a table of its own; else every call of it is notified.

    The architecture is tested first, since numbers mean different calls on each; every x32 number is notified.
    """
    told = _ret(notify)
    native = _table(NUMBERS, told, _conditions(told))
    if ARCH == "x86_64":
        native = _test(_JGE, X32_BIT, told, native)
    other = told
    if FOREIGN and foreign:
        other = _test(_JEQ, FOREIGN[0], _load(_OFF_NR, _table(FOREIGN[1], told, {})), told)
    program = _load(_OFF_ARCH, _test(_JEQ, AUDIT_ARCH, _load(_OFF_NR, native), other))
    return b"".join(_INSTRUCTION.pack(code, jt, jf, k) for code, jt, jf, k in program)
