"""Tier P: system calls seen through ptrace(2), where the kernel or a container refuses seccomp user notification.

A seccomp filter given by the caller returns ``SECCOMP_RET_TRACE`` for the calls that matter, so all others run at full
speed; each of those stops its thread until :class:`Tracer` has an answer for it. Weaker than notification, and declared
so: the traced can see it (``TracerPid``), an allowed call reads its arguments again after they were looked at, and
nested tracing (debuggers, strace) does not work inside.

What strace misses is closed here: ``CLONE_UNTRACED`` is taken out of the flags of ``clone`` (and a filtered call of an
untraced task fails with ENOSYS in any case), ``clone3`` and io_uring answer ENOSYS, calls of a foreign instruction set
interface are refused. If the thread that traces dies, the kernel kills every traced task (``PTRACE_O_EXITKILL``).

Needs Linux 5.3 (``PTRACE_GET_SYSCALL_INFO``), on x86-64 or AArch64. Sources: ptrace(2), ``linux/ptrace.h``,
``Documentation/userspace-api/seccomp_filter.rst``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import struct
import threading
import warnings
from typing import TYPE_CHECKING

from . import _linux as linux

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_CONT, _SYSCALL = 7, 24
_GETEVENTMSG, _GETREGSET, _SETREGSET = 0x4201, 0x4204, 0x4205
_SEIZE, _LISTEN, _GET_SYSCALL_INFO = 0x4206, 0x4208, 0x420E
_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE, _EVENT_EXEC, _EVENT_SECCOMP, _EVENT_STOP = 1, 2, 3, 4, 7, 128
_O_TRACESYSGOOD, _O_EXITKILL = 1, 1 << 20
_OPTIONS = (
    _O_TRACESYSGOOD
    | _O_EXITKILL
    | sum(1 << event for event in (_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE, _EVENT_EXEC, _EVENT_SECCOMP))
)
_WALL, _WNOTHREAD = 0x40000000, 0x20000000
_INFO_EXIT, _INFO_SECCOMP = 2, 3
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_STOPPING = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_X32_BIT = 0x40000000

_ENTRY = struct.Struct("=B3xIQQQ6QI")  # op, arch, instruction pointer, stack pointer, nr, args, ret_data
_EXIT = struct.Struct("=B3xIQQqB")  # op, arch, instruction pointer, stack pointer, result, is_error

_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.restype = ctypes.c_long
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Continue:
    """Answer: let the kernel carry the call out; ``result``, when given, is then called with what it returned."""

    __slots__ = ("result",)

    def __init__(self, result: Callable[[int], None] | None = None) -> None:
        self.result = result


class Value:
    """Answer: do not carry the call out, return this (a negative errno for an error)."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


class Errno(Value):
    """Answer: do not carry the call out, fail with this errno."""

    __slots__ = ()

    def __init__(self, number: int) -> None:
        super().__init__(-number)


if TYPE_CHECKING:
    Answer = Continue | Value
    ReadMemory = Callable[[int, int], bytes]
    OnCall = Callable[[int, int, tuple[int, ...], ReadMemory], Answer]


class Outcome:
    """How a traced command ended: ``status`` of its main process (exit code, or minus the signal), and the
    ``survivors``: thread ids that were alive when the time they had was over, and were killed."""

    __slots__ = ("status", "survivors", "timed_out")

    def __init__(self, status: int, survivors: tuple[int, ...], timed_out: bool) -> None:
        self.status = status
        self.survivors = survivors
        self.timed_out = timed_out


class Unsupported(Exception):
    """Tier P cannot work here; the text says why and what to do."""


# --- registers -------------------------------------------------------------------------------------------


# Size of the set in bytes: its layout, and which word holds the call's number, its result, its first argument.
# On AArch64 the number is in a set of its own.
_VIEWS: dict[int, tuple[str, int | None, int, int]] = {
    216: ("=27Q", 15, 10, 14),
    68: ("=17I", 11, 6, 0),
    272: ("=34Q", None, 0, 0),
}


class Registers:
    """The general registers of a stopped task as the kernel gives them (``NT_PRSTATUS``).

    The view depends on what the task runs: 27 words of 64 bits (x86-64), 17 of 32 bits (i386), 34 of 64 bits (AArch64).
    """

    def __init__(self, data: bytes) -> None:
        known = _VIEWS.get(len(data))
        if known is None:
            raise Unsupported(
                f"a task has a register set of {len(data)} bytes, which is none of x86-64, i386 or AArch64"
            )
        layout, self._number, self._result, self._first = known
        self._struct = struct.Struct(layout)
        self._mask = 0xFFFFFFFF if layout.endswith("I") else 0xFFFFFFFFFFFFFFFF
        self._words = list(self._struct.unpack(data))

    def skip(self, value: int) -> bool:
        """Make the call return ``value`` instead of running; false when its number is in a register set of its own."""
        self._words[self._result] = value & self._mask
        if self._number is None:
            return False
        self._words[self._number] = self._mask
        return True

    def set_first_argument(self, value: int) -> None:
        self._words[self._first] = value & self._mask

    def pack(self) -> bytes:
        return self._struct.pack(*self._words)


