"""Calls about programs, processes and privileges: what is recorded, what is refused."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.world import Limits, World
from aboveboard.world import _linux as linux
from aboveboard.world.calls import Call
from aboveboard.world.programs import DigestCache, Programs, file_digest

if TYPE_CHECKING:
    from aboveboard.evidence import Event

HOME = "/home/dev"
BASE = 0x10000


# --- argument vectors, from memory that holds anything ------------------------------------------------------------


class Memory:
    """A caller's memory: one region at a base address; everything else faults."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.reads = 0

    def read(self, tid: int, address: int, size: int) -> bytes:
        self.reads += 1
        start = address - BASE
        if not 0 <= start < len(self.content):
            raise OSError(errno.EFAULT, "fault")
        return self.content[start : start + min(size, 1 << 16)]

    def string(self, tid: int, address: int, limit: int = 4096) -> bytes:
        data = self.read(tid, address, limit)
        end = data.find(b"\0")
        if end >= 0:
            return data[:end]
        raise OSError(errno.EFAULT if len(data) < limit else errno.ENAMETOOLONG, "no end")


def arguments(content: bytes, address: int, abi: str = linux.ARCH) -> tuple[list[bytes], Memory]:
    memory = Memory(content)
    supervisor = SimpleNamespace(log=None, memory=memory, limits=Limits())
    programs = Programs(supervisor, None, DigestCache())  # type: ignore[arg-type]
    return programs._arguments(Call(-1, 1, 1, 0, "execve", abi, (0,) * 6, 1), address), memory


def vector(words: list[bytes], size: int = 8) -> bytes:
    """An argument vector as it lies in memory, at ``BASE``."""
    start = BASE + size * (len(words) + 1)
    pointers, strings = b"", b""
    for word in words:
        pointers += (start + len(strings)).to_bytes(size, "little")
        strings += word + b"\0"
    return pointers + bytes(size) + strings


@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\0" not in b), max_size=20), st.sampled_from([8, 4]))
def test_given_an_argument_vector_when_read_then_its_words_are_those_of_the_caller(
    words: list[bytes], size: int
) -> None:
    abi = linux.ARCH if size == 8 else "i386"
    assert arguments(vector(words, size), BASE, abi)[0] == words


@given(st.binary(max_size=3000), st.integers(0, 1 << 64) | st.integers(BASE - 8, BASE + 3000))
def test_given_any_memory_when_an_argument_vector_is_read_then_it_is_bounded(content: bytes, address: int) -> None:
    fault, words, memory = 0, [], Memory(b"")
    try:
        words, memory = arguments(content, address)
    except OSError as problem:
        fault = problem.errno or -1
    assert fault in (0, errno.EFAULT)
    assert len(words) <= 130
    assert sum(map(len, words)) <= (16 << 10) + 2 * 4099
    assert memory.reads <= 3 * 130


def test_given_a_vector_without_an_end_when_read_then_only_so_many_words_are_taken() -> None:
    content = (BASE + 8 * 2000).to_bytes(8, "little") * 2000 + b"same\0"
    words, _ = arguments(content, BASE)
    assert 100 <= len(words) <= 130
    assert set(words) <= {b"same", b"..."}


def test_given_one_enormous_word_when_read_then_it_is_cut_and_says_so() -> None:
    words, _ = arguments(vector([b"tool", b"x" * 100_000, b"after"]), BASE)
    assert words[0] == b"tool"
    assert words[1] == b"x" * 4096 + b"..."


def test_given_no_vector_when_read_then_there_are_no_words() -> None:
    assert arguments(b"x", 0)[0] == []


# --- digests ------------------------------------------------------------------------------------------------------


def test_given_a_file_when_its_digest_is_made_then_it_is_that_of_its_content(tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "f").write_bytes(content)
    with open(tmp_path / "f", "rb") as f:
        assert file_digest(f.fileno()) == hashlib.sha256(content).hexdigest()
        assert f.tell() == 0


def test_given_digests_of_an_earlier_world_when_the_cache_is_opened_then_they_are_known(tmp_path: Path) -> None:
    path = tmp_path / "digests"
    (tmp_path / "tool").write_bytes(b"x")
    key = DigestCache.key(b"/usr/bin/\xfftool\n", (tmp_path / "tool").stat())
    for known in (None, "0" * 64):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        cache = DigestCache(fd)
        assert cache.get(key) == known
        cache.put(key, "0" * 64, lasting=True)
        os.close(fd)


