"""What works on this machine: every step that a world is made of, tried for real, and the narrowest fix for what fails.

Each step runs in a child process of its own, so that nothing of it stays. Last, worlds of each tier are started: that
is what counts; the steps say why.
"""

from __future__ import annotations

import errno
import marshal
import os
import platform
import select
import signal
import socket
import struct
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import EnvironmentProblem, printable
from . import _linux as linux
from . import advice, rooting
from .view import UID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SECONDS = 10.0
_DETAIL = 1000
_TIERS = ("R", "U", "N", "P")
TOKEN = b"aboveboard doctor\0"


@dataclass(frozen=True)
class Finding:
    """The result of one step.

    ``needed`` are the tiers that cannot do without it (empty: it only adds to what a world can do). ``advice`` is the
    narrowest fix ("" when it works, or when there is nothing to do about it).
    """

    name: str
    ok: bool
    detail: str
    needed: tuple[str, ...] = ()
    advice: str = ""

    def to_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "name": self.name,
            "ok": self.ok,
            "detail": self.detail,
            "needed": list(self.needed),
            "advice": self.advice,
        }


@dataclass(frozen=True)
class TierFinding:
    """Whether a world of a tier starts here, and which of its witnesses saw their canary. ``detail``: why it does
    not."""

    tier: str
    ok: bool
    witnesses: dict[str, bool] = field(default_factory=dict)
    detail: str = ""
    advice: str = ""

    def to_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "tier": self.tier,
            "ok": self.ok,
            "witnesses": self.witnesses,
            "detail": self.detail,
            "advice": self.advice,
        }


@dataclass(frozen=True)
class Report:
    """What :func:`report` found. ``tier`` is the default tier here ("" when no world of full assurance can be made)."""

    machine: dict[str, str]
    steps: tuple[Finding, ...]
    tiers: tuple[TierFinding, ...]
    apparmor_profile: str = ""

    @property
    def tier(self) -> str:
        """The strongest tier that ``auto`` reaches."""
        return next((t.tier for t in self.tiers if t.ok and t.tier in ("R", "U")), "")

    @property
    def ok(self) -> bool:
        """Can worlds of full assurance be made here?"""
        return bool(self.tier)

    def to_dict(self) -> dict[str, object]:
        """For ``--json``: plain data."""
        return {
            "ok": self.ok,
            "tier": self.tier,
            "machine": self.machine,
            "steps": [s.to_dict() for s in self.steps],
            "tiers": [t.to_dict() for t in self.tiers],
            "apparmor_profile": self.apparmor_profile,
        }

    def __str__(self) -> str:
        lines = [f"{name:<12}{printable(value)}" for name, value in self.machine.items()]
        lines.append("")
        width = max((len(s.name) for s in self.steps), default=0)
        for step in self.steps:
            mark = "ok  " if step.ok else "FAIL" if step.needed else "no  "
            lines.append(f"{mark} {step.name:<{width}}  {printable(step.detail)}".rstrip())
        lines.append("")
        lines += [f"tier {found.tier}  {_told(found)}" for found in self.tiers]
        lines += ["", self._summary()]
        fixes = [t.advice for t in self.tiers if t.tier in ("R", "U") and not self.ok]
        fixes += [s.advice for s in self.steps if self._matters(s)]
        lines += [f"  - {fix}" for fix in dict.fromkeys(fixes) if fix]
        if self.apparmor_profile:
            lines += ["", "AppArmor profile for this interpreter:", "", self.apparmor_profile]
        return "\n".join(lines)

    def _matters(self, step: Finding) -> bool:
        """Does a tier that ought to work here fail for this step?"""
        return not step.ok and any(t in step.needed for t in ("U", "N") if not self._works(t))

    def _works(self, tier: str) -> bool:
        return any(t.ok for t in self.tiers if t.tier == tier)

    def _summary(self) -> str:
        if self.ok:
            return f"Worlds of full assurance work here: tier {self.tier}."
        lower = [t.tier for t in self.tiers if t.ok]
        if lower:
            return (
                f"Worlds of full assurance do not work here. Tier {lower[0]} does, with less assurance: "
                f"--tier {lower[0]}. To get the default tier:"
            )
        return "No world can be made here: nothing untrusted is run. To change that:"


