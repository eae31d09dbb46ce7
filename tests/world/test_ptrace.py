"""Tier P: every filtered call of every task is heard, answered, and cannot be slipped past."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aboveboard.world import _linux as linux
from aboveboard.world import ptrace
from aboveboard.world.ptrace import Continue, Errno, Outcome, Registers, Tracer, Unsupported, Value
from aboveboard.world.syscalls import build_filter

pytestmark = pytest.mark.skipif(not linux.NUMBERS, reason=f"tier P does not know {linux.ARCH}")

NAMES = {number: name for name, number in linux.NUMBERS.items()}
PYTHON = os.path.realpath(sys.executable)
ENV = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
# Where the name of the file stands among the arguments.
PATH_AT = {"open": 0, "openat": 1, "execve": 0, "mkdir": 0, "mkdirat": 1, "unlink": 0, "unlinkat": 1}


class Seen:
    """What a tracer heard, and the policy it answers with."""

    def __init__(self, policy: Callable[[str, str], Continue | Value] | None = None) -> None:
        self.calls: list[tuple[int, str, str]] = []
        self.results: dict[str, int] = {}
        self.tasks: dict[int, tuple[int, bool]] = {}
        self.execs: list[tuple[int, int]] = []
        self.exits: dict[int, int] = {}
        self.foreign: list[int] = []
        self.policy = policy
        self.tracer = Tracer(
            build_filter(linux.SECCOMP_RET_TRACE),
            self._call,
            on_foreign=lambda tid, arch, number: self.foreign.append(arch),
            on_task=lambda tid, parent, thread: self.tasks.__setitem__(tid, (parent, thread)),
            on_exec=lambda tid, former: self.execs.append((tid, former)),
            on_exit=self.exits.__setitem__,
        )

    def _call(self, tid: int, number: int, args: tuple[int, ...], read: ptrace.ReadMemory) -> Continue | Value:
        name = NAMES.get(number, str(number))
        path = ""
        if name in PATH_AT:
            path = read(args[PATH_AT[name]], 4096).split(b"\0")[0].decode("utf-8", "surrogateescape")
        self.calls.append((tid, name, path))
        if self.policy is not None:
            return self.policy(name, path)
        return Continue(lambda result: self.results.__setitem__(path, result)) if path else Continue()

    def paths(self, *names: str) -> list[str]:
        return [path for _, name, path in self.calls if name in names]


def run(seen: Seen, argv: list[str], cwd: Path | str = "/", **options: float) -> tuple[Outcome, str]:
    """Run to the end; returns how it ended and what it wrote to both outputs."""
    read, write = os.pipe()
    null = os.open("/dev/null", os.O_RDONLY)
    chunks: list[bytes] = []

    def drain() -> None:
        with os.fdopen(read, "rb") as f:
            chunks.append(f.read())

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        outcome = seen.tracer.run(argv, ENV, str(cwd), {0: null, 1: write, 2: write}, **options)
    except Unsupported as e:
        if "ptrace is refused" in str(e):
            pytest.skip(str(e))
        raise
    finally:
        os.close(write)
        os.close(null)
        reader.join()
    return outcome, b"".join(chunks).decode(errors="replace")


def python(seen: Seen, code: str, **options: float) -> tuple[Outcome, str]:
    return run(seen, [PYTHON, "-I", "-S", "-c", code], **options)


@pytest.fixture
def compile_c(tmp_path: Path) -> Callable[..., str]:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")

    def build(source: str, *flags: str) -> str:
        (tmp_path / "program.c").write_text(source)
        made = subprocess.run(
            [compiler, "-O1", "-o", tmp_path / "program", tmp_path / "program.c", *flags],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if made.returncode:
            pytest.skip(f"cannot compile here: {made.stderr[:200]}")
        return str(tmp_path / "program")

    return build


# --- calls ---------------------------------------------------------------------------------------------------


def test_an_open_is_heard_with_its_path_and_its_result() -> None:
    seen = Seen()
    outcome, text = python(seen, "print(open('/etc/hostname').read() != ''); open('/nowhere/at/all')")
    assert outcome.status == 1
    assert "FileNotFoundError" in text
    assert seen.results["/etc/hostname"] >= 3
    assert seen.results["/nowhere/at/all"] == -errno.ENOENT


def test_a_refused_call_does_not_happen(tmp_path: Path) -> None:
    seen = Seen(lambda name, path: Errno(errno.EACCES) if path.endswith("forbidden") else Continue())
    code = f"""