@given(st.binary(max_size=500))
def test_given_any_bytes_in_the_cache_file_when_opened_then_it_is_no_error(content: bytes) -> None:
    reader = os.memfd_create("cache")
    try:
        os.write(reader, content)
        cache = DigestCache(reader)
        assert all(len(digest) == 64 for digest in cache._known.values())
    finally:
        os.close(reader)


def test_given_a_file_that_was_changed_and_dated_back_when_keyed_then_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "tool"
    path.write_bytes(b"good")
    before = path.stat()
    path.write_bytes(b"evil")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert DigestCache.key(b"/t", before) != DigestCache.key(b"/t", path.stat())


# --- in a world ---------------------------------------------------------------------------------------------------

in_a_world = pytest.mark.usefixtures("world_available")


def observed(program: str, **options: Any) -> tuple[Any, list[Event]]:
    with World(**options) as world:
        done = world.run([sys.executable, "-I", "-B", "-c", program], cwd=HOME, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout or b"null"), list(world.close().events())


def of(events: list[Event], kind: str) -> list[Event]:
    return [e for e in events if e.type == kind]


@in_a_world
def test_given_a_program_when_run_then_its_digest_arguments_and_resolved_path_are_recorded() -> None:
    _, events = observed("import subprocess; subprocess.run(['sh', '-c', ':', '\\udcff', 'new\\nline'])")
    started = [e for e in of(events, "exec") if e.texts("argv")[:1] == ("sh",) and e.result == "passed"]
    assert started
    assert started[-1].texts("argv") == ("sh", "-c", ":", "\udcff", "new\nline")
    shell = os.path.realpath("/bin/sh")
    assert started[-1].path == shell
    digest = hashlib.sha256(Path(shell).read_bytes()).hexdigest()
    assert started[-1].text("h256") == digest


@in_a_world
def test_given_a_program_without_a_file_when_run_then_it_is_said_to_be_one() -> None:
    program = """
import os
fd = os.memfd_create("helper", 0)
with open("/bin/true", "rb") as f: os.write(fd, f.read())
if os.fork() == 0: os.execve(fd, ["helper"], {})
print(os.WEXITSTATUS(os.wait()[1]))
"""
    answer, events = observed(program)
    assert answer == 0
    (run,) = [e for e in of(events, "exec") if e.flag("fileless")]
    assert run.text("h256") == hashlib.sha256(Path("/bin/true").resolve().read_bytes()).hexdigest()
    assert [e.text("n") for e in of(events, "probe") if e.syscall == "memfd_create"] == ["memfd:helper"]


@in_a_world
def test_given_a_program_that_was_unlinked_when_run_by_descriptor_then_it_is_without_a_file() -> None:
    program = """
import os, shutil
shutil.copy("/bin/true", "tool"); os.chmod("tool", 0o755)
fd = os.open("tool", os.O_RDONLY); os.unlink("tool")
if os.fork() == 0: os.execve(fd, ["tool"], {})
print(os.WEXITSTATUS(os.wait()[1]))
"""
    answer, events = observed(program)
    assert answer == 0
    assert len([e for e in of(events, "exec") if e.flag("fileless")]) == 1


REFUSALS = {
    "ptrace": "libc.ptrace(0, 0, 0, 0)",
    "unshare": "libc.unshare(0x10000000)",
    "mount": "libc.mount(b'none', b'/mnt', b'tmpfs', 0, None)",
    "setns": "libc.setns(0, 0)",
    "chroot": "libc.chroot(b'/tmp')",
    "umount2": "libc.umount2(b'/proc', 2)",
    "pivot_root": "libc.pivot_root(b'/tmp', b'/tmp')",
    "process_vm_readv": "libc.process_vm_readv(1, None, 0, None, 0, 0)",
    "clone": "libc.syscall(NR['clone'], 0x10000011, 0, 0, 0, 0)",
    "open_by_handle_at": "libc.open_by_handle_at(-100, b'12345678', 0)",
    "bpf": "libc.syscall(NR['bpf'], 0, 0, 0)",
    "keyctl": "libc.syscall(NR['keyctl'], 0, 0, 0)",
    "userfaultfd": "libc.syscall(NR['userfaultfd'], 0)",
    "pidfd_getfd": "libc.syscall(438, 0, 0, 0)",
    "move_mount": "libc.syscall(429, -1, b'', -1, b'', 0)",
    "prctl": "libc.prctl(35, 1, 0, 0, 0)",
    "seccomp": "libc.syscall(NR['seccomp'], 1, 8, FILTER)",
    "ioctl": "libc.ioctl(0, 0x5412, b'x')",
}