class _Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


_NT_PRSTATUS, _NT_ARM_SYSTEM_CALL = 1, 0x404


def _request(request: int, pid: int, address: int = 0, data: object = None) -> int:
    result: int = _ptrace(request, pid, address, data)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "ptrace")
    return result


def _get_registers(pid: int) -> Registers:
    buffer = ctypes.create_string_buffer(512)
    vector = _Iovec(ctypes.addressof(buffer), len(buffer))
    _request(_GETREGSET, pid, _NT_PRSTATUS, ctypes.addressof(vector))
    return Registers(buffer.raw[: vector.len])


def _set_regset(pid: int, kind: int, data: bytes) -> None:
    buffer = ctypes.create_string_buffer(data, len(data))
    vector = _Iovec(ctypes.addressof(buffer), len(data))
    _request(_SETREGSET, pid, kind, ctypes.addressof(vector))


# --- the tracer --------------------------------------------------------------------------------------------


class Tracer:
    """Traces one command and all it starts, in the thread that calls :meth:`run`; for one command only.

    That thread must have no other child processes: the tracer waits for all children the thread has.

    Args:
        program: the seccomp filter (cBPF as the kernel takes it); ``SECCOMP_RET_TRACE`` marks the calls that stop.
        on_call: called as ``on_call(tid, number, args, read_memory)`` for each such call of the native interface;
            ``read_memory(address, size)`` reads the caller's memory. Its answer decides. An exception ends everything.
        on_foreign: told (tid, audit architecture, number) of a call of another interface (i386, x32); it is refused.
        on_task: told (tid, parent tid, is_thread) of each new task, the main process included. A new task may make its
            first call before its parent's report of it arrives.
        on_exec: told (pid, tid that called exec) when a new program image is in place.
        on_exit: told (tid, exit code or minus the signal) when a task is gone. Threads that vanish because another
            one called exec are not told.
    """

    def __init__(
        self,
        program: bytes,
        on_call: OnCall,
        *,
        on_foreign: Callable[[int, int, int], None] | None = None,
        on_task: Callable[[int, int, bool], None] | None = None,
        on_exec: Callable[[int, int], None] | None = None,
        on_exit: Callable[[int, int], None] | None = None,
    ) -> None:
        numbers = linux.NUMBERS
        if not numbers:
            raise Unsupported(f"tier P knows x86_64 and aarch64, this machine is {linux.ARCH}; use another machine")
        self._program = program
        self._on_call = on_call
        self._on_foreign = on_foreign
        self._on_task = on_task
        self._on_exec = on_exec
        self._on_exit = on_exit
        self._clone = numbers["clone"]
        self._absent = {numbers[n] for n in ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")}
        self._memory = linux.MemoryReader()
        self._info = ctypes.create_string_buffer(128)
        self._message = ctypes.c_ulong()
        self._tasks: set[int] = set()
        self._pending: dict[int, Callable[[int], None]] = {}
        self._lock = threading.Lock()
        self._started = False
        self._killing = False
        self._survivors: tuple[int, ...] = ()
        self._timed_out = False

    # --- starting and ending ---

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        fds: Mapping[int, int],
        *,
        timeout: float | None = None,
        grace: float = 0.0,
    ) -> Outcome:
        """Run ``argv`` and return when nothing of it is left.

        Args:
            argv: ``argv[0]`` is the path of the program (no search).
            env: its whole environment.
            cwd: its working directory.
            fds: its descriptors: number inside → descriptor here. All others are closed.
            timeout: seconds after which everything is killed.
            grace: seconds that tasks may outlive the main process; then they are killed and told as survivors.

        Raises:
            OSError: the program could not be started.
            Unsupported: the kernel or its configuration (Yama, a container) forbids tracing.
        """
        if self._started:
            raise RuntimeError("a Tracer runs one command; make another one")
        self._started = True
        go_read, go_write = os.pipe()
        error_read, error_write = os.pipe()
        with warnings.catch_warnings():
            # The child runs little before exec: it takes no lock that another thread could hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            main = os.fork()
        if main == 0:
            os.close(go_write)
            self._child(argv, env, cwd, fds, go_read, error_write)
        os.close(go_read)
        os.close(error_write)
        timers: list[threading.Timer] = []
        try:
            try:
                _request(_SEIZE, main, 0, _OPTIONS)
            except OSError as e:
                os.kill(main, signal.SIGKILL)
                os.waitpid(main, 0)
                raise Unsupported(
                    f"ptrace is refused here ({e.strerror}): set kernel.yama.ptrace_scope to 1 or less, or allow"
                    " SYS_PTRACE in the container"
                ) from e
            self._tasks.add(main)
            if self._on_task is not None:
                self._on_task(main, os.getpid(), False)
            os.write(go_write, b"g")
            if timeout is not None:
                timers.append(_timer(timeout, self._time_out))
            return self._trace(main, grace, timers, error_read)
        except BaseException:
            self.kill()
            self._reap()
            raise
        finally:
            for timer in timers:
                timer.cancel()
            os.close(go_write)
            os.close(error_read)

    def kill(self) -> None:
        """Kill every task, those included that are just being made. May be called from any thread."""
        with self._lock:
            self._killing = True
            tasks = tuple(self._tasks)
        for tid in tasks:
            _kill(tid)

    def _child(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        fds: Mapping[int, int],
        go: int,
        report: int,
    ) -> None:
        try:
            if os.read(go, 1) != b"g":  # the tracer gave up
                os._exit(127)
            _arrange(fds, report)
            os.chdir(cwd)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; programs expect the default
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
            linux.install_filter(self._program, listener=False)
            os.execve(argv[0], list(argv), dict(env))
        except OSError as e:
            os.write(_REPORT_FD[0], struct.pack("=i", e.errno or errno.EINVAL))
        except BaseException:
            os.write(_REPORT_FD[0], struct.pack("=i", errno.EINVAL))
        finally:
            os._exit(127)

    # --- the loop ---

    def _trace(self, main: int, grace: float, timers: list[threading.Timer], report: int) -> Outcome:
        status: int | None = None
        while True:
            # With nobody left only stops that are already queued matter: the calling thread may have other children,
            # for whose end a wait would wait as well.
            finished = status is not None and not self._tasks
            try:
                tid, raw = os.waitpid(-1, _WALL | _WNOTHREAD | (os.WNOHANG if finished else 0))
            except ChildProcessError:
                break
            if not tid:
                break
            if os.WIFSTOPPED(raw):
                self._stopped(tid, raw)
                continue
            code = os.waitstatus_to_exitcode(raw)
            with self._lock:
                known = tid in self._tasks
                self._tasks.discard(tid)
            self._pending.pop(tid, None)
            if known and self._on_exit is not None:
                self._on_exit(tid, code)
            if tid == main:
                status = code
                if self._tasks:
                    timers.append(_timer(grace, self._grace_over))
        failure = os.read(report, 4)
        if failure:
            number: int = struct.unpack("=i", failure)[0]
            raise OSError(number, os.strerror(number))
        if status is None:
            raise ChildProcessError(errno.ECHILD, "the traced command was reaped by another part of the program")
        return Outcome(status, self._survivors, self._timed_out)

    def _grace_over(self) -> None:
        with self._lock:
            if not self._killing:
                self._survivors = tuple(sorted(self._tasks))
        self.kill()

    def _time_out(self) -> None:
        self._timed_out = True
        self.kill()

    def _reap(self) -> None:
        """After a failure: wait until the killed are gone, answering nobody."""
        for task in tuple(self._tasks):
            try:
                while os.WIFSTOPPED(os.waitpid(task, _WALL | _WNOTHREAD)[1]):
                    _kill(task)
            except ChildProcessError:
                continue

    def _stopped(self, tid: int, raw: int) -> None:
        with self._lock:
            self._tasks.add(tid)
            killing = self._killing
        if killing:
            _kill(tid)
            return
        event, number = raw >> 16, os.WSTOPSIG(raw)
        try:
            if event == _EVENT_SECCOMP:
                self._called(tid)
            elif event == _EVENT_STOP and number in _STOPPING:
                # Stopped by job control: it stays stopped, and still hears SIGCONT.
                _request(_LISTEN, tid)
            elif event == 0 and number == _SYSCALL_STOP:
                self._returned(tid)
            elif event == 0:
                self._resume(tid, number)
            else:
                self._event(tid, event)
                self._resume(tid)
        except ProcessLookupError:
            pass  # killed while it was stopped: the next wait tells

    def _resume(self, tid: int, number: int = 0) -> None:
        _request(_SYSCALL if tid in self._pending else _CONT, tid, 0, number)

    def _event(self, tid: int, event: int) -> None:
        if event == _EVENT_STOP:
            return
        _request(_GETEVENTMSG, tid, 0, ctypes.addressof(self._message))
        other = self._message.value
        if event == _EVENT_EXEC:
            if other != tid:
                # A thread called exec: it goes on under the id of its process.
                with self._lock:
                    self._tasks.discard(other)
                self._pending.pop(tid, None)
                if other in self._pending:
                    self._pending[tid] = self._pending.pop(other)
            if self._on_exec is not None:
                self._on_exec(tid, other)
        elif event in {_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE}:
            with self._lock:
                self._tasks.add(other)
            if self._on_task is not None:
                self._on_task(other, tid, event == _EVENT_CLONE and _is_thread(other, tid))

    # --- calls ---

    def _called(self, tid: int) -> None:
        size = _request(_GET_SYSCALL_INFO, tid, len(self._info), ctypes.addressof(self._info))
        if size < _ENTRY.size:
            raise Unsupported("the kernel does not tell about system calls; tier P needs Linux 5.3 or newer")
        op, arch, _ip, _sp, number, *rest = _ENTRY.unpack_from(self._info)
        if op != _INFO_SECCOMP:
            raise Unsupported(f"a seccomp stop without its call (op {op}); tier P needs Linux 5.3 or newer")
        if arch != linux.AUDIT_ARCH or (linux.ARCH == "x86_64" and number & _X32_BIT):
            if self._on_foreign is not None:
                self._on_foreign(tid, arch, number)
            self._skip(tid, -errno.ENOSYS)
            return
        args = tuple(rest[:6])
        answer = self._on_call(tid, number, args, lambda address, length: self._memory.read(tid, address, length))
        if isinstance(answer, Value):
            self._skip(tid, answer.value)
            return
        if number in self._absent:
            self._skip(tid, -errno.ENOSYS)
            return
        if number == self._clone and args[0] & linux.CLONE_UNTRACED:
            registers = _get_registers(tid)
            registers.set_first_argument(args[0] & ~linux.CLONE_UNTRACED)
            _set_regset(tid, _NT_PRSTATUS, registers.pack())
        if answer.result is not None:
            self._pending[tid] = answer.result
        self._resume(tid)

    def _returned(self, tid: int) -> None:
        _request(_GET_SYSCALL_INFO, tid, len(self._info), ctypes.addressof(self._info))
        op, _arch, _ip, _sp, result, _error = _EXIT.unpack_from(self._info)
        if op == _INFO_EXIT:
            callback = self._pending.pop(tid, None)
            if callback is not None:
                callback(result)
        self._resume(tid)

    def _skip(self, tid: int, value: int) -> None:
        try:
            registers = _get_registers(tid)
        except Unsupported:
            # An interface whose registers are unknown (32-bit ARM): what cannot be refused is ended.
            _kill(tid)
            return
        in_registers = registers.skip(value)
        _set_regset(tid, _NT_PRSTATUS, registers.pack())
        if not in_registers:
            _set_regset(tid, _NT_ARM_SYSTEM_CALL, struct.pack("=i", -1))
        self._resume(tid)