def _told(found: TierFinding) -> str:
    if found.ok:
        return "works; every witness saw its canary"
    blind = [name for name, ok in found.witnesses.items() if not ok]
    if blind:
        return f"starts, but did not see its canary: {', '.join(blind)}"
    return "does not work: " + printable(found.detail)


# --- trying ------------------------------------------------------------------------------------------------------


def attempt(action: Callable[[], str], seconds: float = _SECONDS) -> tuple[bool, str, int, str]:
    """Run ``action`` in a child: (worked, detail, errno, the name of the failed step or "")."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        result: tuple[bool, str, int, str] = (False, "it ended without a word", 0, "")
        try:
            os.close(reader)
            os.setsid()
            try:
                result = (True, action(), 0, "")
            except rooting.StepFailed as e:
                result = (False, e.error.strerror or str(e.error), e.error.errno or 0, e.step)
            except OSError as e:
                result = (False, e.strerror or str(e), e.errno or 0, "")
            except Exception as e:  # a surprise is a finding too
                result = (False, f"{type(e).__name__}: {e}", 0, "")
            worked, detail, number, step = result
            os.write(writer, marshal.dumps((worked, detail[:_DETAIL], number, step)))
        finally:
            os._exit(0)
    os.close(writer)
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    # One write, one read: what the step has started may hold the pipe open for longer.
    data = os.read(reader, select.PIPE_BUF) if poller.poll(seconds * 1000) else b""
    os.close(reader)
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
    os.waitpid(pid, 0)
    if not data:
        return (False, f"no answer within {seconds:g} s, or it was killed", errno.ETIMEDOUT, "")
    found: tuple[bool, str, int, str] = marshal.loads(data)
    return found


# --- steps: each runs in a child, returns a detail, raises OSError or StepFailed ---------------------------------


def _enter(*flags: int) -> None:
    """A user namespace with one id mapped, and then further namespaces."""
    uid, gid = os.geteuid(), os.getegid()
    rooting.step("unshare(CLONE_NEWUSER)", lambda: linux.unshare(linux.CLONE_NEWUSER))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{UID} {uid} 1\n"), ("gid_map", f"{UID} {gid} 1\n")):
        try:
            with open(f"/proc/self/{name}", "w", encoding="ascii") as f:
                f.write(text)
        except OSError as e:
            if name != "setgroups":
                raise rooting.StepFailed(f"write {name}", e) from e
    for flag in flags:
        linux.unshare(flag)


def _user_namespace() -> str:
    linux.unshare(linux.CLONE_NEWUSER)
    return ""


def _id_map() -> str:
    _enter()
    return f"{os.geteuid()} inside"


def _namespace(flag: int) -> Callable[[], str]:
    def enter() -> str:
        _enter(flag)
        if flag == linux.CLONE_NEWPID:
            pid = os.fork()
            if pid == 0:
                os._exit(0 if os.getpid() == 1 else 1)
            if os.waitpid(pid, 0)[1]:
                raise OSError(errno.EINVAL, "the first process has another id than 1")
        return ""

    return enter


def _stage() -> str:
    """A fresh tmpfs, where everything else is mounted."""
    _enter(linux.CLONE_NEWNS)
    linux.mount("", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    place = next(d for d in ("/mnt", "/media", "/srv", "/sys") if os.path.isdir(d))
    rooting.step("mount tmpfs", lambda: linux.mount("tmpfs", place, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV))
    return place


def _overlay() -> str:
    place = _stage()
    for name in ("low", "up", "work", "all"):
        os.mkdir(f"{place}/{name}")
    with open(f"{place}/low/file", "w", encoding="ascii") as f:
        f.write("before")
    options = f"lowerdir={place}/low,upperdir={place}/up,workdir={place}/work,userxattr"
    rooting.step("mount overlay", lambda: linux.mount("overlay", f"{place}/all", "overlay", data=options))
    with open(f"{place}/all/file", "w", encoding="ascii") as f:
        f.write("after")
    with open(f"{place}/up/file", encoding="ascii") as f:
        if f.read() != "after":
            raise OSError(errno.EIO, "the upper layer did not take a change")
    return "a change goes to the upper layer"


def _proc() -> str:
    place = _stage()
    linux.unshare(linux.CLONE_NEWPID)

    def mount() -> str:
        flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
        rooting.step("mount proc", lambda: linux.mount("proc", place, "proc", flags))
        return f"{sum(n.isdigit() for n in os.listdir(place))} process seen inside"

    ok, detail, number, _ = attempt(mount)
    if not ok:
        raise rooting.StepFailed("mount proc", OSError(number, detail))
    return detail


def _devpts() -> str:
    place = _stage()
    flags = linux.MS_NOSUID | linux.MS_NOEXEC
    rooting.step("mount devpts", lambda: linux.mount("devpts", place, "devpts", flags, "newinstance,ptmxmode=0666"))
    os.close(os.open(f"{place}/ptmx", os.O_RDWR | os.O_NOCTTY))
    return ""


def _any_address(family: int, address: str) -> Callable[[], str]:
    def answer() -> str:
        from .netlink import raise_loopback

        _enter(linux.CLONE_NEWNET)
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        loopback = raise_loopback(proc)
        if family == socket.AF_INET6 and not loopback.ipv6:
            return "the kernel has no IPv6: none can be sent either"
        with socket.socket(family) as server, socket.socket(family) as client:
            if family == socket.AF_INET6:
                server.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # IPV6_FREEBIND
            server.bind((address, 80))
            server.listen()
            client.settimeout(2)
            client.connect((address, 80))
        return f"{address} answers"

    return answer


def _packet_socket() -> str:
    _enter(linux.CLONE_NEWNET)
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP).close()
    return ""


def _small_filter(action: int) -> bytes:
    """``action`` for openat(2), everything else allowed."""
    return b"".join(
        struct.pack("=HBBI", *i)
        for i in (
            (0x20, 0, 0, 0),
            (0x15, 0, 1, linux.NUMBERS["openat"]),
            (0x06, 0, 0, action),
            (0x06, 0, 0, linux.SECCOMP_RET_ALLOW),
        )
    )


def _notification() -> str:
    """A child opens a file; the open is heard here, its path read, another descriptor given."""
    from .calls import Listener
    from .syscalls import ABI_OF, NAME_OF

    if not linux.NUMBERS:
        raise OSError(errno.ENOSYS, f"the system calls of {linux.ARCH} are not known")
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
            try:
                listener_inside = linux.install_filter(_small_filter(linux.SECCOMP_RET_USER_NOTIF))
            except OSError as e:
                theirs.send(b"E%d" % (e.errno or 0))
                os._exit(1)
            theirs.send(b"%d" % listener_inside)
            theirs.recv(1)
            os.close(listener_inside)
            fd = os.open("/aboveboard/doctor", os.O_RDONLY)
            theirs.send(os.read(fd, 64))
        finally:
            os._exit(0)
    told = ours.recv(64)
    if told.startswith(b"E"):
        raise rooting.StepFailed("install a filter with a listener", OSError(int(told[1:]), os.strerror(int(told[1:]))))
    pidfd = linux.pidfd_open(pid)
    try:
        taken = linux.pidfd_getfd(pidfd, int(told))
    except OSError as e:
        raise rooting.StepFailed("pidfd_getfd", e) from e
    ours.send(b"g")
    call = Listener(taken, 0, NAME_OF, ABI_OF).receive()
    if call is None:
        raise OSError(errno.EIO, "the notification vanished")
    try:
        path = linux.MemoryReader().string(call.tid, call.args[1])
    except OSError as e:
        raise rooting.StepFailed("process_vm_readv", e) from e
    if path != b"/aboveboard/doctor":
        raise OSError(errno.EIO, f"the path read is {path!r}")
    given = os.memfd_create("doctor")
    os.write(given, TOKEN)
    os.lseek(given, 0, os.SEEK_SET)
    call.inject(given, cloexec=True)
    ours.settimeout(2)
    if ours.recv(64) != TOKEN:
        raise rooting.StepFailed("SECCOMP_IOCTL_NOTIF_ADDFD", OSError(errno.EINVAL, "the descriptor did not arrive"))
    return "a path was read, a descriptor given"


def _killable() -> str:
    """SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (Linux 5.19): an answered call is not interrupted by a signal."""
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    import ctypes

    program = _small_filter(linux.SECCOMP_RET_ALLOW)
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = linux._SockFprog(len(program) // 8, ctypes.addressof(buffer))
    flags = linux.SECCOMP_FILTER_FLAG_NEW_LISTENER | linux.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
    linux.syscall("seccomp", linux.SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(fprog))
    return ""


def _landlock() -> str:
    abi = linux.landlock_abi()
    if not abi:
        raise rooting.StepFailed("landlock", OSError(errno.ENOSYS, "the kernel offers none"))
    return f"ABI {abi}"


def _ptrace() -> str:
    from .ptrace import Continue, Tracer, Unsupported

    if not linux.NUMBERS:
        raise OSError(errno.ENOSYS, f"the system calls of {linux.ARCH} are not known")
    heard: list[int] = []

    def on_call(tid: int, _number: int, _args: tuple[int, ...], _read: object) -> Continue:
        heard.append(tid)
        return Continue()

    tracer = Tracer(_small_filter(linux.SECCOMP_RET_TRACE), on_call)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        tracer.run(["/bin/true"], {}, "/", {0: null, 1: null, 2: null}, timeout=5)
    except Unsupported as e:
        raise rooting.StepFailed("ptrace", OSError(errno.EPERM, str(e))) from e
    if not heard:
        raise OSError(errno.EIO, "no call was heard")
    return f"{len(heard)} calls of /bin/true heard"


def _cgroup() -> str:
    from .cgroup import Group

    group = Group.create(64, 1 << 30)
    if group is None:
        raise OSError(errno.EACCES, "no group may be made: tasks and memory are counted by the supervisor instead")
    limits = ", ".join(group.limits)
    group.remove()
    return f"bounds taken: {limits}" if limits else "a group without bounds"


def _fanotify() -> str:
    os.close(linux.syscall("fanotify_init", 0x1 | 0x2 | 0x10 | 0x20, os.O_RDONLY))
    return ""


@dataclass(frozen=True)
class Step:
    """One thing to try. ``advise`` names the step for the table of fixes (as the world itself would)."""

    name: str
    action: Callable[[], str]
    needed: tuple[str, ...] = ()
    advise: str = ""


def steps() -> tuple[Step, ...]:
    """Everything a world is made of, in the order in which it is needed."""
    full = ("U", "R")
    unshare = "unshare"
    return (
        Step("user namespace", _user_namespace, full, unshare),
        Step("id map", _id_map, full, "write uid_map"),
        *(
            Step(f"{name} namespace", _namespace(flag), full, unshare)
            for name, flag in (
                ("mount", linux.CLONE_NEWNS),
                ("pid", linux.CLONE_NEWPID),
                ("network", linux.CLONE_NEWNET),
                ("ipc", linux.CLONE_NEWIPC),
                ("uts", linux.CLONE_NEWUTS),
                ("cgroup", linux.CLONE_NEWCGROUP),
            )
        ),
        Step("overlay on tmpfs (userxattr)", _overlay, full, "mount overlay"),
        Step("proc of its own", _proc, full, "mount proc"),
        Step("devpts of its own", _devpts, full, "mount devpts"),
        Step("any IPv4 address is local", _any_address(socket.AF_INET, "198.51.100.7"), full, unshare),
        Step("any IPv6 address is local", _any_address(socket.AF_INET6, "2001:db8::7"), full, unshare),
        Step("packet and raw sockets", _packet_socket, full, unshare),
        Step("seccomp user notification", _notification, (*full, "N"), "seccomp user notification"),
        Step("  not interrupted by signals", _killable),
        Step("Landlock", _landlock, ("N", "P"), "landlock"),
        Step("ptrace", _ptrace, ("P",), "ptrace"),
        Step("control group of its own", _cgroup),
        Step("fanotify (root)", _fanotify, (), "fanotify_init"),
    )


# --- reporting ----------------------------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """Kernel, architecture, interpreter, surroundings."""
    uname = os.uname()
    surroundings = []
    if advice.in_container():
        surroundings.append("container")
    if "microsoft" in uname.release.lower():
        surroundings.append("WSL 1" if uname.release.endswith("-Microsoft") else "WSL 2")
    return {
        "kernel": f"{uname.sysname} {uname.release}",
        "machine": platform.machine(),
        "python": f"{platform.python_version()} ({os.path.realpath(sys.executable)})",
        "user": "root" if os.geteuid() == 0 else f"uid {os.geteuid()}",
        "inside": ", ".join(surroundings) or "-",
    }


def try_tier(tier: str) -> TierFinding:
    """Start a world of this tier, and end it."""
    from .world import World

    try:
        with World(tier=tier, grace_seconds=0.0) as world:
            assurance = world.assurance
    except EnvironmentProblem as problem:
        return TierFinding(tier, False, {}, problem.message, problem.advice)
    witnesses = dict(assurance.witnesses)
    return TierFinding(tier, all(witnesses.values()), witnesses)


def apparmor_profile(interpreter: str) -> str:
    """A profile that allows user namespaces to one interpreter and restricts nothing else, with how to load it."""
    name = "aboveboard-" + os.path.basename(interpreter)
    path = f"/etc/apparmor.d/{name}"
    return "\n".join(
        [
            f"sudo tee {path} <<'EOF'",
            "abi <abi/4.0>,",
            "include <tunables/global>",
            "",
            f'profile {name} "{interpreter}" flags=(unconfined) {{',
            "  userns,",
            f"  include if exists <local/{name}>",
            "}",
            "EOF",
            f"sudo apparmor_parser -r {path}",
        ]
    )


def report(tiers: Sequence[str] = ("R", "U", "N", "P")) -> Report:
    """Try everything. Changes nothing on the machine; takes a second or two."""
    reason = advice.unsuitable()
    if reason:
        broken = tuple(TierFinding(t, False, {}, reason) for t in tiers)
        return Report(machine(), (Finding("a Linux that can", False, reason, _TIERS, advice.ELSEWHERE),), broken)
    found = []
    for step in steps():
        ok, detail, number, failed = attempt(step.action)
        if not ok and failed:
            detail = f"{failed}: {detail}"
        fix = "" if ok or not step.advise else advice.advice_for(step.advise, number)
        found.append(Finding(step.name, ok, detail, step.needed, fix))
    # AppArmor lets the namespace be made and then takes away what it is good for: any later step may fail first.
    restricted = advice.userns_restricted() and any(not f.ok for f in found if "U" in f.needed)
    profile = apparmor_profile(os.path.realpath(sys.executable)) if restricted else ""
    wanted = [t for t in tiers if t != "R" or os.geteuid() == 0]
    return Report(machine(), tuple(found), tuple(try_tier(t) for t in wanted), profile)
