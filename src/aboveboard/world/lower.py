"""Tier N: a world where user namespaces are refused, and what tier P has in common with it.

The same trapped calls and handlers as in tier U, but no root, no process table and no network of its own: see
:mod:`.lower_files` for what stands in for the root, :mod:`.lower_traffic` for the network, :mod:`.lower_init` for PID
1 and :mod:`.lower_landlock` for the wall in the kernel, without which there is no such tier.
``docs/explanation/assurance-tiers.md`` says what that leaves open.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import socket
import stat
import tempfile
import time
from typing import TYPE_CHECKING, Any

from ..contract import Contract
from . import _linux as linux
from . import lower_init, lower_landlock, wire
from .calls import PROOF, Call, signed
from .cgroup import Group
from .changes import Snapshot, compare, snapshot
from .decoys import etc_files, plant
from .log import text
from .lower_files import DEVICES, TEMPORARY, LowerFiles, Shadow, Wall, copy_tree
from .lower_traffic import LowerSink, LowerTraffic
from .netlink import Loopback
from .placement import Placement
from .programs import DigestCache, Programs
from .rooting import Layer, Root, StepFailed, step
from .spec import Service
from .supervisor import NAMESERVER, Supervisor, prepare, seal_imports
from .tasks import Process, Tasks
from .view import CA_BUNDLE, HOME, HOSTNAME, UID, USER, Mount, View

if TYPE_CHECKING:
    from collections.abc import Callable

_CLASSES = {
    "notify": ["read", "exec", "process", "flow"],
    "walk": ["change"],
    "sink": ["payload"],
    "canary": ["secret"],
    "escape": ["escape"],
}
_DISK_EVERY = 2.0
_MOST_MEASURED = 50_000


class LowerTasks(Tasks):
    """The table of processes; programs below the shadow are recorded by their original names."""

    def __init__(
        self,
        log: Any,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], None],
        shadow: Shadow,
    ) -> None:
        super().__init__(log, watch, unwatch)
        self._shadow = shadow

    def _check_program(self, process: Process) -> None:
        process.unchecked = False
        try:
            exe = os.fsdecode(self._shadow.original(os.readlink(b"%d/exe" % process.pid)))
            info: os.stat_result | None = os.stat(f"{process.pid}/exe")
        except OSError:
            exe, info = "", None
        ident = (info.st_dev, info.st_ino) if info else (0, 0)
        if process.known and exe == process.exe and ident == process.exe_id:
            return
        process.exe, process.exe_id, process.known = exe, ident, True
        fields = f',"pp":{process.parent},"ns":{process.ns},"x":{text(exe)}'
        self._log.add("proc", process.pid, process.command, fields)


class LowerPrograms(Programs):
    """Handlers of exec, clone, signals and refused calls where processes are among the host's own."""

    _s: LowerSupervisor

    def clone(self, call: Call) -> None:
        """fork, vfork, clone: none once the end has begun, so that nothing outruns the kill."""
        if self._s.ending:
            return call.fail(errno.EAGAIN)
        return super().clone(call)

    def _recount(self) -> bool:
        live = 0
        for pid in self._s.everybody():
            try:
                live += os.stat(f"{pid}/task").st_nlink - 2
            except OSError:
                continue
        self._budget = self._s.limits.processes - live
        return self._budget > 0

    def control(self, call: Call) -> None:
        """As in tier U; flags of files (chattr) are not changed at all: no wall of the kernel's stands around them."""
        if call.name == "ioctl" and call.args[1] & 0xFFFFFFFF in (0x40086602, 0x401C5820):
            self._log.add("meta", call.process.pid, call.command, ',"s":"ioctl","n":"","d":"flags","r":"denied"')
            return call.fail(errno.EOPNOTSUPP)
        return super().control(call)

    def signal(self, call: Call) -> None:
        """kill and its relatives: only to processes of this world."""
        name, a = call.name, call.args
        if name == "pidfd_send_signal":
            return self._signal_by_descriptor(call)
        target = signed(a[0])
        number = a[2] if name in ("tgkill", "rt_tgsigqueueinfo") else a[1]
        if name in ("tgkill", "tkill", "rt_tgsigqueueinfo", "rt_sigqueueinfo"):
            allowed = target > 0 and self._s.inside(target)
        elif target > 0:
            allowed = self._s.inside(target)
        elif target == 0:
            allowed = True  # the caller's own group, which is of this world since setsid at the start
        else:
            allowed = target < -1 and self._is_own_group(-target)
        if allowed:
            super().signal(call)
            return self._s.pass_signal(call, target, number)
        fields = f',"s":"{name}","to":{target},"sig":{number & 0xFF}'
        self._log.add("signal", call.process.pid, call.command, fields + ',"r":"denied"')
        exists = target < 0 or os.path.exists(str(target))
        return call.fail(errno.EPERM if exists else errno.ESRCH)

    def _is_own_group(self, group: int) -> bool:
        for pid in self._s.everybody():
            try:
                with open(f"{pid}/stat", "rb") as f:
                    if int(f.read(512).rpartition(b")")[2].split()[2]) == group:
                        return True
            except (OSError, IndexError, ValueError):
                continue
        return False

    def _signal_by_descriptor(self, call: Call) -> None:
        """Sent from here, to the process whose descriptor was looked at."""
        pid = self._pidfd_target(call, signed(call.args[0]))
        fields = f',"s":"{call.name}","to":{pid},"sig":{call.args[1] & 0xFF}'
        if pid <= 0 or not self._s.inside(pid):
            self._log.add("signal", call.process.pid, call.command, fields + ',"r":"denied"')
            return call.fail(errno.EPERM if pid else errno.EBADF)
        try:
            signal.pidfd_send_signal(self._s.tasks.processes[pid].pidfd, call.args[1] & 0xFF)
        except (OSError, KeyError) as e:
            return call.fail(getattr(e, "errno", 0) or errno.ESRCH)
        return call.value(0)


