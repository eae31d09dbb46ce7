"""Tier P: the last one, where seccomp user notification is refused too. System calls are seen through ptrace(2).

What stands in for the root, the network and the wall in the kernel is as in tier N. The difference: a descriptor
cannot be given to a traced process, so what it opens and runs it opens and runs itself, after it was looked at. It
could have changed its mind in between; Landlock then decides, which here stands in front of reading as well, and what
the record says was asked for need not be what was opened. Names, metadata and sends are still carried out by the
supervisor.

A traced command has a thread of the supervisor to itself, since ptrace ties a task to a thread. One lock is held
whenever anything of the world is touched.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import stat
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from . import _linux as linux
from . import lower_init, proof, ptrace, wire
from .calls import PROOF, Call
from .files import O_PATH
from .log import text
from .lower import LowerSupervisor
from .lower_files import LowerFiles, Refused
from .syscalls import ABI_OF, NAME_OF, build_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_CLASSES = {
    "ptrace": ["read", "exec", "process", "flow", "escape"],
    "walk": ["change"],
    "sink": ["payload"],
    "canary": ["secret"],
}
_READABLE = ("/etc/hostname", "/etc/hosts", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/resolv.conf")
"""Files of ``/etc`` that every program reads: the host's own, since here they cannot be replaced."""


class TracedCall(Call):
    """A call of a traced task. The answer is kept until the handler is done, then given to the tracer."""

    __slots__ = ("answer", "raw")

    def __init__(self, tid: int, number: int, name: str, abi: str, args: tuple[int, ...], command: int) -> None:
        super().__init__(-1, 0, tid, number, name, abi, args, command)
        self.answer: ptrace.Answer = ptrace.Errno(errno.EINTR)
        self.raw: dict[bytes, bytes] = {}

    def _send(self, value: int, error: int, flags: int) -> None:
        self.answered = True
        if flags:
            self.answer = ptrace.Continue()
        else:
            self.answer = ptrace.Value(error or value)

    def proceed_then(self, told: Callable[[int], None]) -> None:
        """Let the kernel carry the call out, and be told the result (a descriptor, or minus the errno)."""
        self.answered = True
        self.answer = ptrace.Continue(told)


class PtraceFiles(LowerFiles):
    """The open family, looked at and then done by the candidate; the rest as in tier N."""

    def _path(self, call: Call, pointer: int) -> bytes:
        raw = self._raw_memory.string(call.tid, pointer)
        path = self.wall.shadow.original(raw)
        if isinstance(call, TracedCall):
            call.raw[path] = raw
        return path

    def _open_decided(self, call: Call, base: int | None, path: bytes, flags: int, mode: int, fields: str) -> int:
        """Decide, and let the candidate open. Always -1: answered."""
        assert isinstance(call, TracedCall)
        del mode
        try:
            # The kernel knows of no shadow: the path is gone along as it will.
            place = self.walk(
                call, base, call.raw.get(path, path), follow=not flags & (os.O_NOFOLLOW | os.O_EXCL), shadows=False
            )
        except Refused:
            return self._deny(call, fields, path)
        try:
            made = place.fd < 0
            real = self.real_name(place.parent).rstrip(b"/") + b"/" + place.leaf if made else self.real_name(place.fd)
            name = self.wall.shadow.original(real)
            if made:
                if not flags & os.O_CREAT:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                allowed = self._may(real, write=True)
            else:
                info = os.fstat(place.fd)
                link = stat.S_ISLNK(info.st_mode)
                allowed = bool(flags & O_PATH) or link or self._given(call, real, info, flags)
                if allowed and info.st_dev == self.proc_device and not flags & O_PATH:
                    allowed = not self._guard_proc(call, real, flags)
                if stat.S_ISREG(info.st_mode):
                    fields += f',"v":[{info.st_dev},{info.st_ino}]'
            if not allowed:
                return self._deny(call, fields, name)
            if name != path:
                fields += f',"x":{text(name)}'
        finally:
            place.close()
        process, command = call.process.pid, call.command

        def told(result: int) -> None:
            number = errno.errorcode.get(-result, str(-result)) if result < 0 else "ok"
            self._log.add("open", process, command, f'{fields},"r":"{number}"')

        call.proceed_then(told)
        return -1

    def _may(self, real: bytes, *, write: bool, directory: bool = False) -> bool:
        if not write and os.fsdecode(real) in _READABLE:
            return True
        return super()._may(real, write=write, directory=directory)