def _timer(seconds: float, action: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer


def _kill(tid: int) -> None:
    try:
        os.kill(tid, signal.SIGKILL)  # a thread id will do: the signal is the whole process's
    except ProcessLookupError:
        pass


def _is_thread(tid: int, parent: int) -> bool:
    """Whether a task made by ``clone`` shares the process of its parent."""
    return _process_of(tid) == _process_of(parent)


def _process_of(tid: int) -> int:
    try:
        with open(f"/proc/{tid}/status", "rb") as f:
            for line in f:
                if line.startswith(b"Tgid:"):
                    return int(line[5:])
    except OSError:
        pass
    return -1


_REPORT_FD = [-1]  # in the child: where the error pipe went when the descriptors were arranged


def _arrange(fds: Mapping[int, int], report: int) -> None:
    """Give the child exactly the descriptors of ``fds``, and the report pipe (closed by exec)."""
    import fcntl

    floor = max([*fds, 2]) + 1
    _REPORT_FD[0] = report
    # First out of the way, so that no target is overwritten before it was read as a source.
    _REPORT_FD[0] = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, floor)
    sources = {inside: fcntl.fcntl(here, fcntl.F_DUPFD_CLOEXEC, floor) for inside, here in fds.items()}
    for inside, here in sources.items():
        os.dup2(here, inside)
    keep = {*fds, _REPORT_FD[0]}
    last = 0
    for fd in sorted(keep):
        if last < fd:  # CPython 3.11 closes everything for an empty range that starts at 0
            os.closerange(last, fd)
        last = fd + 1
    os.closerange(last, max(last, resource.getrlimit(resource.RLIMIT_NOFILE)[1]) + 1)
