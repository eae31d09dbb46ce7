"""``World``: a disposable place in which one implementation, or a whole agent, runs."""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import os
import platform
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import time
import warnings
import weakref
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .. import __version__
from ..errors import EnvironmentProblem, UsageError
from . import wire
from .advice import ELSEWHERE, unsuitable
from .spawner import SPAWNER
from .spec import TIERS, WITNESSES, Limits, Service
from .view import CA_BUNDLE, CA_VARIABLES, HOME, Mount, plan_view

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from ..contract import Contract
    from ..evidence import Evidence

_T = TypeVar("_T")
_PASSED_ENVIRONMENT = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "COLORTERM")
_SLOTS = itertools.count(secrets.randbelow(1024))
_TREE_DEPTH = 200
_START_SECONDS = 30.0
_COPY_SECONDS = 120.0
FALLBACK = "ABOVEBOARD_FALLBACK"
"""Environment variable: the lowest tier (``N`` or ``P``) that ``auto`` may fall to, with a warning. Unset: none."""
_FIRST_OUTPUT = 1 << 16


class AssuranceWarning(UserWarning):
    """A world of a lower tier than the default is made."""


def tiers_to_try(asked: str) -> tuple[str, ...]:
    """The tiers to try one after the other. Never below tier U but where the user asked for it, or allowed it."""
    if asked == "refuse":
        return ("auto",)
    lowest = os.environ.get(FALLBACK, "")
    if asked != "auto" or not lowest:
        return (asked,)
    if lowest not in ("N", "P"):
        raise UsageError(f"${FALLBACK} is {lowest!r}", advice="set it to N or P, or leave it unset")
    return ("auto", "N") if lowest == "N" else ("auto", "N", "P")


@dataclass(frozen=True)
class Assurance:
    """What stood behind a world's evidence: the tier, and for each witness whether it proved itself at the start."""

    tier: str
    witnesses: Mapping[str, bool]

    @property
    def complete(self) -> bool:
        """True when every witness saw its canary."""
        return all(self.witnesses.values())


@dataclass(frozen=True)
class Completed:
    """How a command ended: ``returncode`` as in ``subprocess`` (negative: the signal); output is bounded."""

    returncode: int
    stdout: bytes
    stderr: bytes
    command: int
    timed_out: bool = False
    truncated: bool = False


