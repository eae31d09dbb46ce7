"""Which system calls are heard of: the tables, and the filter as the kernel would run it."""

from __future__ import annotations

import errno
import re
import signal
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.world import _linux as linux
from aboveboard.world import _numbers, syscalls

NOTIFY, ALLOW, ABSENT = linux.SECCOMP_RET_USER_NOTIF, linux.SECCOMP_RET_ALLOW, linux.SECCOMP_RET_ERRNO | errno.ENOSYS
TABLES = {"x86_64": _numbers.X86_64, "i386": _numbers.I386, "aarch64": _numbers.AARCH64}
CLASSES = {
    name: getattr(syscalls, name)
    for name in (
        *("OPEN", "EXEC", "NAMES", "METADATA", "NETWORK", "TASKS", "SIGNALS", "CONTROL", "MEMORY", "PLACEMENT"),
        *("REFUSED", "ABSENT_NOTIFIED", "ABSENT"),
    )
}
CONDITIONAL = {"sendto", "socket", "prctl", "ioctl", "tgkill", "unshare", "seccomp", "close_range", "setsockopt"}
BPF_MAXINSNS = 4096
HIGH = 1 << 32

native_only = pytest.mark.skipif(linux.ARCH not in TABLES, reason="no table for this machine")
with_i386 = pytest.mark.skipif(syscalls.FOREIGN is None, reason="this kernel runs no second instruction set")
pytestmark = native_only


def run(program: bytes, arch: int, number: int, args: tuple[int, ...] = ()) -> int:
    """What the kernel's classic BPF machine returns for one call (seccomp(2), ``struct seccomp_data``)."""
    padded = (*args, *(0,) * (6 - len(args)))
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, arch, 0x7F00_0000_1000, *(a & (1 << 64) - 1 for a in padded))
    code = list(struct.iter_unpack("=HBBI", program))
    accumulator, at = 0, 0
    while True:
        opcode, yes, no, k = code[at]
        at += 1
        if opcode == 0x20:  # BPF_LD | BPF_W | BPF_ABS: seccomp takes aligned words only
            assert k % 4 == 0
            (accumulator,) = struct.unpack_from("=I", data, k)
        elif opcode == 0x54:  # BPF_ALU | BPF_AND | BPF_K
            accumulator &= k
        elif opcode == 0x05:  # BPF_JMP | BPF_JA
            at += k
        elif opcode == 0x15:  # BPF_JEQ
            at += yes if accumulator == k else no
        elif opcode == 0x35:  # BPF_JGE
            at += yes if accumulator >= k else no
        elif opcode == 0x45:  # BPF_JSET
            at += yes if accumulator & k else no
        elif opcode == 0x06:  # BPF_RET | BPF_K
            return k
        else:
            raise AssertionError(f"instruction {opcode:#x} is none of those the filter is made of")


@pytest.fixture(scope="module")
def program() -> bytes:
    return syscalls.build_filter()


def native(program: bytes, name: str, *args: int) -> int:
    return run(program, linux.AUDIT_ARCH, linux.NUMBERS[name], args)


def wanted(name: str) -> int:
    return ABSENT if name in syscalls.ABSENT else NOTIFY if name in syscalls.NOTIFIED else ALLOW


# --- the tables ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
def test_given_a_table_when_read_backwards_then_no_number_means_two_calls(table: str) -> None:
    numbers = list(TABLES[table].values())
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("kind", CLASSES)
def test_given_a_class_when_its_names_are_looked_up_then_each_is_a_call_of_some_machine(kind: str) -> None:
    known = set().union(*TABLES.values())
    assert CLASSES[kind] - known == set()


def test_given_two_classes_when_compared_then_no_call_is_in_both() -> None:
    names = [name for members in CLASSES.values() for name in members]
    assert sorted(names) == sorted(set(names))


def test_given_every_known_call_when_sorted_then_exactly_one_answer_exists() -> None:
    known = set().union(*TABLES.values())
    assert known == syscalls.ALLOWED | syscalls.NOTIFIED | syscalls.ABSENT
    assert not syscalls.ALLOWED & (syscalls.NOTIFIED | syscalls.ABSENT)