import os
try: os.mkdir({str(tmp_path / "forbidden")!r})
except PermissionError as e: print("refused")
os.mkdir({str(tmp_path / "allowed")!r})
"""
    outcome, text = python(seen, code)
    assert (outcome.status, text) == (0, "refused\n")
    assert os.listdir(tmp_path) == ["allowed"]


def test_a_call_can_be_answered_without_being_made(tmp_path: Path) -> None:
    seen = Seen(lambda name, path: Value(0) if name.startswith("mkdir") else Continue())
    outcome, text = python(seen, f"import os; os.mkdir({str(tmp_path / 'x')!r}); print('fine')")
    assert (outcome.status, text) == (0, "fine\n")
    assert os.listdir(tmp_path) == []


def test_the_exit_status_and_the_killing_signal_are_those_of_the_main_process() -> None:
    assert python(Seen(), "raise SystemExit(7)")[0].status == 7
    assert python(Seen(), "import os; os.kill(os.getpid(), 9)")[0].status == -9
    assert python(Seen(), "import os; os.abort()")[0].status == -6


def test_a_program_that_does_not_exist_is_an_error_that_names_it() -> None:
    with pytest.raises(FileNotFoundError):
        run(Seen(), ["/no/such/program"])


def test_an_exception_in_the_policy_ends_everything() -> None:
    def policy(name: str, path: str) -> Continue:
        if path == "/etc/hostname":
            raise RuntimeError("the policy is broken")
        return Continue()

    seen = Seen(policy)
    with pytest.raises(RuntimeError, match="broken"):
        python(seen, "open('/etc/hostname'); import time; time.sleep(60)")
    assert not alive(seen)


def test_only_the_given_descriptors_are_inherited() -> None:
    leak = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        _, text = python(Seen(), "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1])")
    finally:
        os.close(leak)
    assert text == "[0, 1, 2]\n"


def test_the_working_directory_and_the_environment_are_the_given_ones(tmp_path: Path) -> None:
    seen = Seen()
    _, text = run(seen, [PYTHON, "-I", "-S", "-c", "import os; print(os.getcwd(), os.environ['LANG'])"], tmp_path)
    assert text == f"{tmp_path} C.UTF-8\n"


# --- tasks ---------------------------------------------------------------------------------------------------


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def alive(seen: Seen) -> list[int]:
    return [tid for tid in seen.tasks if runs(tid)]


def test_calls_of_threads_are_heard() -> None:
    code = """
import threading
def look(n):
    try: open(f"/nowhere/{n}")
    except OSError: pass
threads = [threading.Thread(target=look, args=(n,)) for n in range(20)]
for t in threads: t.start()
for t in threads: t.join()
"""
    seen = Seen()
    outcome, _ = python(seen, code)
    assert outcome.status == 0
    assert {f"/nowhere/{n}" for n in range(20)} <= set(seen.paths("open", "openat"))
    assert sum(thread for _, thread in seen.tasks.values()) == 20
    assert set(seen.exits) == set(seen.tasks)


def test_subprocesses_by_vfork_are_heard_and_do_not_hang() -> None:
    code = "import subprocess; [subprocess.run(['/bin/cat', f'/nowhere/{n}'], stderr=-3) for n in range(5)]"
    seen = Seen()
    outcome, text = python(seen, code)
    assert (outcome.status, text) == (0, "")
    assert {f"/nowhere/{n}" for n in range(5)} <= set(seen.paths("open", "openat"))
    assert seen.paths("execve").count("/bin/cat") == 5


def test_a_shell_pipeline_works_and_each_program_is_heard() -> None:
    seen = Seen()
    outcome, text = run(seen, ["/bin/sh", "-c", "echo one two | cat | wc -w; exit 3"])
    assert (outcome.status, text.strip()) == (3, "2")
    assert {os.path.basename(p) for p in seen.paths("execve")} >= {"sh", "cat", "wc"}
    assert len(seen.execs) == 3


def test_an_orphan_that_left_its_session_is_still_heard_and_is_a_survivor() -> None:
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        try: open("/nowhere/late")
        except OSError: pass
        time.sleep(60)
    os._exit(0)
os.wait()
"""
    seen = Seen()
    begin = time.monotonic()
    outcome, _ = python(seen, code, grace=0.5)
    assert time.monotonic() - begin < 20
    assert outcome.status == 0
    assert "/nowhere/late" in seen.paths("open", "openat")
    assert len(outcome.survivors) == 1
    assert seen.exits[outcome.survivors[0]] == -9