class LowerSupervisor(Supervisor):
    """A world of tier N."""

    classes = _CLASSES
    change_witness = "walk"
    sink_type = LowerSink
    counts_packets = False
    files_type: type[LowerFiles] = LowerFiles
    files: LowerFiles
    traffic: LowerTraffic
    readable_files: tuple[str, ...] = ()
    fence_reads = False
    """Whether the kernel's wall also stands in front of reading (tier P: there the candidate opens files itself)."""

    def __init__(self, control: socket.socket, evidence: int, spec: dict[str, Any], extra: list[int]) -> None:
        super().__init__(control, evidence, spec, extra)
        self.uid = os.geteuid()
        self.ending = False
        self.shadow: Shadow
        self.wall: Wall
        self._before: Snapshot
        self._scratch = -1
        self._left_out: list[str] = []
        self._waiting: dict[int, socket.socket] = {}
        self._next_disk = 0.0
        # Either name says that the comparison of files is switched off.
        if "overlay" in self.disabled:
            self.disabled |= {"walk"}

    # --- set-up -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Build the world and prove its witnesses. Raises StepFailed or OSError."""
        spec = self.spec
        os.umask(0)
        abi = linux.landlock_abi()
        if not linux.NUMBERS:
            raise StepFailed("know the system calls", OSError(errno.ENOSYS, f"{linux.ARCH} is not known"))
        if not abi:
            # Without it nothing but check-then-continue would stand between a candidate and the user's files.
            raise StepFailed("landlock", OSError(errno.ENOSYS, "the kernel offers no Landlock"))
        contract = Contract.parse(spec["contract"]) if spec["contract"] else None
        self._contract = contract
        self._rules = contract.compile(workspace=self.workspace, home=HOME) if contract else None
        enforced = self._rules if self.mode == "block" else None
        cache = self._open_evidence()
        self._group = Group.create(self.limits.processes, self.limits.memory_bytes)
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        services = [Service(**s) for s in spec["services"]]
        self._prepare_services(services)
        view = View(
            mounts=[Mount(*m) for m in spec["mounts"]],
            symlinks=spec["symlinks"],
            runtime=spec["runtime"],
            path=spec["path"],
        )
        self.runtime_roots = [*view.runtime, "/etc", "/sys"]
        prepare()
        step("make a private copy", lambda: self._build(view))
        self._own_addresses = frozenset()
        seal_imports()
        os.fchdir(proc)
        self._raise_fence(abi)
        self._begin(abi)
        self.tasks = LowerTasks(self.log, self._watch, self._unregister, self.shadow)
        self.placement = Placement(spec["slot"], pin=False)  # the host's scheduler is not ours
        self.files = self.files_type(self, enforced, self.wall)
        self.files.proc_device = os.fstat(proc).st_dev
        os.close(proc)
        self.programs = LowerPrograms(self, enforced, DigestCache(cache))
        self.traffic = LowerTraffic(self, enforced)
        self._start_network(Loopback(frozenset(), True, False), services)
        self._handlers = self._table()
        self._write_header(self._decoys, services)
        for detail in self._left_out[:16]:
            self.log.record({"e": "limit", "what": "copy", "d": detail})
        self._before = self._look()
        self._prove()
        if not self._live[next(iter(self.classes))]:
            raise StepFailed(self._step_of_witness(), OSError(errno.EPERM, "it did not see its canary"))

    def _step_of_witness(self) -> str:
        return "seccomp user notification"

    def _build(self, view: View) -> None:
        """The shadow: a home with decoys, the files of ``/etc`` that name the user, copies of what may be changed."""
        spec = self.spec
        root = tempfile.mkdtemp(prefix="dev-")
        _start_janitor(root)
        places = [HOME, *TEMPORARY]
        fixed: set[str] = set()
        for place in TEMPORARY:
            os.makedirs(root + place)
            os.chmod(root + place, 0o1777)
        self._decoys = plant(root, HOME, USER, seed=spec["seed"]) if spec["decoys"] else []
        os.makedirs(root + HOME, exist_ok=True)
        etc = etc_files(USER, HOSTNAME, seed=spec["seed"], home=HOME, uid=self.uid or UID, nameserver=NAMESERVER)
        for path, data in etc.items():
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            with open(root + path, "wb") as f:
                f.write(data)
            fixed.add(path)
        fixed |= {d.path for d in self._decoys if not _below(d.path, [HOME])}
        room = self.limits.disk_bytes
        runtime = [*view.runtime]
        readable = [*runtime, *self.candidate_roots]
        self._read_only: list[str] = []
        self._originals: list[str] = []
        for mount in view.mounts:
            if mount.source == mount.target and _below(mount.target, runtime):
                continue
            if mount.mode == "ro" and mount.source == mount.target:
                readable.append(mount.source)
                continue
            if mount.source == mount.target and any(
                m is not mount and m.source == m.target and _below(mount.source, [m.source]) for m in view.mounts
            ):
                continue  # a file system below something that is copied as a whole
            os.makedirs(os.path.dirname(root + mount.target), exist_ok=True)
            copied = copy_tree(mount.source, root + mount.target, max_bytes=room)
            self._left_out += copied.left_out
            places.append(mount.target)
            self._originals.append(mount.source)
            if mount.mode == "ro":
                self._read_only.append(mount.target)
        if self.workspace and not _below(self.workspace, [HOME, *places]):
            os.makedirs(root + self.workspace, exist_ok=True)
            places.append(self.workspace)
        self._plant_bundle(root)
        fixed.add(CA_BUNDLE)
        self.shadow = Shadow(root, places, fixed)
        self.wall = Wall(self.shadow, readable, self._read_only)
        self._scratch = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._root = Root(scratch=self._scratch)
        for place in places:
            if os.path.isdir(root + place):
                self._root.layers.append(
                    Layer(place, -1, os.open(root + place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
                )

    def _plant_bundle(self, root: str) -> None:
        os.makedirs(os.path.dirname(root + CA_BUNDLE), exist_ok=True)
        with open(root + CA_BUNDLE, "wb"):
            pass

    def _plant_authority(self, pem: bytes) -> None:
        host = b""
        for bundle in ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"):
            try:
                with open(bundle, "rb") as f:
                    host = f.read(4 << 20)
                break
            except OSError:
                continue
        with open(os.fsdecode(self.shadow.root) + CA_BUNDLE, "wb") as f:
            f.write(host + pem)

    def _raise_fence(self, abi: int) -> None:
        """The supervisor opens files for others: the wall in the kernel stands before it as well."""
        linux.drop_all_capabilities()
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        rights = lower_landlock.changes(abi)
        rules: list[tuple[str | int, int]] = [(os.fsdecode(self.shadow.root), rights), (self._payloads, rights)]
        rules += [*self._device_rules(), ("/dev/pts", linux.LANDLOCK_WRITE_FILE)]
        if self._group is not None:
            rules.append((self._group._parent, linux.LANDLOCK_REMOVE_DIR))
        fence = lower_landlock.ruleset(abi, rights, rules)
        step("landlock", lambda: linux.landlock_restrict(fence))
        os.close(fence)

    @staticmethod
    def _device_rules() -> list[tuple[str | int, int]]:
        rights = linux.LANDLOCK_WRITE_FILE | linux.LANDLOCK_READ_FILE
        return [(f"/dev/{name}", rights) for name in DEVICES]

    def candidate_fence(self, abi: int) -> int:
        """The ruleset for everything that runs inside."""
        handled = lower_landlock.changes(abi) | linux.LANDLOCK_EXECUTE
        read = 0
        if self.fence_reads:
            read = linux.LANDLOCK_READ_FILE | linux.LANDLOCK_READ_DIR
            handled |= read
        run = linux.LANDLOCK_EXECUTE | read
        rules: list[tuple[str | int, int]] = [(os.fsdecode(self.shadow.root), handled), *self._device_rules()]
        rules += [(os.fsdecode(tree), run) for tree in self.wall.trees]
        # A path in a script may name the original, which the kernel then runs: it is the same program.
        rules += [(path, linux.LANDLOCK_EXECUTE) for path in self._originals]
        if read:
            rules += [(path, read) for path in ("/proc", *self.readable_files, *self.wall.readable_entries())]
            rules.append(("/dev", linux.LANDLOCK_READ_DIR))
        return lower_landlock.ruleset(abi, handled, rules, isolate=True)

    def _begin(self, abi: int) -> None:
        """Fork the subreaper."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            pid = os.fork()
        except OSError as e:
            raise StepFailed("fork", e) from e
        if pid == 0:
            try:
                ours.close()
                self.control.close()
                self._epoll.close()
                os.chdir("/")
                fence = self.candidate_fence(abi)
                for fd in (self.evidence, self._payloads, self.log.fd, self._scratch, *self._upstreams.values()):
                    os.close(fd)
                for layer in self._root.layers:
                    os.close(layer.lower)
                lower_init.main(theirs, fence, -1)
            finally:
                os._exit(1)
        theirs.close()
        self._init_pid = pid
        self._init = ours
        if self._group is not None and not self._group.add(pid):
            self._group.remove()
            self._group = None
        self._register(ours.fileno(), select.EPOLLIN, self._from_init)

    def _more_header(self) -> dict[str, object]:
        return {"shadow": self.shadow.root}

    def _upper_tmp(self) -> int:
        return os.open("tmp", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._scratch)

    def _look(self, previous: Snapshot | None = None) -> Snapshot:
        scanner = self.scanner if previous is not None and "canary" not in self.disabled else None
        return snapshot(self._scratch, previous=previous, scanner=scanner)

    # --- commands ---------------------------------------------------------------------------------------------

    def _is_directory(self, path: str) -> bool:
        return os.path.isdir(self.shadow.real(os.fsencode(path)))

    def _find(self, name: str, search: str, cwd: str) -> str | None:  # type: ignore[override]
        places = [os.path.join(directory, name) for directory in search.split(":") if directory]
        if "/" in name:
            places = [os.path.normpath(os.path.join(cwd, name))]
        for path in places:
            real = self.shadow.real(os.fsencode(path))
            if os.path.exists(real) and ("/" in name or (os.access(real, os.X_OK) and not os.path.isdir(real))):
                return path
        return None

    def _inside_message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Program, arguments, variables and directory of a command with original places led to their shadows."""
        root = os.fsdecode(self.shadow.root)
        given = dict(message["env"])
        env = {name: self.shadow.in_text(value) for name, value in given.items()}
        env.setdefault("TMPDIR", f"{root}/tmp")
        limits = dict(message["limits"])
        limits.pop("RLIMIT_NPROC", None)  # it would count the user's other processes
        real = self.shadow.real
        return {
            **message,
            "program": os.fsdecode(real(os.fsencode(message["program"]))),
            "argv": [self.shadow.in_text(a) for a in message["argv"]],
            "env": env,
            "cwd": os.fsdecode(real(os.fsencode(message["cwd"]))),
            "limits": limits,
        }

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
        super()._launch(command, message, fds, mine, theirs, at_upper)

    def _give(self, message: wire.Message) -> None:
        path = str(message["open"])
        flags = int(message["flags"])
        try:
            if message.get("parents"):
                self._make_parents(path)
            fd = self.files.open_for_client(path, flags, int(message["mode"]))
        except OSError as e:
            wire.send(self.control, {"reply": message["id"], "errno": e.errno or errno.EIO})
            return
        try:
            wire.send(self.control, {"reply": message["id"], "errno": 0}, [fd])
        finally:
            os.close(fd)

    def _make_parents(self, path: str) -> None:
        parent = os.path.dirname(path)
        missing = []
        while not self._exists(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        for directory in reversed(missing):
            place = self.files.walk(None, None, os.fsencode(directory))
            try:
                real = self.files.real_name(place.parent) + b"/" + place.leaf
                if not self.wall.may_write(real):
                    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
                os.mkdir(place.leaf, 0o755, dir_fd=place.parent)
            finally:
                place.close()

    def _exists(self, path: str) -> bool:
        try:
            place = self.files.walk(None, None, os.fsencode(path))
        except FileNotFoundError:
            return False
        place.close()
        return place.fd >= 0

    # --- trapped calls ------------------------------------------------------------------------------------------

    def _table(self) -> dict[str, Callable[[Call], None]]:
        return {name: _native(handler, self.programs.refuse) for name, handler in super()._table().items()}

    def inside(self, pid: int) -> bool:
        """Is this a process of the world (the subreaper is not)?"""
        if pid in self.tasks.processes:
            return True
        for _ in range(256):
            try:
                with open(f"{pid}/stat", "rb") as f:
                    pid = int(f.read(512).rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                return False
            if pid == self._init_pid:
                return True
            if pid <= 1:
                return False
        return False

    def everybody(self) -> list[int]:
        """Process ids of all that run in the world now."""
        return lower_init.descendants(self._init_pid)

    def broken_pipe(self, call: Call) -> None:
        """Send the signal that a send on a broken stream brings."""
        try:
            os.kill(call.process.pid, signal.SIGPIPE)
        except OSError:
            pass

    def pass_signal(self, call: Call, target: int, number: int) -> None:
        """Send a signal that was allowed, where the kernel would not let the caller (it does in this tier)."""

    def writable_now(self, own: socket.socket) -> bool:
        """Wait for room in a socket if that can be done here; false: the call has to be taken up again later."""
        del own
        return False

    def when_writable(self, own: socket.socket, action: Callable[[], None]) -> None:
        """Call ``action`` when there is room in the socket (or it is broken)."""
        held = own.dup()
        fd = held.fileno()
        self._waiting[fd] = held

        def ready(_mask: int) -> None:
            self._unregister(fd)
            self._waiting.pop(fd).close()
            action()

        self._register(fd, select.EPOLLOUT, ready)

    def _dial(self, service: Any) -> socket.socket:
        kind, _, where = service.upstream.partition(":")
        if kind == "inside" and not self.traffic.is_own_server(socket.SOCK_STREAM, int(where)):
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return super()._dial(service)

    # --- the end --------------------------------------------------------------------------------------------------

    def _check(self, now: float) -> None:
        super()._check(now)
        if now >= self._next_disk and not self._killed:
            self._next_disk = now + _DISK_EVERY
            if _size(self._scratch) > self.limits.disk_bytes:
                self.limit_once("disk", f"more than {self.limits.disk_bytes} bytes written")
                self.kill("limit")

    def kill(self, reason: str) -> None:
        """Kill every process inside."""
        self._killed = True
        self._stop_reason = reason
        self.ending = True
        if self._group is not None:
            self._group.kill()
        try:
            wire.send(self._init, {"end": True})
        except OSError:
            pass

    def _survivors(self) -> None:
        for pid in sorted(self.everybody()):
            try:
                with open(f"{pid}/cmdline", "rb") as f:
                    argv = f.read(1024).rstrip(b"\0").split(b"\0")
                exe = self.shadow.original(os.readlink(b"%d/exe" % pid))
                with open(f"{pid}/stat", "rb") as f:
                    state = f.read(512).rpartition(b")")[2].split()[0]
            except (OSError, IndexError):
                continue
            if state == b"Z":
                continue
            known = self.tasks.processes.get(pid)
            command = known.command if known is not None else 0
            self.log.record({"e": "survivor", "p": pid, "c": command, "ns": pid, "x": exe, "argv": argv[:16]})

    def _ask_census(self) -> int:
        return -1

    def _read_witnesses(self, allocated: int, reason: str) -> None:
        for fd, held in self._waiting.items():
            self._unregister(fd)
            held.close()
        self._waiting.clear()
        super()._read_witnesses(allocated, reason)

    def _changes(self) -> None:
        """Every file again, against what it was before."""
        if "walk" in self.disabled:
            return
        for event in compare(self._before, self._look(self._before), "/", started=self.spec["started"]):
            self.log.record(dict(event))


def _native(handler: Callable[[Call], None], refuse: Callable[..., None]) -> Callable[[Call], None]:
    """A handler that takes calls of the machine's own interface only; others are refused and recorded."""

    def answer(call: Call) -> None:
        if call.abi == linux.ARCH:
            handler(call)
        else:
            refuse(call, "a foreign instruction set interface")

    return answer


def _below(path: str, trees: list[str]) -> bool:
    return any(path == tree or path.startswith(tree.rstrip("/") + "/") for tree in trees)


def _size(directory: int) -> int:
    """Bytes on disk below a directory, as far as they are counted in a moment."""
    total = entries = 0
    pending = [os.dup(directory)]
    try:
        while pending and entries < _MOST_MEASURED:
            fd = pending.pop()
            try:
                for entry in os.scandir(fd):
                    entries += 1
                    info = entry.stat(follow_symlinks=False)
                    total += info.st_blocks * 512
                    if stat.S_ISDIR(info.st_mode):
                        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                        pending.append(os.open(entry.name, flags, dir_fd=fd))
                    if len(pending) > 512:
                        return total
            except OSError:
                continue
            finally:
                os.close(fd)
    finally:
        for fd in pending:
            os.close(fd)
    return total


def _start_janitor(root: str) -> None:
    """Fork a process that removes the shadow when the supervisor has ended, in whatever way."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(reader)
        del writer  # stays open for as long as the supervisor lives
        return
    try:
        try:
            os.setsid()
        except OSError:
            pass
        os.closerange(0, reader)
        os.closerange(reader + 1, 1 << 16)
        while os.read(reader, 1):
            pass
        until = time.monotonic() + 20
        while os.path.lexists(root) and time.monotonic() < until:
            for path, names, _ in os.walk(root):
                for name in names:
                    place = os.path.join(path, name)
                    if not os.path.islink(place):
                        try:
                            os.chmod(place, 0o700)
                        except OSError:
                            continue
            shutil.rmtree(root, ignore_errors=True)
            if os.path.lexists(root):
                time.sleep(0.2)
    finally:
        os._exit(0)


def supervisor_of(tier: str) -> type[Supervisor]:
    """The supervisor of a lower tier."""
    if tier == "P":
        from .lower_ptrace import PtraceSupervisor

        return PtraceSupervisor
    return LowerSupervisor


__all__ = ["LowerPrograms", "LowerSupervisor", "LowerTasks", "supervisor_of"]