def test_given_calls_newer_than_2019_when_compared_then_all_machines_agree_on_their_number() -> None:
    for number in range(424, 512):
        names = {table: {n for n, v in numbers.items() if v == number} for table, numbers in TABLES.items()}
        found = [frozenset(n) for n in names.values() if n]
        assert len(set(found)) <= 1, f"{number}: {names}"


def headers(pattern: str) -> dict[str, int]:
    """Names and numbers of the first matching header of this machine."""
    for root in (Path("/usr/include"), Path(f"/usr/include/{linux.ARCH}-linux-gnu")):
        for path in sorted(root.glob(pattern)):
            lines = path.read_text(encoding="ascii", errors="replace").splitlines()
            found = (re.fullmatch(r"#define\s+__NR_(\w+)\s+(\d+)", line.strip()) for line in lines)
            return {m[1]: int(m[2]) for m in found if m}
    return {}


@pytest.mark.parametrize(
    ("table", "pattern"),
    [("x86_64", "asm*/unistd_64.h"), ("i386", "asm*/unistd_32.h"), ("aarch64", "asm-generic/unistd.h")],
)
def test_given_the_kernels_own_headers_when_compared_then_no_number_is_unknown_to_the_table(
    table: str, pattern: str
) -> None:
    theirs = headers(pattern) if table in (linux.ARCH, "i386") else {}
    theirs.pop("syscalls", None)  # the count, in the generic header
    theirs.pop("arch_specific_syscall", None)
    if not theirs:
        pytest.skip("these headers are not installed")
    ours = TABLES[table]
    assert {n: v for n, v in theirs.items() if v not in ours.values()} == {}
    assert {n: (v, ours[n]) for n, v in theirs.items() if ours.get(n, v) != v} == {}


# --- the filter: which call gets which answer ---------------------------------------------------------------------


def test_given_the_filter_when_measured_then_the_kernel_takes_it(program: bytes) -> None:
    assert len(program) % 8 == 0
    assert len(program) // 8 <= BPF_MAXINSNS


def test_given_the_filter_when_every_jump_is_followed_then_none_leaves_it(program: bytes) -> None:
    code = list(struct.iter_unpack("=HBBI", program))
    for at, (opcode, yes, no, k) in enumerate(code):
        if opcode & 7 == 5:
            targets = (k,) if opcode == 5 else (yes, no)
            assert all(at + 1 + t < len(code) for t in targets)
    assert code[-1][0] == 6


def test_given_every_native_call_without_conditions_when_filtered_then_it_gets_the_answer_of_its_class(
    program: bytes,
) -> None:
    names = [n for n in linux.NUMBERS if n not in CONDITIONAL]
    assert len(names) > 300
    answers = {name: native(program, name, 0xDEAD, HIGH - 1, 1 << 63) for name in names}
    assert answers == {name: wanted(name) for name in names}


@with_i386
def test_given_every_i386_call_when_filtered_then_it_gets_the_answer_of_its_class_whatever_its_arguments(
    program: bytes,
) -> None:
    names = list(_numbers.I386)
    assert len(names) > 380
    for args in ((), (1, 1, 6, 0, 0, 0), (HIGH - 1,) * 6):
        answers = {name: run(program, linux.AUDIT_ARCH_I386, _numbers.I386[name], args) for name in names}
        assert answers == {name: wanted(name) for name in names}


def test_given_a_number_no_table_has_when_filtered_then_it_is_notified(program: bytes) -> None:
    for arch, numbers in ((linux.AUDIT_ARCH, linux.NUMBERS), *([syscalls.FOREIGN] if syscalls.FOREIGN else [])):
        known = set(numbers.values())
        gaps = [n for n in (*range(1200), 1 << 16, (1 << 30) - 1, HIGH - 1, 1 << 31) if n not in known]
        assert gaps
        assert {n: run(program, arch, n) for n in gaps if run(program, arch, n) != NOTIFY} == {}


@pytest.mark.skipif(linux.ARCH != "x86_64", reason="x32 is an interface of x86-64")
def test_given_the_x32_form_of_any_call_when_filtered_then_it_is_notified(program: bytes) -> None:
    numbers = [*range(600), HIGH - 1 - syscalls.X32_BIT]
    assert {run(program, linux.AUDIT_ARCH, syscalls.X32_BIT | n) for n in numbers} == {NOTIFY}