class _WorldTracer(ptrace.Tracer):
    """Traces one command of a world; ``before`` runs in the child ahead of everything else."""

    def __init__(
        self, program: bytes, on_call: ptrace.OnCall, *, message: dict[str, Any], fence: int, **told: Any
    ) -> None:
        super().__init__(program, on_call, **told)
        self._asked = message
        self._fence = fence

    def tasks(self) -> list[int]:
        """Thread ids of all that are traced now."""
        with self._lock:
            return list(self._tasks)

    def _child(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        fds: Mapping[int, int],
        go: int,
        report: int,
    ) -> None:
        proving = not self._asked["program"]
        try:
            if os.read(go, 1) != b"g":  # the tracer gave up
                os._exit(127)
            os.setsid()
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
            linux.landlock_restrict(self._fence)
            ptrace._arrange(fds, report)
            os.chdir(cwd)
            os.umask(0o022)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            for name, value in self._asked["limits"].items():
                _limit(getattr(resource, name), value)
            linux.prctl(linux.PR_SET_DUMPABLE, 1)
            linux.install_filter(lower_init.static_filter(), listener=False)
            linux.install_filter(self._program, listener=False)
            if proving:
                proof.act(self._asked, 3)
                os._exit(0)
            os.execve(self._asked["program"], list(argv), dict(env))
        except OSError as e:
            os.write(ptrace._REPORT_FD[0], struct.pack("=i", e.errno or errno.EINVAL))
        except BaseException:
            os.write(ptrace._REPORT_FD[0], struct.pack("=i", errno.EINVAL))
        finally:
            os._exit(127)


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(which, (value, value))
    except (OSError, ValueError):
        pass


