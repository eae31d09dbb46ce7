"""PID 1 of a world: starts commands under the filter, reaps everything, and dies with the supervisor.

It is our own code, so it is not filtered; it keeps no capability, cannot be signalled from inside (the kernel drops
signals to a namespace's init that it has no handler for) and is not dumpable, so nothing inside can look into it.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
from typing import TYPE_CHECKING

from . import _linux as linux
from . import proof, wire
from .calls import PROOF
from .programs import rusage_fields
from .syscalls import build_filter

if TYPE_CHECKING:
    import socket

_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)


class Init:
    """The loop of PID 1. ``control`` leads to the supervisor."""

    def __init__(self, control: socket.socket, ruleset: int) -> None:
        self._control = control
        self._ruleset = ruleset
        self._commands: dict[int, int] = {}

    def run(self) -> None:
        """Serve until the supervisor hangs up; never returns."""
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(reader, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                if fd == reader:
                    try:
                        os.read(reader, 512)
                    except BlockingIOError:
                        pass
                    self._reap()
                else:
                    received = wire.receive(self._control)
                    if received is None:
                        os._exit(0)
                    self._handle(*received)

    def _reap(self) -> None:
        ended = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                if ended:
                    wire.send(self._control, {"idle": True})
                return
            if not pid:
                return
            ended = True
            command = self._commands.pop(pid, None)
            if command is not None:
                code = os.waitstatus_to_exitcode(status)
                wire.send(
                    self._control,
                    {"exit": command, "code": code, "rusage": rusage_fields((usage[0], usage[1], usage[2]))},
                )

    def _handle(self, message: wire.Message, fds: list[int]) -> None:
        if "run" in message:
            pid = os.fork()
            if pid == 0:
                try:
                    self._child(message, fds)
                finally:
                    os._exit(127)
            self._commands[pid] = int(message["run"])
            for fd in fds:
                os.close(fd)
            wire.send(self._control, {"started": message["run"], "ns": pid})
        elif "kill" in message:
            for pid, command in self._commands.items():
                if command == message["kill"]:
                    os.kill(pid, signal.SIGKILL)
        elif "census" in message:
            try:
                with open("/proc/sys/kernel/ns_last_pid", "rb") as f:
                    last = int(f.read())
            except (OSError, ValueError):
                last = -1
            wire.send(self._control, {"census": last})

    def filter(self) -> bytes:
        """The filter that commands run under."""
        return build_filter()

    def _child(self, message: wire.Message, fds: list[int]) -> None:
        """Become the command: descriptors, limits, then the filter, then exec. ``fds``: 0, 1, 2, the launch socket."""
        launch = fds[3]
        proving = message["run"] == PROOF
        try:
            linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
            if self._ruleset >= 0 and not proving:
                linux.landlock_restrict(self._ruleset)
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in _RESET:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            high = [os.dup2(fd, 200 + i, inheritable=False) for i, fd in enumerate(fds)]
            for target, fd in enumerate(high[:3]):
                os.dup2(fd, target, inheritable=True)
            launch = 3
            os.dup2(high[3], launch, inheritable=False)
            linux.syscall("close_range", 4, 0x7FFFFFFF, 0)
            os.chdir(message["cwd"])
            os.umask(0o022)
            os.sched_setaffinity(0, message["cpus"])
            for name, value in message["limits"].items():
                _limit(getattr(resource, name), value)
            # The supervisor takes the listener over by pidfd_getfd, which an undumpable task refuses.
            linux.prctl(linux.PR_SET_DUMPABLE, 1)
            listener = linux.install_filter(self.filter())
            os.write(launch, str(listener).encode())
            os.read(launch, 1)
            os.close(listener)
            if proving:
                proof.act(message, launch)
                os._exit(0)
            os.execve(message["program"], message["argv"], message["env"])
        except OSError as e:
            try:
                os.write(launch, b"E%d" % (e.errno or errno.EIO))
            except OSError:
                pass
            os._exit(127 if e.errno == errno.ENOENT else 126)


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(which, (value, value))
    except (OSError, ValueError):
        pass


def main(control: socket.socket, ruleset: int) -> None:
    """Become PID 1's loop: drop everything, then serve. ``ruleset``: a Landlock ruleset for the commands, or -1."""
    linux.set_name("systemd")
    try:
        linux.rename_argv(b"/sbin/init")
    except (OSError, ValueError):
        pass
    linux.drop_all_capabilities()
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    Init(control, ruleset).run()