class Process:
    """A command running in a world."""

    def __init__(self, world: World, command: int, limit: int) -> None:
        self._world = world
        self.command = command
        self._done = threading.Event()
        self._code = 0
        self._error = 0
        self._missing = ""
        self._output: dict[str, io.BytesIO] = {}
        self._readers: list[threading.Thread] = []
        self._limit = limit
        self.truncated = False
        self._lock = threading.Lock()
        self._total = 0

    def _finished(self, message: wire.Message) -> None:
        self._code = int(message["code"])
        self._error = int(message.get("error", 0))
        self._missing = str(message.get("missing", ""))
        self._done.set()

    def _read(self, name: str, fd: int) -> None:
        self._output[name] = io.BytesIO()
        thread = threading.Thread(
            target=_pump, args=(fd, name, weakref.ref(self)), name=f"aboveboard-{name}", daemon=True
        )
        thread.start()
        self._readers.append(thread)

    def _forward(self, name: str, source: int, target: int) -> None:
        """Carry bytes between a descriptor of the caller's and a pipe of the command's."""
        thread = threading.Thread(
            target=_carry, args=(source, target, name == "stdin"), name=f"aboveboard-{name}", daemon=True
        )
        thread.start()
        if name != "stdin":
            self._readers.append(thread)

    def _took(self, name: str, chunk: bytes) -> None:
        """Keep what the command wrote, up to the limit; what floods is killed."""
        with self._lock:
            room = self._limit - self._total
            self._total += len(chunk)
            self._output[name].write(chunk[: max(0, room)])
            flooded = self._total > self._limit and not self.truncated
            self.truncated = self.truncated or flooded
        if flooded:
            self._world._kill(self.command, "output", f"more than {self._limit} bytes written to the terminal")

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the main process; returns its code.

        Raises TimeoutError, or UsageError or EnvironmentProblem if it never started.
        """
        if not self._done.wait(timeout):
            raise TimeoutError(f"the command is still running after {timeout} s")
        if self._missing:
            raise UsageError(
                f"{self._missing!r} is not there inside the world",
                advice="the world shows system directories, the program's own installation and the workspace; "
                "work from a folder that holds what is needed (--workspace DIR), or give mounts=",
            )
        if self._error:
            raise EnvironmentProblem(
                f"the program could not be started: {os.strerror(self._error)}",
                advice="check that it is executable and made for this machine",
            )
        return self._code

    def kill(self) -> None:
        """Kill the main process of the command."""
        self._world._kill(self.command)

    def output(self, name: str) -> bytes:
        """What was written to ``stdout`` or ``stderr`` so far, at most the world's ``output_bytes``."""
        with self._lock:
            buffer = self._output.get(name)
            return buffer.getvalue() if buffer else b""

    def _drain(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        for thread in self._readers:
            thread.join(max(0.0, until - time.monotonic()))


class World:
    """A world: namespaces, copy-on-write files, a network that leads nowhere, decoys, and witnesses of every effect.

    Parameters
    ----------
    evidence
        Folder to create for the record; None: a temporary one, removed when the ``Evidence`` object is.
    mode
        ``observe`` records what the contract forbids; ``block`` also refuses it, race-free.
    contract
        Needed in ``block`` mode; in ``observe`` mode it names the inputs whose content is looked for in payloads.
    workspace
        Host directory shown copy-on-write at the same path (unless ``mounts`` put something there), also the default
        current directory and the place that relative contract patterns start from.
    mounts, services, env, decoys, limits
        What else is shown, who may be talked to, variables on top of the synthetic environment, whether secrets
        are planted, and bounds.
    tier
        ``auto`` (R for root, else U; lower only where ``$ABOVEBOARD_FALLBACK`` allows it), ``refuse`` (the same, and
        nothing lower whatever the environment says), or one of ``R``, ``U``, ``N``, ``P``: that or nothing.
    disable
        Witnesses to switch off (to test that the verdict notices).
    intercept_tls
        Read HTTPS payloads with a certificate authority that lives and dies with the world and is in its trust store.

    Threads may share a world; ``run`` may be called from many at once. Raises EnvironmentProblem when this machine
    cannot give the tier asked for, naming the failing step.
    """

    def __init__(
        self,
        *,
        evidence: Path | str | None = None,
        mode: Literal["observe", "block"] = "observe",
        contract: Contract | None = None,
        workspace: Path | str | None = None,
        mounts: Sequence[Mount] = (),
        env: Mapping[str, str] | None = None,
        services: Sequence[Service] = (),
        decoys: bool = True,
        limits: Limits | None = None,
        tier: str = "auto",
        disable: frozenset[str] = frozenset(),
        grace_seconds: float | None = None,
        programs: Sequence[str] = (),
        candidate: Sequence[str] = (),
        intercept_tls: bool = True,
    ) -> None:
        if mode not in ("observe", "block"):  # a slip of the pen must not switch blocking off
            raise UsageError(f"unknown mode {mode!r}", advice="modes: observe, block")
        for mount in mounts:
            if mount.mode not in ("cow", "ro"):
                raise UsageError(f"unknown mode {mount.mode!r} of the mount {mount.target}", advice="modes: cow, ro")
        if mode == "block" and contract is None:
            raise UsageError(
                "block mode needs a contract", advice="give contract=Contract.load(FILE), or mode='observe'"
            )
        if tier not in TIERS:
            raise UsageError(f"unknown tier {tier!r}", advice=f"tiers: {', '.join(TIERS)}")
        unknown = set(disable) - {*WITNESSES, "fanotify", "walk", "ptrace"}
        if unknown:
            raise UsageError(f"unknown witness {sorted(unknown)[0]!r}", advice=f"witnesses: {', '.join(WITNESSES)}")
        self._limits = limits or Limits()
        if contract is not None and contract.wall_seconds is not None:
            wall = min(self._limits.wall_seconds, contract.wall_seconds)
            self._limits = replace(self._limits, wall_seconds=wall)
        self._mode = mode
        self._contract = contract
        self._workspace = os.path.abspath(workspace) if workspace else ""
        self._mounts = list(mounts)
        self._env = dict(env or {})
        self._services = list(services)
        self._decoys = decoys
        self._tier = tier
        self._disable = disable
        self._grace = grace_seconds if grace_seconds is not None else contract.grace_seconds if contract else 1.0
        self._programs = list(programs)
        self._candidate = [os.path.abspath(c) for c in candidate]
        self._intercept = intercept_tls
        self._temporary: str | None = None
        if evidence is None:
            self._temporary = tempfile.mkdtemp(prefix="aboveboard-")
            self._folder = self._temporary
        else:
            self._folder = os.path.abspath(evidence)
        self._made = evidence is None
        self._control: socket.socket | None = None
        self._send_lock = threading.Lock()
        self._processes: dict[int, Process] = {}
        self._replies: dict[int, Any] = {}
        self._serial = 0
        self._reader: threading.Thread | None = None
        self._closed: Evidence | None = None
        self._ended = threading.Event()
        self._supervisor_pid = 0
        self._token = secrets.token_hex(8)
        self.phase_prefix = f"/run/phase/{self._token}-"
        self.assurance = Assurance("none", {})
        self.path = ""

    # --- life ---------------------------------------------------------------------------------------------

    def __enter__(self) -> World:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> World:
        return await _in_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(self.close)

    def __del__(self) -> None:
        control = getattr(self, "_control", None)
        if control is not None:
            try:
                # A thread that reads from it would keep it open.
                control.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            control.close()
        temporary = getattr(self, "_temporary", None)
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)

    def start(self) -> World:
        """Build the world and prove its witnesses. Idempotent."""
        if self._control is not None or self._closed is not None:
            return self
        reason = unsuitable()
        if reason:
            raise EnvironmentProblem(f"no world can be made here: {reason}", advice=ELSEWHERE)
        if not self._made:
            try:
                os.makedirs(self._folder, mode=0o700)
            except FileExistsError:
                if os.listdir(self._folder):
                    raise UsageError(
                        f"{self._folder} exists and is not empty",
                        advice="evidence is never overwritten: name a new folder",
                    ) from None
            except OSError as e:
                raise UsageError(f"cannot create {self._folder}: {e.strerror}", advice="choose a writable place") from e
        allowed = tiers_to_try(self._tier)
        for tier in allowed:
            try:
                self._start_tier(self._spec() | {"tier": tier})
                return self
            except EnvironmentProblem as problem:
                if tier == allowed[-1]:
                    raise
                lower = allowed[allowed.index(tier) + 1]
                warnings.warn(
                    f"{problem.message}; ${FALLBACK} allows tier {lower}, which sees less: that is tried now",
                    AssuranceWarning,
                    stacklevel=2,
                )
                shutil.rmtree(os.path.join(self._folder, "payloads"), ignore_errors=True)
                Path(self._folder, "events.jsonl").unlink(missing_ok=True)
        return self

    def _start_tier(self, spec: dict[str, Any]) -> None:
        """Have a supervisor started. Raises EnvironmentProblem."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._supervisor_pid = SPAWNER.spawn(theirs, folder, spec, [])
        except OSError as e:
            ours.close()
            raise EnvironmentProblem(f"no supervisor could be started: {e}", advice="run aboveboard doctor") from e
        finally:
            os.close(folder)
            theirs.close()
        ours.settimeout(_COPY_SECONDS if spec["tier"] in ("N", "P") else _START_SECONDS)
        try:
            received = wire.receive(ours)
        except TimeoutError:
            received = None
        if received is None or "failed" in received[0]:
            ours.close()
            message = received[0] if received else {"failed": "start the supervisor", "detail": "it did not answer"}
            from .advice import advice_for

            raise EnvironmentProblem(
                f"no world could be made here: {message['failed']}: {message['detail']}",
                advice=advice_for(str(message["failed"]), int(message.get("errno", 0))),
            )
        ours.settimeout(None)
        self._control = ours
        answer = received[0]
        self.assurance = Assurance(str(answer["tier"]), dict(answer["witnesses"]))
        self._reader = threading.Thread(
            target=_read_control, args=(ours, weakref.ref(self)), name="aboveboard-world", daemon=True
        )
        self._reader.start()

    def _spec(self) -> dict[str, Any]:
        targets = {m.target for m in self._mounts}
        workspace = self._workspace
        host_workspace = workspace if workspace and workspace not in targets and os.path.isdir(workspace) else None
        try:
            view = plan_view(
                [*self._programs, sys.executable],
                workspace=host_workspace,
                mounts=self._mounts,
            )
        except ValueError as e:
            raise UsageError(str(e), advice="name a directory below it as the workspace") from e
        for mount in self._mounts:
            if not os.path.lexists(mount.source):
                raise UsageError(f"{mount.source} is not there", advice="mount something that exists")
        self.path = view.path
        from .decoys import environ

        seed = os.urandom(16)
        env = (
            environ(seed, HOME)
            if self._decoys
            else {"HOME": HOME, "USER": "dev", "LOGNAME": "dev", "SHELL": "/bin/bash"}
        )
        env.update({k: os.environ[k] for k in _PASSED_ENVIRONMENT if k in os.environ})
        if self._contract is not None:
            env.update({k: os.environ[k] for k in self._contract.environment if k in os.environ})
        env["PATH"] = view.path
        if self._intercept:
            env.update(dict.fromkeys(CA_VARIABLES, CA_BUNDLE))
        env.update(self._env)
        now = time.time()
        return {
            "mode": self._mode,
            "contract": self._contract.to_toml() if self._contract else "",
            "workspace": workspace,
            "mounts": [(m.source, m.target, m.mode) for m in view.mounts],
            "symlinks": view.symlinks,
            "runtime": view.runtime,
            "candidate": self._candidate,
            "path": view.path,
            "env": env,
            "services": [
                {"name": s.name, "host": s.host, "port": s.port, "upstream": s.upstream} for s in self._services
            ],
            "decoys": self._decoys,
            "seed": seed,
            "token": self._token,
            "limits": self._limits.plain(),
            "tier": self._tier,
            "disable": sorted(self._disable),
            "grace": self._grace,
            "digests": _digest_cache(),
            "intercept": self._intercept,
            "slot": next(_SLOTS),
            "host_uid": os.geteuid(),
            "host": {
                "kernel": platform.release(),
                "arch": platform.machine(),
                "python": platform.python_version(),
                "aboveboard": __version__,
            },
            "argv0": "",
            "started": now,
            "wall": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
        }

    def close(self) -> Evidence:
        """End the world: grace, kill, read the witnesses, seal the log. Returns the evidence; idempotent."""
        from ..evidence import Evidence

        if self._closed is None:
            if self._control is not None:
                try:
                    self._request({"close": True})
                except OSError:
                    pass
                self._ended.wait(120)
                if self._reader is not None:
                    self._reader.join(5)
                self._control.close()
                try:
                    os.waitpid(self._supervisor_pid, 0)
                except ChildProcessError:
                    pass  # it is the spawner's child
            self._closed = Evidence(self._folder)
            if self._temporary is not None:
                # A temporary folder lives as long as the evidence that is read from it.
                weakref.finalize(self._closed, shutil.rmtree, self._temporary, ignore_errors=True)
                self._temporary = None
        return self._closed

    # --- commands -------------------------------------------------------------------------------------------

    def popen(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | int | None = None,
        stdout: int | Literal["capture", "inherit"] = "capture",
        stderr: int | Literal["capture", "inherit"] = "capture",
        phase: str = "call",
        name: str = "",
    ) -> Process:
        """Start a command. ``stdin`` is bytes, a descriptor, or None for nothing; output is captured, inherited or
        goes to a descriptor."""
        if not argv:
            raise UsageError("no command", advice="give at least the program")
        with self._send_lock:
            self._serial += 1
            command = self._serial
        process = Process(self, command, self._limits.output_bytes)
        closing: list[int] = []
        fds: list[int] = []
        feed: tuple[int, bytes] | None = None
        # No descriptor of the host goes inside, /dev/null included: whoever holds one can open it again with other
        # rights, change its mode, or walk from a directory. Pipes stand between.
        reader, writer = os.pipe2(os.O_CLOEXEC)
        fds.append(reader)
        closing.append(reader)
        if isinstance(stdin, int):
            process._forward("stdin", stdin, writer)
        elif stdin:
            feed = (writer, stdin)
        else:
            closing.append(writer)
        for label, wanted, own in (("stdout", stdout, 1), ("stderr", stderr, 2)):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            fds.append(writer)
            closing.append(writer)
            if wanted == "capture":
                process._read(label, reader)
            else:
                process._forward(label, reader, own if wanted == "inherit" else int(wanted))
        self._processes[command] = process
        message: wire.Message = {
            "run": command,
            "argv": [os.fspath(a) for a in argv],
            "cwd": cwd or "",
            "env": dict(env or {}),
            "phase": phase,
            "name": name,
        }
        try:
            self._request(message, fds)
        finally:
            for fd in closing:
                os.close(fd)
        if feed is not None:
            threading.Thread(target=_feed, args=feed, name="aboveboard-stdin", daemon=True).start()
        return process

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | int | None = None,
        stdout: int | Literal["capture", "inherit"] = "capture",
        stderr: int | Literal["capture", "inherit"] = "capture",
        timeout: float | None = None,
        phase: str = "call",
        name: str = "",
    ) -> Completed:
        """Run a command to its end. After ``timeout`` seconds its main process is killed."""
        process = self.popen(argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, phase=phase, name=name)
        timed_out = False
        try:
            code = process.wait(timeout)
        except TimeoutError:
            timed_out = True
            self._kill(process.command, "wall", f"command {process.command} ran longer than {timeout:g} s")
            code = process.wait(10)
        process._drain(1.0)
        return Completed(
            code, process.output("stdout"), process.output("stderr"), process.command, timed_out, process.truncated
        )

    async def arun(self, argv: Sequence[str], **options: Any) -> Completed:
        """``run`` without blocking the event loop."""
        return await _in_thread(lambda: self.run(argv, **options))

    def _kill(self, command: int, reason: str = "", detail: str = "") -> None:
        try:
            self._request({"kill": command, "reason": reason, "detail": detail})
        except OSError:
            pass

    # --- files ------------------------------------------------------------------------------------------------

    def put(self, path: str, data: bytes | Path, mode: int = 0o644) -> None:
        """Write a file inside; parent directories are made. A relative path starts at the workspace."""
        content = data.read_bytes() if isinstance(data, Path) else data
        fd = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode, parents=True)
        with open(fd, "wb") as f:
            f.write(content)
        absolute = os.path.normpath(os.path.join(self._workspace or HOME, path))
        self._request({"put": absolute, "h256": hashlib.sha256(content).hexdigest()})

    def get(self, path: str, limit: int = 64 << 20) -> bytes:
        """The content of a regular file inside, at most ``limit`` bytes. Raises OSError."""
        fd = self._open(path, os.O_RDONLY, 0)
        with open(fd, "rb") as f:
            if not os.path.isfile(f"/proc/self/fd/{fd}"):
                raise OSError(errno.EINVAL, "not a regular file", path)
            data = f.read(limit + 1)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit} bytes", path)
        return data

    def get_tree(self, path: str, dest: Path | str, *, limit: int = 1 << 30, entries: int = 100_000) -> None:
        """Copy a directory inside to ``dest`` outside: regular files and directories only, links and devices left
        out, nothing followed. Raises OSError, also when it is larger than ``limit`` bytes or ``entries``."""
        top = self._open(path, os.O_RDONLY | os.O_DIRECTORY, 0)
        try:
            _copy_tree(top, os.fspath(dest), [limit, entries])
        finally:
            os.close(top)

    def _open(self, path: str, flags: int, mode: int, *, parents: bool = False) -> int:
        absolute = os.path.normpath(os.path.join(self._workspace or HOME, path))
        with self._send_lock:
            self._serial += 1
            ident = self._serial
        slot: list[Any] = [threading.Event(), None, []]
        self._replies[ident] = slot
        self._request({"open": absolute, "flags": flags, "mode": mode, "parents": parents, "id": ident})
        if not slot[0].wait(30) or slot[1] is None:
            raise OSError(errno.EIO, "the world has ended", path)
        if slot[1]["errno"]:
            raise OSError(slot[1]["errno"], os.strerror(slot[1]["errno"]), path)
        return int(slot[2][0])

    # --- the control socket -----------------------------------------------------------------------------------

    def _request(self, message: wire.Message, fds: Sequence[int] = ()) -> None:
        if self._control is None or self._ended.is_set():
            raise OSError(errno.EPIPE, "the world is not running")
        with self._send_lock:
            wire.send(self._control, message, fds)

    def _heard(self, message: wire.Message, fds: list[int]) -> bool:
        """Take a message of the supervisor; False when it was the last."""
        if "exit" in message:
            process = self._processes.pop(int(message["exit"]), None)
            if process is not None:
                process._finished(message)
        elif "reply" in message:
            slot = self._replies.pop(int(message["reply"]), None)
            if slot is not None:
                slot[1], slot[2] = message, fds
                slot[0].set()
                return True
        for fd in fds:
            os.close(fd)
        return "closed" not in message

    def _supervisor_gone(self) -> None:
        self._ended.set()
        for process in list(self._processes.values()):
            process._finished({"code": -9})
        for slot in list(self._replies.values()):
            slot[0].set()


# The threads of a world and its commands refer to them weakly: one that its user has dropped must end.


def _read_control(control: socket.socket, reference: weakref.ref[World]) -> None:
    going_on = True
    while going_on:
        try:
            received = wire.receive(control)
        except OSError:
            received = None
        world = reference()
        if world is None:
            return
        if received is None:
            break
        going_on = world._heard(*received)
        del world
    world = reference()
    if world is not None:
        world._supervisor_gone()


def _carry(source: int, target: int, inwards: bool) -> None:
    """Copy until the source ends; only the pipe's end is ours to close."""
    try:
        while chunk := os.read(source, _FIRST_OUTPUT):
            while chunk:
                chunk = chunk[os.write(target, chunk) :]
    except OSError:
        pass  # the other side closed, or the caller's descriptor is gone
    finally:
        os.close(target if inwards else source)