@in_a_world
def test_given_calls_with_no_place_in_a_task_when_made_then_each_is_refused_and_recorded() -> None:
    calls = "\n".join(f"attempt({name!r}, lambda: {call})" for name, call in REFUSALS.items())
    program = f"""
import ctypes, errno, json
libc = ctypes.CDLL(None, use_errno=True)
NR = {linux.NUMBERS!r}
code = ctypes.create_string_buffer(bytes([6, 0, 0, 0, 0, 0, 255, 127]), 8)
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
FILTER = ctypes.byref(Program(1, ctypes.addressof(code)))
found = {{}}
def attempt(name, call):
    found[name] = errno.errorcode[ctypes.get_errno()] if call() < 0 else "done"
{calls}
print(json.dumps(found))
"""
    answers, events = observed(program)
    assert answers == dict.fromkeys(REFUSALS, "EPERM")
    escapes = of(events, "escape")
    assert [e.syscall for e in escapes] == list(REFUSALS)
    assert {e.result for e in escapes} == {"denied"}


@in_a_world
@pytest.mark.parametrize("number", [400, 600, 100_000, 0x40000000 | 257, (1 << 31) - 1])
def test_given_a_number_that_is_no_call_when_made_then_it_is_recorded_and_answered_as_by_an_old_kernel(
    number: int,
) -> None:
    answer, events = observed(
        f"import ctypes; libc = ctypes.CDLL(None, use_errno=True); libc.syscall({number}, 0); print(ctypes.get_errno())"
    )
    assert answer == errno.ENOSYS
    (escape,) = of(events, "escape")
    assert (escape.syscall, escape.text("d"), escape.result) == ("unknown", f"number {number}", "denied")


@in_a_world
def test_given_features_that_would_hide_calls_when_probed_then_programs_are_told_to_do_without() -> None:
    program = """
import ctypes, json
libc = ctypes.CDLL(None, use_errno=True)
found = []
for number in (425, 426, 427, 435):
    libc.syscall(number, 0, 0, 0, 0, 0, 0)
    found.append(ctypes.get_errno())
print(json.dumps(found))
"""
    answers, events = observed(program)
    assert answers == [errno.ENOSYS] * 4
    assert [e.syscall for e in of(events, "escape")] == ["io_uring_setup", "io_uring_enter", "io_uring_register"]


SIGNALS = """
import os, signal, subprocess, sys
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
child = subprocess.Popen(["/bin/sleep", "60"])
os.kill(os.getpid(), signal.SIGUSR1)
os.kill(child.pid, signal.SIGUSR2)
child.wait()
reader, writer = os.pipe()
if os.fork() == 0:
    os.kill(os.getppid(), signal.SIGUSR1)
    os.write(writer, b"x"); os._exit(0)
os.read(reader, 1); os.wait()
try:
    os.kill(1, signal.SIGTERM)
except OSError:
    pass
"""


@in_a_world
def test_given_signals_when_sent_then_only_those_beyond_the_senders_descendants_are_recorded() -> None:
    _, events = observed(SIGNALS)
    sent = [(e.integer("to"), e.integer("sig")) for e in of(events, "signal")]
    parents = [to for to, sig in sent if sig == 10]
    assert len(parents) == 1
    assert (1, 15) in sent
    assert all(sig != 12 for _, sig in sent)


@in_a_world
def test_given_more_tasks_than_allowed_when_forked_then_the_call_fails_and_the_limit_is_recorded_once() -> None:
    program = """
import errno, os, time
made = []
try:
    for _ in range(200):
        pid = os.fork()
        if pid == 0:
            time.sleep(60); os._exit(0)
        made.append(pid)
    print(-1)
except OSError as e:
    print(e.errno)
for pid in made:
    os.kill(pid, 9)
"""
    answer, events = observed(program, limits=Limits(processes=40))
    assert answer == errno.EAGAIN
    assert len([e for e in of(events, "limit") if e.text("what") == "processes"]) == 1


@in_a_world
def test_given_a_caller_that_would_make_itself_unreadable_when_it_asks_then_it_is_told_yes_and_stays_readable() -> None:
    program = """
import ctypes, json, os
libc = ctypes.CDLL(None)
done = libc.prctl(4, 0, 0, 0, 0)
os.close(os.open("/tmp/afterwards", 65))
print(json.dumps(done))
"""
    answer, events = observed(program)
    assert answer == 0
    assert [e.text("n") for e in of(events, "probe") if e.syscall == "prctl"] == ["PR_SET_DUMPABLE=0"]
    assert [e.result for e in of(events, "open") if e.text("n") == "/tmp/afterwards"] == ["ok"]