@given(arch=st.integers(0, HIGH - 1), number=st.integers(0, 600))
def test_given_an_architecture_without_a_table_when_filtered_then_everything_is_notified(
    arch: int, number: int
) -> None:
    if arch not in syscalls.NAME_OF:
        assert run(syscalls.build_filter(), arch, number) == NOTIFY


@given(
    arch=st.sampled_from(sorted(syscalls.NAME_OF)),
    number=st.integers(0, HIGH - 1),
    args=st.tuples(*[st.integers(0, (1 << 64) - 1)] * 6),
)
def test_given_any_call_at_all_when_filtered_then_only_a_harmless_one_passes(
    arch: int, number: int, args: tuple[int, ...]
) -> None:
    answer = run(syscalls.build_filter(), arch, number, args)
    name = syscalls.NAME_OF[arch].get(number)
    assert answer in (NOTIFY, ALLOW, ABSENT)
    if answer == ALLOW:
        assert name in syscalls.ALLOWED or (name in CONDITIONAL and arch == linux.AUDIT_ARCH)
    if answer == ABSENT:
        assert name in syscalls.ABSENT


@with_i386
def test_given_no_table_for_the_second_instruction_set_when_filtered_then_all_of_it_is_notified() -> None:
    program = syscalls.build_filter(foreign=False)
    assert {run(program, linux.AUDIT_ARCH_I386, n) for n in _numbers.I386.values()} == {NOTIFY}


def test_given_another_action_for_effects_when_built_then_it_takes_the_place_of_notifying() -> None:
    program = syscalls.build_filter(linux.SECCOMP_RET_TRACE)
    assert native(program, "openat") == linux.SECCOMP_RET_TRACE
    assert run(program, 0x1234, 1) == linux.SECCOMP_RET_TRACE
    assert native(program, "read") == ALLOW


def test_given_calls_that_give_away_content_or_start_programs_when_filtered_then_all_are_notified(
    program: bytes,
) -> None:
    # Not taken from the classes: the list of what the oracle would be blind without.
    for name in (
        *("openat", "openat2", "execve", "execveat", "connect", "bind", "sendmsg", "sendmmsg", "unlinkat", "ptrace"),
        *("renameat2", "linkat", "symlinkat", "mkdirat", "fchmodat", "fchownat", "utimensat", "setxattr", "truncate"),
        *("mount", "setns", "pidfd_getfd", "process_vm_readv", "process_vm_writev", "io_uring_setup", "bpf"),
        *("open_by_handle_at", "open_tree", "kill", "clone", "memfd_create", "chroot", "userfaultfd", "keyctl"),
    ):
        assert native(program, name) == NOTIFY, name


# --- the filter: calls that matter only with some arguments -------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "answer"),
    [(0, ALLOW), (0x7FFF_0000, NOTIFY), (0x7F << 32, NOTIFY), (1, NOTIFY), (1 << 63, NOTIFY)],
    ids=["none", "low half", "high half only", "one", "top bit"],
)
def test_given_sendto_when_its_address_is_in_either_half_then_it_is_notified(
    program: bytes, address: int, answer: int
) -> None:
    assert native(program, "sendto", 3, 0x1000, 5, 0, address, 0) == answer


@pytest.mark.parametrize("flags", [0, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC])
@pytest.mark.parametrize(
    ("family", "kind", "protocol", "answer"),
    [
        (socket.AF_UNIX, socket.SOCK_STREAM, 0, ALLOW),
        (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, ALLOW),
        (socket.AF_NETLINK, socket.SOCK_RAW, 0, ALLOW),
        (socket.AF_INET, socket.SOCK_STREAM, 0, ALLOW),
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, ALLOW),
        (socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_UDP, ALLOW),
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP, NOTIFY),
        (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP, NOTIFY),
        (socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6, NOTIFY),
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW, NOTIFY),
        (socket.AF_INET, socket.SOCK_SEQPACKET, 132, NOTIFY),  # SCTP
        (socket.AF_INET, socket.SOCK_STREAM, 262, NOTIFY),  # MPTCP
        (socket.AF_INET, 6, 33, NOTIFY),  # DCCP
        (socket.AF_PACKET, socket.SOCK_RAW, 0, NOTIFY),
        (40, socket.SOCK_STREAM, 0, NOTIFY),  # AF_VSOCK: leaves the namespace
        (38, socket.SOCK_SEQPACKET, 0, NOTIFY),  # AF_ALG
        (0, socket.SOCK_STREAM, 0, NOTIFY),
        (HIGH - 1, socket.SOCK_STREAM, 0, NOTIFY),
    ],
)
def test_given_socket_when_its_family_type_or_protocol_is_unusual_then_it_is_notified(
    program: bytes, family: int, kind: int, protocol: int, flags: int, answer: int
) -> None:
    assert native(program, "socket", family, kind | flags, protocol) == answer