def test_what_ends_within_its_grace_is_no_survivor() -> None:
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(0.2)\n    open('/etc/hostname')\n    os._exit(0)"
    seen = Seen()
    outcome, _ = python(seen, code, grace=20)
    assert outcome.survivors == ()
    assert "/etc/hostname" in seen.paths("open", "openat")


def test_a_fork_bomb_ends_with_its_time() -> None:
    code = """
import os, time
for _ in range(6):
    os.fork()
while True: time.sleep(1)
"""
    seen = Seen()
    outcome, _ = python(seen, code, timeout=2)
    assert outcome.timed_out
    assert outcome.status == -9
    assert len(seen.exits) >= 2
    assert not alive(seen)


def test_exec_in_a_thread_goes_on_under_the_process(compile_c: Callable[..., str]) -> None:
    program = compile_c(
        r"""
#include <pthread.h>
#include <unistd.h>
static void *run(void *p) { char *a[] = {"cat", "/nowhere/after", 0}; execv("/bin/cat", a); return p; }
int main(void) { pthread_t t[4]; for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, (void *(*)(void *))pause, 0);
  pthread_create(&t[3], 0, run, 0); pthread_join(t[3], 0); return 9; }
""",
        "-pthread",
    )
    seen = Seen()
    outcome, text = run(seen, [program])
    assert outcome.status == 1  # cat did not find it
    assert "/nowhere/after" in text
    [first, second] = seen.execs
    assert second[0] == first[0]
    assert second[1] != second[0]
    assert (first[0], "openat", "/nowhere/after") in seen.calls


def test_a_static_program_is_heard(compile_c: Callable[..., str]) -> None:
    program = compile_c(
        r"""
#include <fcntl.h>
#include <stdio.h>
int main(void) { printf("%d\n", open("/nowhere/static", O_RDONLY)); return 0; }
""",
        "-static",
    )
    seen = Seen()
    outcome, text = run(seen, [program])
    assert (outcome.status, text) == (0, "-1\n")
    assert seen.results["/nowhere/static"] == -errno.ENOENT


# --- signals -------------------------------------------------------------------------------------------------


def test_signals_reach_their_handlers() -> None:
    code = """
import os, signal
got = []
for s in (signal.SIGUSR1, signal.SIGTRAP, signal.SIGCHLD, signal.SIGTERM):
    signal.signal(s, lambda n, f: got.append(n))
    os.kill(os.getpid(), s)
signal.signal(signal.SIGALRM, lambda n, f: got.append(n))
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
print(got == [signal.SIGUSR1, signal.SIGTRAP, signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM])
"""
    assert python(Seen(), code)[1] == "True\n"


def test_a_stopped_process_stays_stopped_until_it_is_continued() -> None:
    code = """
import os, signal, time
pid = os.fork()
if pid == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(5)
_, status = os.waitpid(pid, os.WUNTRACED)
print(os.WIFSTOPPED(status), os.WSTOPSIG(status) == signal.SIGSTOP)
print(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0])
os.kill(pid, signal.SIGCONT)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert python(Seen(), code)[1].split() in (["True", "True", "t", "5"], ["True", "True", "T", "5"])


# --- what slips past strace ------------------------------------------------------------------------------------


@pytest.mark.skipif(linux.ARCH != "x86_64", reason="the order of clone's arguments is that of x86-64")
def test_an_untraced_clone_is_traced(compile_c: Callable[..., str]) -> None:
    program = compile_c(
        r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  long pid = syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0);
  if (pid == 0) { open("/nowhere/untraced", O_RDONLY); _exit(4); }
  int status; waitpid(pid, &status, 0); printf("%d\n", WEXITSTATUS(status)); return 0; }
"""
    )
    seen = Seen()
    outcome, text = run(seen, [program])
    assert (outcome.status, text) == (0, "4\n")
    assert "/nowhere/untraced" in seen.paths("open", "openat")
    assert len(seen.tasks) == 2