class PtraceSupervisor(LowerSupervisor):
    """A world of tier P."""

    classes = _CLASSES
    files_type = PtraceFiles
    fence_reads = True
    readable_files = _READABLE

    def __init__(self, control: socket.socket, evidence: int, spec: dict[str, Any], extra: list[int]) -> None:
        super().__init__(control, evidence, spec, extra)
        self._turn_lock = threading.RLock()
        self._tracers: dict[int, _WorldTracer] = {}
        self._threads: list[threading.Thread] = []
        self._mains: dict[int, int] = {}
        self._refusal = ""
        if "notify" in self.disabled or "escape" in self.disabled:
            self.disabled |= {"ptrace"}

    def _step_of_witness(self) -> str:
        return self._refusal or "ptrace"

    def _begin(self, abi: int) -> None:
        """There is no process between supervisor and commands; requests to it are answered here."""
        self.proof_directory = os.fsdecode(self.shadow.root) + "/tmp"
        self._fence = self.candidate_fence(abi)
        self._init, mine = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._init_pid = os.getpid()

        def asked(_mask: int) -> None:
            received = wire.receive(mine)
            main = self._mains.get(int(received[0]["kill"])) if received and "kill" in received[0] else None
            if main is not None:
                try:
                    os.kill(main, signal.SIGKILL)
                except OSError:
                    pass

        self._register(mine.fileno(), select.EPOLLIN, asked)

    def _turn(self, timeout: float) -> None:
        if self._poll.poll(timeout * 1000):
            with self._turn_lock:
                for ready, events in self._epoll.poll(0, 32):
                    callback = self._callbacks.get(ready)
                    if callback is not None:
                        callback(events)

    def _check(self, now: float) -> None:
        with self._turn_lock:
            super()._check(now)

    # --- commands ---------------------------------------------------------------------------------------------

    def _launch(
        self,
        command: int,
        message: dict[str, Any],
        fds: list[int],
        mine: socket.socket,
        theirs: socket.socket,
        at_upper: Callable[[socket.socket], None] | None = None,
    ) -> None:
        if command != PROOF:
            message = self._inside_message(message)
        self._commands[command] = {"error": 0}
        self._idle = False
        self._commands_seen_ns = 1
        given = {i: os.dup(fd) for i, fd in enumerate(fds)}
        if at_upper is not None:
            given[3] = os.dup(theirs.fileno())

            def ready(_mask: int) -> None:
                if mine.recv(64) and at_upper is not None:
                    at_upper(mine)
                    return
                self._unregister(mine.fileno())
                mine.close()

            self._register(mine.fileno(), select.EPOLLIN, ready)
        else:
            mine.close()
        theirs.close()
        tracer = _WorldTracer(
            build_filter(linux.SECCOMP_RET_TRACE, foreign=False),
            lambda tid, number, args, _read: self._called(command, tid, number, args),
            message=message,
            fence=self._fence,
            on_foreign=lambda tid, arch, number: self._foreign(command, tid, arch, number),
            on_task=lambda tid, parent, _thread: self._started(command, tid, parent),
            on_exit=lambda tid, code: self._ended_task(command, tid, code),
        )
        self._tracers[command] = tracer
        thread = threading.Thread(target=self._trace, args=(command, tracer, message, given), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _trace(self, command: int, tracer: _WorldTracer, message: dict[str, Any], fds: dict[int, int]) -> None:
        """Body of the thread that traces one command and all it starts, until nothing of it is left."""
        number = 0
        try:
            # Nothing else ends it: the tasks of a command may outlive its main process for as long as the world is.
            tracer.run(
                message["argv"] or ["proof"], message["env"], message["cwd"], fds, grace=self.limits.wall_seconds + 3600
            )
        except OSError as e:
            number = e.errno or errno.EIO
        except ptrace.Unsupported as e:
            number = errno.EPERM
            self._refusal = f"ptrace: {e}"
        except Exception as e:  # a mistake of ours ends the command, and is told
            number = errno.EIO
            with self._turn_lock:
                self.limit_once("internal", f"tracer: {type(e).__name__}: {e}")
        finally:
            for fd in fds.values():
                os.close(fd)
            with self._turn_lock:
                if number and command in self._commands:
                    self._commands[command]["error"] = number
                    self._exited(command, 126, {})
                self._commands.pop(command, None)
                self._mains.pop(command, None)
                del self._tracers[command]
                self._idle = not self._tracers

    def _started(self, command: int, tid: int, parent: int) -> None:
        with self._turn_lock:
            if parent == os.getpid():
                self._mains[command] = tid

    def _ended_task(self, command: int, tid: int, code: int) -> None:
        with self._turn_lock:
            if self._mains.get(command) == tid:
                if command == PROOF:
                    self._commands.pop(PROOF, None)
                else:
                    self._exited(command, code, {"utime": 0, "stime": 0, "maxrss_kib": 0})

    # --- trapped calls ------------------------------------------------------------------------------------------

    def _called(self, command: int, tid: int, number: int, args: tuple[int, ...]) -> ptrace.Answer:
        call = TracedCall(tid, number, NAME_OF[linux.AUDIT_ARCH].get(number, ""), linux.ARCH, args, command)
        with self._turn_lock:
            self._answer(call)
        return call.answer

    def _foreign(self, command: int, tid: int, arch: int, number: int) -> None:
        with self._turn_lock:
            abi = ABI_OF.get(arch, hex(arch))
            name = NAME_OF.get(arch, {}).get(number, "") if arch != linux.AUDIT_ARCH else ""
            fields = f',"s":"{name or "unknown"}","abi":"{abi}","d":"number {number}","r":"denied"'
            self.log.add("escape", tid, command, fields)

    def _blinded(self, call: Call, e: OSError) -> None:
        number = e.errno or errno.EIO
        if call.answered:
            return
        if number in (errno.EPERM, errno.EACCES):
            self.log.add("limit", call.tid, call.command, f',"what":"blinded","d":{text(f"{call.name}: {e}")}')
        elif number != errno.ESRCH:
            fields = f',"s":"{call.name}","n":"","r":"{errno.errorcode.get(number, number)}"'
            self.log.add("probe", call.tid, call.command, fields)
        call.fail(errno.ENOENT if number == errno.ESRCH else number)

    def pass_signal(self, call: Call, target: int, number: int) -> None:
        """To another command: each is under a Landlock domain of its own, which keeps signals in."""
        process = self.tasks.processes.get(target)
        if process is None or process.command == call.command or call.name not in ("kill", "tkill", "tgkill"):
            return
        try:
            os.kill(target, number & 0xFF)
        except OSError as e:
            return call.fail(e.errno or errno.ESRCH)
        return call.value(0)

    def writable_now(self, own: socket.socket) -> bool:
        """Wait for room in a socket, others going on meanwhile; false when the world ends."""
        self._turn_lock.release()
        try:
            while not self.ending:
                if select.select([], [own], [], 0.05)[1]:
                    return True
            return False
        finally:
            self._turn_lock.acquire()

    def everybody(self) -> list[int]:
        """Process ids of all that are traced now."""
        found = set()
        for tracer in list(self._tracers.values()):
            for tid in tracer.tasks():
                process = self.tasks.by_thread.get(tid)
                if process is not None:
                    found.add(process.pid)
                    continue
                try:
                    found.add(int(self.tasks.status(tid).get("Tgid", tid)))
                except OSError:
                    continue
        return sorted(found)

    def inside(self, pid: int) -> bool:
        """Is this a process of the world?"""
        return pid in self.tasks.processes or any(pid in t.tasks() for t in list(self._tracers.values()))

    # --- the end --------------------------------------------------------------------------------------------------

    def kill(self, reason: str) -> None:
        """Kill every process inside."""
        self._killed = True
        self._stop_reason = reason
        self.ending = True
        for tracer in list(self._tracers.values()):
            tracer.kill()

    def _survivors(self) -> None:
        with self._turn_lock:
            super()._survivors()

    def _await_death(self) -> None:
        until = time.monotonic() + 30
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < until:
            for tracer in list(self._tracers.values()):
                tracer.kill()
            self._turn(0.005)
        if any(thread.is_alive() for thread in self._threads):
            with self._turn_lock:
                self.log.record({"e": "limit", "what": "survivors", "d": "the traced did not die within 30 s"})
        self._fail_commands()


__all__ = ["PtraceSupervisor", "TracedCall"]