@pytest.mark.parametrize(
    ("option", "answer"),
    [(4, NOTIFY), (35, NOTIFY), (36, NOTIFY), (0x59616D61, NOTIFY), (15, ALLOW), (1, ALLOW), (38, ALLOW), (22, ALLOW)],
    ids=["DUMPABLE", "MM", "CHILD_SUBREAPER", "PTRACER", "NAME", "PDEATHSIG", "NO_NEW_PRIVS", "SECCOMP"],
)
def test_given_prctl_when_the_option_matters_then_it_is_notified(program: bytes, option: int, answer: int) -> None:
    assert native(program, "prctl", option, 1) == answer
    # The kernel takes the option as an int: bits above it must not hide it.
    assert native(program, "prctl", option | 0xABCD << 32, 1) == answer


@pytest.mark.parametrize(
    ("request_", "answer"),
    [(0x5412, NOTIFY), (0x541C, NOTIFY), (0x40086602, NOTIFY), (0x401C5820, NOTIFY), (0x5401, ALLOW), (0x5421, ALLOW)],
    ids=["TIOCSTI", "TIOCLINUX", "FS_IOC_SETFLAGS", "FS_IOC_FSSETXATTR", "TCGETS", "FIONBIO"],
)
def test_given_ioctl_when_the_request_matters_then_it_is_notified(program: bytes, request_: int, answer: int) -> None:
    assert native(program, "ioctl", 3, request_, 0x1000) == answer
    assert native(program, "ioctl", 3, request_ | 1 << 40, 0x1000) == answer


@pytest.mark.parametrize(
    ("number", "answer"),
    [(signal.SIGURG, ALLOW), (signal.SIGTERM, NOTIFY), (signal.SIGKILL, NOTIFY), (0, NOTIFY), (64, NOTIFY)],
)
def test_given_tgkill_when_it_is_not_a_go_preemption_then_it_is_notified(
    program: bytes, number: int, answer: int
) -> None:
    assert native(program, "tgkill", 100, 101, number) == answer


@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        (0, ALLOW),
        (0x200, ALLOW),  # CLONE_FS
        (0x400, NOTIFY),  # CLONE_FILES: a table of descriptors that the supervisor would not look at
        (0x80, NOTIFY),  # CLONE_NEWTIME
        *[(flag, NOTIFY) for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)],
        (0x10000200, NOTIFY),
    ],
)
def test_given_unshare_when_a_namespace_is_asked_for_then_it_is_notified(
    program: bytes, flags: int, answer: int
) -> None:
    assert native(program, "unshare", flags) == answer


@pytest.mark.parametrize(
    ("flags", "answer"), [(0, ALLOW), (1, ALLOW), (4, ALLOW), (8, NOTIFY), (9, NOTIFY), (0x28, NOTIFY)]
)
def test_given_seccomp_when_a_listener_of_its_own_is_asked_for_then_it_is_notified(
    program: bytes, flags: int, answer: int
) -> None:
    # The newest listener answers first: a candidate with one could let its own calls through unseen.
    assert native(program, "seccomp", 1, flags, 0x1000) == answer


@given(value=st.integers(0, (1 << 64) - 1))
def test_given_any_sendto_when_it_has_an_address_then_it_is_notified(value: int) -> None:
    assert native(syscalls.build_filter(), "sendto", 3, 0, 0, 0, value) == (NOTIFY if value else ALLOW)