def test_io_uring_and_clone3_are_not_there_even_when_the_policy_allows_them() -> None:
    code = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
buf = ctypes.create_string_buffer(256)
for n in {[linux.NUMBERS[n] for n in ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3")]}:
    print(libc.syscall(n, 8, buf), ctypes.get_errno())
"""
    seen = Seen()
    outcome, text = python(seen, code)
    assert outcome.status == 0
    assert text.splitlines() == [f"-1 {errno.ENOSYS}"] * 4
    assert "io_uring_setup" in {name for _, name, _ in seen.calls}


@pytest.mark.skipif(linux.ARCH != "x86_64", reason="int 0x80 is an x86 instruction")
def test_a_call_of_the_i386_interface_is_refused_and_told(compile_c: Callable[..., str]) -> None:
    program = compile_c(
        r"""
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
  char *low = mmap((void *)0x10000000, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  strcpy(low, "/etc/hostname");
  int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(5), "b"((unsigned)(long)low), "c"(0), "d"(0)
    : "memory", "r8", "r9", "r10", "r11");
  printf("%d\n", r); return 0; }
"""
    )
    seen = Seen()
    outcome, text = run(seen, [program])
    assert (outcome.status, text) == (0, f"{-errno.ENOSYS}\n")
    assert seen.foreign == [linux.AUDIT_ARCH_I386]


def test_when_the_tracing_process_is_killed_nothing_is_left(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    driver = f"""
import os, sys
sys.path[:0] = {[p for p in sys.path if p]!r}
from aboveboard.world import _linux as linux
from aboveboard.world.ptrace import Continue, Tracer
from aboveboard.world.syscalls import build_filter
code = "import os, time\\nif os.fork() == 0:\\n    open({str(marker)!r}, 'w').write(str(os.getpid()))\\n" \\
       "    os.rename({str(marker)!r}, {str(marker) + ".done"!r})\\ntime.sleep(60)"
Tracer(build_filter(linux.SECCOMP_RET_TRACE), lambda *a: Continue()).run(
    [{PYTHON!r}, "-I", "-S", "-c", code], {{}}, "/", {{}})
"""
    process = subprocess.Popen([PYTHON, "-c", driver])
    done = Path(f"{marker}.done")
    deadline = time.monotonic() + 20
    while not done.exists() and time.monotonic() < deadline and process.poll() is None:
        os.sched_yield()
    if not done.exists():
        process.kill()
        process.wait()
        pytest.skip("ptrace is refused here")
    process.kill()
    process.wait()
    pid = int(done.read_text())
    deadline = time.monotonic() + 1
    while runs(pid) and time.monotonic() < deadline:
        os.sched_yield()
    assert not runs(pid)


# --- registers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "number", "result", "first"),
    [("=27Q", 15, 10, 14), ("=17I", 11, 6, 0), ("=34Q", None, 0, 0)],
    ids=["x86-64", "i386", "aarch64"],
)
def test_registers_are_changed_where_each_architecture_keeps_them(
    layout: str, number: int | None, result: int, first: int
) -> None:
    words = list(range(100, 100 + struct.calcsize(layout) // (8 if layout.endswith("Q") else 4)))
    full = (1 << (64 if layout.endswith("Q") else 32)) - 1
    registers = Registers(struct.pack(layout, *words))
    registers.set_first_argument(7)
    assert struct.unpack(layout, registers.pack()) == tuple(7 if i == first else w for i, w in enumerate(words))
    assert registers.skip(-errno.EPERM) is (number is not None)
    changed = struct.unpack(layout, registers.pack())
    assert changed[result] == full + 1 - errno.EPERM
    if number is not None:
        assert changed[number] == full


def test_an_unknown_register_set_is_refused() -> None:
    with pytest.raises(Unsupported, match="72 bytes"):
        Registers(bytes(72))


def test_a_tracer_runs_once() -> None:
    seen = Seen()
    python(seen, "pass")
    with pytest.raises(RuntimeError, match="another"):
        python(seen, "pass")