def _pump(fd: int, name: str, reference: weakref.ref[Process]) -> None:
    with open(fd, "rb", buffering=0) as f:
        while chunk := f.read(_FIRST_OUTPUT):
            process = reference()
            if process is not None:
                process._took(name, chunk)
            del process


def _feed(fd: int, data: bytes) -> None:
    try:
        with open(fd, "wb", buffering=0) as f:
            f.write(data)
    except OSError:
        pass  # the command closed its input


def _copy_tree(source: int, dest: str, budget: list[int], depth: int = 0) -> None:
    if depth > _TREE_DEPTH:
        raise OSError(errno.EFBIG, f"nested deeper than {_TREE_DEPTH} folders", dest)
    os.makedirs(dest, exist_ok=True)
    for name in os.listdir(source):
        budget[1] -= 1
        if budget[1] < 0:
            raise OSError(errno.EFBIG, "too many files")
        fd = (
            os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source)
            if _plain(source, name)
            else -1
        )
        if fd < 0:
            continue
        target = os.path.join(dest, name)
        try:
            info = os.fstat(fd)
            if os.path.isdir(f"/proc/self/fd/{fd}"):
                _copy_tree(fd, target, budget, depth + 1)
                continue
            budget[0] -= info.st_size
            if budget[0] < 0:
                raise OSError(errno.EFBIG, "too many bytes")
            out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, info.st_mode & 0o755 | 0o600)
            with open(out, "wb") as f, open(os.dup(fd), "rb") as g:
                shutil.copyfileobj(g, f)
            os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))
        finally:
            os.close(fd)


def _plain(directory: int, name: str) -> bool:
    import stat

    mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _digest_cache() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(base, "aboveboard")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return ""
    return os.path.join(folder, "digests")


async def _in_thread(function: Callable[[], _T]) -> _T:
    import asyncio

    return await asyncio.get_running_loop().run_in_executor(None, function)
