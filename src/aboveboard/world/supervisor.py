"""The supervisor: one process per world that builds it, answers its trapped calls, and writes down what happened.

It lives outside the world's pid namespace (nothing inside can see or signal it) but in its user, mount and network
namespaces, with no capability over files, so that it can do no more for a caller than the caller could. It ends with
its client: when the control socket closes, everything inside is killed and the log is sealed.
"""

from __future__ import annotations

import codecs
import errno
import os
import resource
import select
import signal
import socket
import stat
import sys
import time
from typing import TYPE_CHECKING, Any

from ..contract import Contract
from ..evidence.canary import InputIndex, Scanner
from . import _linux as linux
from . import proof, rooting, wire
from .calls import PROOF, Call, Listener
from .census import Census
from .certificates import shared_authority
from .cgroup import Group
from .changes import WalkLimits, walk_upper
from .decoys import environ_canaries, etc_files, load_templates, plant
from .files import Files
from .init import main as init_main
from .log import Log, text
from .netlink import is_loopback, raise_loopback
from .placement import Placement
from .programs import DigestCache, Programs
from .sink import Sink
from .spec import Limits, Service
from .syscalls import (
    ABI_OF,
    ABSENT_NOTIFIED,
    CONTROL,
    EXEC,
    MEMORY,
    METADATA,
    NAME_OF,
    NAMES,
    NETWORK,
    OPEN,
    PLACEMENT,
    REFUSED,
    SIGNALS,
    TASKS,
    UMASK,
    build_filter,
)
from .tasks import Tasks
from .traffic import Traffic
from .view import CA_BUNDLE, HOME, HOSTNAME, UID, USER, Mount, View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORMAT = 1
NAMESERVER = "10.0.2.3"
_PROOF_SECONDS = 3.0
_LOG_BYTES = 1 << 30
_INPUT_FILES, _INPUT_BYTES = 64, 1 << 20
_CLASSES = {
    "notify": ["read", "exec"],
    "overlay": ["change"],
    "sink": ["payload"],
    "packets": ["flow"],
    "pidns": ["process"],
    "canary": ["secret"],
    "escape": ["escape"],
    "fanotify": ["read"],
}


def prepare() -> None:
    """Load everything a world may need, once for all that are forked of this process."""
    for name in ("ssl", "ctypes", "traceback", "linecache", "unicodedata", "stringprep"):
        __import__(name)
    for encoding in [
        "ascii",
        "latin-1",
        "utf-8",
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "idna",
        "punycode",
        "rot13",
        "unicode_escape",
        "raw_unicode_escape",
    ]:
        codecs.lookup(encoding)
    build_filter()
    load_templates()
    shared_authority()


def seal_imports() -> None:
    """Make importing impossible.

    After the pivot the supervisor sees the candidate's files, its own interpreter's library among them as the candidate
    left it: a module loaded from there would be the candidate's code running outside.
    """
    sys.meta_path.clear()
    sys.path_hooks.clear()
    sys.path.clear()
    sys.path_importer_cache.clear()


class Supervisor:
    """Everything that belongs to one world, from set-up to the sealed log.

    ``control`` is the client's socket, ``evidence`` a descriptor of the evidence folder, ``spec`` the plain form made
    by ``World``.
    """

    classes = _CLASSES
    change_witness = "overlay"
    uid = UID
    sink_type: type[Sink] = Sink
    counts_packets = True
    proof_directory = "/tmp"

    def __init__(self, control: socket.socket, evidence: int, spec: dict[str, Any], extra: list[int]) -> None:
        self.control = control
        self.evidence = evidence
        self.spec = spec
        self.limits = Limits(**spec["limits"])
        self.disabled = frozenset(spec["disable"])
        self.mode = spec["mode"]
        self.workspace: str = spec["workspace"]
        self.runtime_roots: list[str] = []
        self.candidate_roots: list[str] = spec["candidate"]
        self.memory = linux.MemoryReader()
        self.sink: Sink | None = None
        self.census: Census | None = None
        self.tier = spec["tier"]
        self._callbacks: dict[int, Callable[[int], object]] = {}
        self._epoll = select.epoll()
        # Listeners are polled directly: only so does the kernel's hint to switch on the same processor reach the
        # scheduler (epoll's wake-up drops it). The epoll descriptor stands in for all the rest.
        self._poll = select.poll()
        self._poll.register(self._epoll.fileno(), select.POLLIN)
        self._listeners: dict[int, Listener] = {}
        self._limited: set[str] = set()
        self._proved: list[tuple[str, str]] = []
        self._proof_flows: list[dict[str, object]] = []
        self._commands: dict[int, dict[str, Any]] = {}
        self._idle = True
        self._census_answer: int | None = None
        self._closing = False
        self._stop_reason = ""
        self._own_addresses: frozenset[str] = frozenset()
        self._root = rooting.Root()
        self._init_pid = 0
        self._extra = extra
        self._killed = False
        self._permitted: set[int] = set()
        self._effective: set[int] = set()
        self._end_at = time.monotonic() + self.limits.wall_seconds
        self._payloads = -1
        self._dialer: socket.socket | None = None
        self._warden: Any = None
        self._scanner: Any = None
        self._ns_pids = 0
        self._proof_error = 0

    # --- set-up -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Build the world and prove its witnesses. Raises StepFailed or OSError."""
        spec = self.spec
        os.umask(0)
        seed = spec["seed"]
        contract = None
        if spec["contract"]:
            contract = Contract.parse(spec["contract"])
        self._contract = contract
        rules = contract.compile(workspace=self.workspace, home=HOME) if contract else None
        self._rules = rules
        enforced = rules if self.mode == "block" else None
        cache = self._open_evidence()
        self._group = Group.create(self.limits.processes, self.limits.memory_bytes)
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        services = [Service(**s) for s in spec["services"]]
        self._prepare_services(services)
        if self.tier == "R" or (self.tier == "auto" and os.geteuid() == 0):
            self._start_warden()
        view = View(
            mounts=[Mount(*m) for m in spec["mounts"]],
            symlinks=spec["symlinks"],
            runtime=spec["runtime"],
            path=spec["path"],
        )
        self.runtime_roots = [*view.runtime, "/etc", "/sys"]
        prepare()
        rooting.enter_namespaces()
        decoys: list[Any] = []

        def plant_home(skeleton: str) -> None:
            if spec["decoys"]:
                decoys.extend(plant(skeleton, HOME, USER, seed=seed))

        self._root = rooting.build_root(
            view,
            disk_bytes=self.limits.disk_bytes,
            plant=plant_home,
            etc=etc_files(USER, HOSTNAME, seed=seed, home=HOME, nameserver=NAMESERVER),
        )
        rooting.set_hostname()
        loopback = raise_loopback(proc)
        self._own_addresses = frozenset(loopback.addresses)
        self._decoys = decoys
        seal_imports()
        self._start_init(proc, contract)
        rooting.pivot(self._root)
        wire.send(self._init, {"pivoted": True})
        os.fchdir(proc)
        os.close(proc)
        self._drop_capabilities(setup=True)
        proc_device = os.stat("/proc/1").st_dev
        self.tasks = Tasks(self.log, self._watch, self._unregister)
        self.placement = Placement(self.spec["slot"])
        self.tasks.on_gone = self.placement.fewer
        self.files = Files(self, enforced)
        self.files.proc_device = proc_device
        self.programs = Programs(self, enforced, DigestCache(cache))
        self.traffic = Traffic(self, enforced)
        self._start_network(loopback, services)
        self._drop_capabilities(setup=False)
        self._handlers = self._table()
        self._register(self._init.fileno(), select.EPOLLIN, self._from_init)
        self._write_header(decoys, services)
        self._prove()

    def _open_evidence(self) -> int:
        """Start the log; returns the descriptor of the cache of digests, or -1.

        The evidence folder is not part of the world's view; its descriptors stay with the supervisor.
        """
        log_fd = os.open(
            "events.jsonl",
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC,
            0o600,
            dir_fd=self.evidence,
        )
        os.mkdir("payloads", 0o700, dir_fd=self.evidence)
        self._payloads = os.open("payloads", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.evidence)
        self.log = Log(log_fd, self.limits.events)
        self.log.proved = self._proved
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.spec["digests"], flags, 0o600) if self.spec["digests"] else -1
        except OSError:
            return -1

    def _table(self) -> dict[str, Callable[[Call], None]]:
        table: dict[str, Callable[[Call], None]] = {}
        for names, handler in (
            (OPEN, self.files.open),
            (NAMES, self.files.names),
            (METADATA, self.files.metadata),
            (EXEC, self.programs.exec),
            (TASKS, self.programs.clone),
            (SIGNALS, self.programs.signal),
            (CONTROL, self.programs.control),
            (MEMORY, self.programs.memory_file),
            (PLACEMENT, self.placement.handle),
            (UMASK, self.programs.umask),
            (NETWORK, self.traffic.handle),
            (REFUSED | ABSENT_NOTIFIED, self.programs.refuse),
        ):
            for name in names:
                table[name] = handler
        if "notify" in self.disabled:
            for name in OPEN | NAMES | METADATA | EXEC:
                table[name] = Call.proceed
        if "escape" in self.disabled:
            for name in REFUSED | ABSENT_NOTIFIED:
                table[name] = lambda call: call.fail(errno.EPERM)
        return table

    def _prepare_services(self, services: list[Service]) -> None:
        """Reach out of the world only where a service says so: sockets found now, a dialer for TCP."""
        self._upstreams: dict[str, int] = {}
        for service in services:
            kind, _, where = service.upstream.partition(":")
            if kind == "unix":
                self._upstreams[service.name] = os.open(where, os.O_PATH | os.O_CLOEXEC)
        if any(s.upstream.startswith("tcp:") for s in services):
            from .dialer import start_dialer

            self._dialer = start_dialer({s.name: s.upstream[4:] for s in services if s.upstream.startswith("tcp:")})

    def _dial(self, service: Any) -> socket.socket:
        kind, _, where = service.upstream.partition(":")
        if kind == "unix":
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                s.connect(f"self/fd/{self._upstreams[service.name]}")
            except OSError:
                s.close()
                raise
            return s
        if kind == "inside":
            return socket.create_connection(("127.0.0.1", int(where)), timeout=1)
        if self._dialer is None:
            raise OSError(errno.ECONNREFUSED, "no dialer")
        wire.send(self._dialer, {"dial": service.name})
        received = wire.receive(self._dialer)
        if received is None or not received[1]:
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return socket.socket(fileno=received[1][0])

    def _start_warden(self) -> None:
        from .fanotify import Warden

        try:
            self._warden = Warden.start()
            self.tier = "R"
        except OSError as e:
            if self.tier == "R":
                raise rooting.StepFailed("fanotify_init", e) from e

    def _start_init(self, proc: int, contract: Any) -> None:
        """Fork PID 1 of a new pid namespace; it mounts its ``/proc`` while the host's is still visible."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        root_uid = os.geteuid() == UID and self.spec["host_uid"] == 0
        rooting.step("unshare(CLONE_NEWPID)", lambda: linux.unshare(linux.CLONE_NEWPID))
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as e:
            raise rooting.StepFailed("fork PID 1", e) from e
        if pid == 0:
            status = 1
            try:
                ours.close()
                self.control.close()
                self._epoll.close()
                linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
                try:
                    rooting.mount_proc(self._root, root_uid=root_uid)
                except rooting.StepFailed as e:
                    wire.send(theirs, {"failed": e.step, "errno": e.error.errno or 0})
                    os._exit(1)
                wire.send(theirs, {"ready": True})
                if wire.receive(theirs) is None:  # the pivot is done
                    os._exit(1)
                os.chdir("/")
                for fd in (proc, self.evidence, self._payloads, self.log.fd, self._root.scratch):
                    os.close(fd)
                for layer in self._root.layers:
                    os.close(layer.upper)
                    os.close(layer.lower)
                init_main(theirs, self._landlock(contract))
            finally:
                os._exit(status)
        del parent
        theirs.close()
        self._init_pid = pid
        self._init = ours
        if self._group is not None and not self._group.add(pid):
            self._group.remove()
            self._group = None
        answer = wire.receive(ours)
        if answer is None:
            raise rooting.StepFailed("start PID 1", OSError(errno.ECHILD, "PID 1 died"))
        if "failed" in answer[0]:
            number = int(answer[0]["errno"])
            raise rooting.StepFailed(str(answer[0]["failed"]), OSError(number, os.strerror(number)))

    def _landlock(self, contract: Any) -> int:
        """In block mode: what the kernel itself lets the candidate change and run, whatever the paths turn into."""
        if self.mode != "block" or contract is None or not linux.landlock_abi():
            return -1
        handled = (
            linux.LANDLOCK_EXECUTE
            | linux.LANDLOCK_WRITE_FILE
            | linux.LANDLOCK_REMOVE_DIR
            | linux.LANDLOCK_REMOVE_FILE
            | linux.LANDLOCK_MAKE
        )
        if linux.landlock_abi() >= 2:
            handled |= linux.LANDLOCK_REFER
        if linux.landlock_abi() >= 3:
            handled |= linux.LANDLOCK_TRUNCATE
        compiled = contract.compile(workspace=self.workspace, home=HOME)
        shared = [d for d in ("/tmp", "/var/tmp", "/dev") if not self.workspace or not _under(self.workspace, [d])]
        writable = [*compiled.write.directories(), *compiled.delete.directories(), *shared]
        runnable = [*self.runtime_roots, *self.candidate_roots, self.workspace]
        rights = [(path, handled & ~linux.LANDLOCK_EXECUTE) for path in writable if os.path.isdir(path)]
        rights += [(path, linux.LANDLOCK_EXECUTE) for path in runnable if path and os.path.exists(path)]
        rules = [(os.open(path, os.O_PATH | os.O_CLOEXEC), right) for path, right in rights]
        return linux.landlock_ruleset(handled, rules)

    def _start_network(self, loopback: Any, services: list[Service]) -> None:
        seeing = "canary" not in self.disabled
        if self.counts_packets and "packets" not in self.disabled:
            self.census = Census(self._own_addresses)
            self._register(self.census.fileno(), select.EPOLLIN, lambda _mask: self.census and self.census.drain())
        if "sink" not in self.disabled:
            self.sink = self.sink_type(
                self._flow,
                payload_dir_fd=self._payloads,
                register=self._register,
                unregister=self._unregister,
                own=self._own_addresses,
                ipv6=loopback.ipv6,
                services=services,
                dial=self._dial,
                scanner=self.scanner.stream if seeing else None,
                scan_names=self.scanner.scan_names if seeing else None,
                proc=".",
                intercept=bool(self.spec["intercept"]),
                payload_bytes=self.limits.payload_bytes,
            )
            self.sink.start()
            if self.spec["intercept"]:
                self._plant_authority(self.sink.ca_pem())

    def _flow(self, event: dict[str, object]) -> None:
        """An event of the sink; the flow of the proof is not the candidate's."""
        if event.get("dst") == proof.ADDRESS and event.get("port") == proof.PORT:
            self._proof_flows.append(event)
        else:
            self.log.record(event)

    def _plant_authority(self, pem: bytes) -> None:
        """Put the sink's certificate authority beside the host's, where the environment variables point.

        It is written below the overlay, before anything inside has looked: no change of the candidate's.
        """
        host = b""
        for bundle in ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"):
            try:
                with open(bundle, "rb") as f:
                    host = f.read(4 << 20)
                break
            except OSError:
                continue
        lower = self._root.layers[0].lower
        os.makedirs(f"self/fd/{lower}/etc/ssl", exist_ok=True)
        path = f"self/fd/{lower}{CA_BUNDLE}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with open(fd, "wb") as f:
            f.write(host + pem)

    @property
    def scanner(self) -> Any:
        """Finds planted values and the user's input in data; made at first use."""
        if self._scanner is None:
            canaries: dict[str, str] = {}
            for decoy in self._decoys:
                canaries.setdefault(decoy.canary, decoy.path)
            for variable in environ_canaries(self.spec["seed"]) if self.spec["decoys"] else ():
                canaries.setdefault(variable.canary, f"env:{variable.name}")
            named: dict[str, str] = {}
            for value, name in canaries.items():
                key, n = name, 1
                while key in named:
                    n += 1
                    key = f"{name}#{n}"
                named[key] = value
            inputs = self._inputs()
            self._scanner = Scanner(named, InputIndex(inputs) if inputs else None)
        return self._scanner

    def _inputs(self) -> dict[str, bytes]:
        """The user's input as it lay below the overlay: its content is looked for in what is sent."""
        if self._rules is None:
            return {}
        found: dict[str, bytes] = {}
        total = 0
        for directory in self._rules.read.directories():
            layer = max(
                (
                    la
                    for la in self._root.layers
                    if directory == la.target or directory.startswith(la.target.rstrip("/") + "/")
                ),
                key=lambda la: len(la.target),
                default=None,
            )
            if layer is None or layer.target == "/":
                continue
            below = os.path.relpath(directory, layer.target)
            pending = [below]
            while pending and len(found) < _INPUT_FILES and total < _INPUT_BYTES:
                here = pending.pop()
                try:
                    fd = linux.openat2(layer.lower, here, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, 0x08 | 0x04)
                except OSError:
                    continue
                try:
                    for entry in sorted(os.listdir(fd)):
                        info = os.stat(entry, dir_fd=fd, follow_symlinks=False)
                        if stat.S_ISDIR(info.st_mode):
                            pending.append(os.path.normpath(os.path.join(here, entry)))
                        elif stat.S_ISREG(info.st_mode) and len(found) < _INPUT_FILES:
                            one = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
                            try:
                                data = os.read(one, min(_INPUT_BYTES - total, 256 << 10))
                            finally:
                                os.close(one)
                            path = os.path.normpath(os.path.join(layer.target, here, entry))
                            if self._rules.read.match(path):
                                found[path] = data
                                total += len(data)
                except OSError:
                    continue
                finally:
                    os.close(fd)
        return found

    def _drop_capabilities(self, *, setup: bool) -> None:
        """Keep what answering needs; nothing that would let an emulated open do more than the caller could.

        Reading a caller's memory needs no capability: the supervisor is an ancestor with the same ids. CAP_SYS_PTRACE
        is raised only for callers whose program they may not read themselves (``privileged_read``).
        """
        later = {linux.CAP_DAC_READ_SEARCH, linux.CAP_DAC_OVERRIDE, linux.CAP_SYS_PTRACE, linux.CAP_NET_BIND_SERVICE}
        keep = {linux.CAP_NET_BIND_SERVICE}
        if setup:
            keep |= {linux.CAP_NET_RAW, linux.CAP_NET_ADMIN}
        self._permitted, self._effective = later | keep, keep
        linux.set_capabilities(permitted=self._permitted, effective=self._effective)
        self.memory.on_refusal = self._with_ptrace

    def take_descriptor(self, pidfd: int, fd: int) -> int:
        """pidfd_getfd(2); with the capability where Yama asks for it (ptrace_scope 2). Raises OSError."""
        try:
            return linux.pidfd_getfd(pidfd, fd)
        except PermissionError:
            return self._with_ptrace(lambda: linux.pidfd_getfd(pidfd, fd))

    def _with_ptrace(self, action: Callable[[], int]) -> int:
        linux.set_capabilities(permitted=self._permitted, effective=self._effective | {linux.CAP_SYS_PTRACE})
        try:
            return action()
        finally:
            linux.set_capabilities(permitted=self._permitted, effective=self._effective)

    def _write_header(self, decoys: list[Any], services: list[Service]) -> None:
        spec = self.spec
        roots = {
            "runtime": self.runtime_roots,
            "candidate": self.candidate_roots,
            "home": [HOME],
            "tmp": ["/tmp", "/var/tmp", "/dev/shm"],
            "proc": ["/proc"],
            "dev": ["/dev"],
            "sys": ["/sys"],
            "workspace": [self.workspace] if self.workspace else [],
        }
        event: dict[str, object] = {
            "e": "world",
            "v": FORMAT,
            "tier": self.tier if self.tier != "auto" else "U",
            "mode": self.mode,
            "roots": roots,
            "decoys": [{"path": d.path, "kind": d.kind, "canary": d.canary} for d in decoys],
            "environ_canaries": [
                {"name": c.name, "canary": c.canary, "decoy": True}
                for c in (environ_canaries(spec["seed"]) if spec["decoys"] else ())
            ],
            "services": [{"name": s.name, "host": s.host, "port": s.port} for s in services],
            "limits": spec["limits"],
            "host": spec["host"],
            "workspace": self.workspace,
            "home": HOME,
            "argv0": spec["argv0"],
            "uid": self.uid,
            "wall": spec["wall"],
            "disabled": sorted(self.disabled),
        }
        if self.mode == "block":
            event["contract"] = spec["contract"]
        self.log.record(event | self._more_header())

    def _more_header(self) -> dict[str, object]:
        """Fields of the ``world`` event that only some tiers have."""
        return {}

    # --- the proof ------------------------------------------------------------------------------------------

    def _prove(self) -> None:
        """Run the canary actions and record, for each witness, whether it saw its own."""
        token = self.spec["token"]
        payload = token + (":" + self._decoys[0].canary if self._decoys else "")
        seen: dict[str, bool] = {}
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._proof_token = token
        message = {
            "program": "",
            "argv": [],
            "env": {},
            "cwd": "/",
            "token": token,
            "payload": payload,
            "scratch": self.proof_directory,
            "limits": {},
            "cpus": list(self.placement.all),
        }
        clones = self.tasks.clones

        def at_upper(sock: socket.socket) -> None:
            try:
                os.stat(f".{token}", dir_fd=self._upper_tmp())
                seen[self.change_witness] = True
            except OSError:
                pass
            sock.send(b"g")

        self._launch(PROOF, message, [0, 1, 2], mine, theirs, at_upper)
        deadline = time.monotonic() + _PROOF_SECONDS
        while PROOF in self._commands and time.monotonic() < deadline:
            self._turn(0.05)
        if self.sink is not None:
            while not self._proof_flows and not self._proof_error and time.monotonic() < deadline:
                self.sink.drain(time.monotonic() + 0.01)
                self._turn(0.01)
        if self.census is not None:
            self.census.drain()
            seen["packets"] = any(
                f.get("dport") == proof.PORT and f.get("dst") == proof.ADDRESS for f in self.census.flows()
            )
        calls = [kind for kind, _ in self._proved]
        opened = [
            fields
            for kind, fields in self._proved
            if kind == "open" and f'"{proof.READ}"' in fields and '"r":"ok"' in fields
        ]
        seen["notify"] = bool(opened)
        seen["escape"] = "escape" in calls
        seen["ptrace"] = seen["notify"] and seen["escape"]
        seen["sink"] = any(token in str(f.get("head", "")) for f in self._proof_flows)
        seen["canary"] = any(f.get("canaries") for f in self._proof_flows) if self._decoys else seen["sink"]
        seen["pidns"] = self.tasks.clones > clones and self._commands_seen_ns > 1
        names = [n for n in self.classes if n != "fanotify" or self.tier == "R"]
        if self._warden is not None:
            seen["fanotify"] = self._attach_warden()
        self._live = {}
        for name in names:
            ok = seen.get(name, False) and name not in self.disabled
            detail = "switched off" if name in self.disabled else "saw its canary" if ok else "did not see its canary"
            self._live[name] = ok
            self.log.record({"e": "witness", "name": name, "ok": ok, "detail": detail, "classes": self.classes[name]})
        self._proof_clones = self.tasks.clones

    def _attach_warden(self) -> bool:
        targets = ["/"] + [la.target for la in self._root.layers if la.target != "/"]
        fds = [os.open(t, os.O_PATH | os.O_CLOEXEC) for t in targets]
        try:
            return bool(self._warden.mark(fds, proof.READ, os.getpid(), self._init_pid))
        finally:
            for fd in fds:
                os.close(fd)

    def _upper_tmp(self) -> int:
        """Descriptor of ``/tmp`` in the upper layer of the root overlay."""
        fd = os.open("tmp", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root.layers[0].upper)
        return fd

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
        """Ask PID 1 for a process and take over the listener of its filter when it has one."""
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._commands[command] = {"launch": mine, "listener": None, "error": 0}
        self._idle = False

        def ready(_mask: int) -> None:
            data, ancillary, _, _ = mine.recvmsg(64, socket.CMSG_SPACE(12))
            state = self._commands.get(command)
            if not data or state is None:
                self._unregister(mine.fileno())
                mine.close()
                return
            if data == b"w" and at_upper is not None:
                at_upper(mine)
                return
            if data.startswith(b"E"):
                state["error"] = int(data[1:])
                return
            pid = int.from_bytes(ancillary[0][2][:4], "little") if ancillary else 0
            state["pid"] = pid
            try:
                pidfd = linux.pidfd_open(pid)
                try:
                    listener_fd = self.take_descriptor(pidfd, int(data))
                finally:
                    os.close(pidfd)
            except OSError as e:
                state["error"] = e.errno or errno.EIO
                mine.send(b"x")
                return
            if command == PROOF:
                self._commands_seen_ns = len(self.tasks.status(pid).get("NSpid", "").split())
            linux.wake_on_same_cpu(listener_fd)
            listener = Listener(listener_fd, command, NAME_OF, ABI_OF)
            state["listener"] = listener
            self._listeners[listener_fd] = listener
            self._poll.register(listener_fd, select.POLLIN)
            mine.send(b"g")

        self._register(mine.fileno(), select.EPOLLIN, ready)
        wire.send(self._init, {"run": command, **message}, [*fds, theirs.fileno()])
        theirs.close()

    def _run(self, message: wire.Message, fds: list[int]) -> None:
        """A client's request to run a command."""
        command = int(message["run"])
        argv = [str(a) for a in message["argv"]]
        cwd = str(message["cwd"] or self.workspace or HOME)
        env = dict(self.spec["env"])
        env.update(message["env"] or {})
        program = self._find(argv[0], env.get("PATH", ""), cwd) if argv else None
        if program is None or not self._is_directory(cwd):
            missing = argv[0] if program is None and argv else cwd
            number = errno.ENOENT
            self._tell_client({"exit": command, "code": 127, "error": number, "missing": missing})
            for fd in fds:
                os.close(fd)
            return
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.log.set_phase(command, str(message["phase"]))
        self.log.record(
            {"e": "command", "c": command, "argv": argv[:64], "cwd": cwd, "name": message["name"], "x": program}
        )
        limits = {
            "RLIMIT_CORE": 0,
            "RLIMIT_FSIZE": self.limits.file_bytes,
            "RLIMIT_NOFILE": self.limits.open_files,
            "RLIMIT_DATA": 2 * self.limits.memory_bytes,  # a backstop: what is resident is bounded by the supervisor
            "RLIMIT_NPROC": 4 * self.limits.processes + 64,  # a backstop: the supervisor counts, and records
        }
        self._launch(
            command,
            {
                "program": program,
                "argv": argv,
                "env": env,
                "cwd": cwd,
                "limits": limits,
                "cpus": list(self.placement.launch(len(self.tasks.processes))),
            },
            fds,
            mine,
            theirs,
        )
        for fd in fds:
            os.close(fd)

    def _is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    @staticmethod
    def _find(name: str, search: str, cwd: str) -> str | None:
        """The program a shell inside would run for ``name``, in the world's own view."""
        if "/" in name:
            path = os.path.normpath(os.path.join(cwd, name))
            return path if os.path.exists(path) else None
        for directory in search.split(":"):
            path = os.path.join(directory, name)
            if directory and os.access(path, os.X_OK) and not os.path.isdir(path):
                return path
        return None

    def announce_phase(self, command: int, label: bytes) -> None:
        """A driver inside says that a phase begins: ``/run/phase/TOKEN-NAME``. A label, no evidence."""
        token, _, name = label.partition(b"-")
        if token.decode("ascii", "replace") != self.spec["token"] or not name or len(name) > 32:
            return
        phase = name.decode("ascii", "replace")
        self.log.set_phase(command, phase)
        self.log.add("phase", 0, command, f',"name":{text(phase)}')

    # --- trapped calls --------------------------------------------------------------------------------------------

    def _notified(self, listener: Listener, mask: int) -> None:
        if mask & select.POLLHUP and not mask & select.POLLIN:
            self._poll.unregister(listener.fd)
            del self._listeners[listener.fd]
            os.close(listener.fd)
            return
        call = listener.receive()
        if call is not None:
            self._answer(call)

    def _answer(self, call: Call) -> None:
        """Have a trapped call answered."""
        try:
            call.process = self.tasks.of(call.tid, call.command)
            handler = self._handlers.get(call.name)
            if handler is None:
                self.programs.refuse(call)
            else:
                handler(call)
        except OSError as e:
            self._blinded(call, e)
        except Exception as e:  # hostile arguments must not end the supervisor: refused, and said
            self.limit_once("internal", f"{call.name}: {type(e).__name__}: {e}", call.tid)
            if not call.answered:
                call.fail(errno.EINVAL)
        if self.log.count > self.limits.events or self.log.size > _LOG_BYTES:
            self.limit_once("events", f"more than {self.limits.events} events", call.tid)
            self.kill("limit")

    def _blinded(self, call: Call, e: OSError) -> None:
        """A call whose arguments could not be read (or whose object could not be reached) is never let through."""
        number = e.errno or errno.EIO
        if not call.answered:
            if number in (errno.EPERM, errno.EACCES) and linux.notif_id_valid(call.listener, call.id):
                self.log.add("limit", call.tid, call.command, f',"what":"blinded","d":{text(f"{call.name}: {e}")}')
            elif number != errno.ESRCH:
                self.log.add(
                    "open"
                    if call.name in OPEN
                    else "fs"
                    if call.name in NAMES
                    else "meta"
                    if call.name in METADATA
                    else "net"
                    if call.name in NETWORK
                    else "probe",
                    call.tid,
                    call.command,
                    f',"s":"{call.name}","n":"","r":"{errno.errorcode.get(number, number)}"',
                )
            call.fail(errno.ENOENT if number == errno.ESRCH else number)

    def limit_once(self, what: str, detail: str, pid: int = 0) -> None:
        """Record that a bound was hit, once per kind."""
        if what not in self._limited:
            self._limited.add(what)
            self.log.add("limit", pid, 0, f',"what":"{what}","d":{text(detail)}')

    # --- decisions of block mode --------------------------------------------------------------------------------

    def may_read(self, path: str) -> bool:
        """May a candidate read this resolved path? Runtime, its own code, temporary and own files, the contract's."""
        assert self._rules is not None
        if self._in_workspace(path):
            allowed = self._rules.read.match(path) or self._rules.write.match(path)
            return allowed or _under(path, self.candidate_roots)
        if not path.startswith("/") or path.startswith(("/proc/", "/dev/", "/sys/", "/memfd:")):
            return True  # also a pipe, a socket or an anonymous file reached through /proc/self/fd
        if _under(path, [*self.runtime_roots, *self.candidate_roots, "/tmp", "/var/tmp"]):
            return True
        return self._rules.read.match(path) or self._rules.write.match(path)

    def may_write(self, path: str) -> bool:
        """May a candidate create or change this resolved path?"""
        assert self._rules is not None
        if self._in_workspace(path):
            return self._rules.write.match(path)
        if not path.startswith("/") or path.startswith(("/dev/", "/proc/", "/memfd:")):
            return True
        return _under(path, ["/tmp", "/var/tmp"]) or self._rules.write.match(path)

    def _in_workspace(self, path: str) -> bool:
        return bool(self.workspace) and _under(path, [self.workspace])

    def may_delete(self, path: str) -> bool:
        """May a candidate remove this resolved path?"""
        assert self._rules is not None
        return self._rules.delete.match(path)

    def may_change_metadata(self, path: str) -> bool:
        """May mode, owner, times or attributes of this path change?"""
        assert self._rules is not None
        return self._rules.metadata.match(path) or self.may_write(path)

    def may_listen(self, host: str, port: int) -> bool:
        """May a candidate offer a server here? Loopback always: nothing outside can reach it."""
        assert self._rules is not None
        return port in self._rules.listen or self.is_own_address(host)

    def is_own_address(self, host: str) -> bool:
        """True for loopback and the world's own addresses."""
        try:
            return is_loopback(host.removeprefix("::ffff:"), self._own_addresses)
        except ValueError:
            return False

    # --- the loop -----------------------------------------------------------------------------------------------

    def _register(self, fd: int, mask: int, callback: Callable[[int], object]) -> None:
        self._callbacks[fd] = callback
        self._epoll.register(fd, mask)

    def _unregister(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            try:
                self._epoll.unregister(fd)
            except OSError:
                pass

    def _watch(self, fd: int, callback: Callable[[], None]) -> None:
        self._register(fd, select.EPOLLIN, lambda _mask: callback())

    def _turn(self, timeout: float) -> None:
        for fd, mask in self._poll.poll(timeout * 1000):
            listener = self._listeners.get(fd)
            if listener is not None:
                self._notified(listener, mask)
                continue
            callbacks = self._callbacks
            for ready, events in self._epoll.poll(0, 32):
                callback = callbacks.get(ready)
                if callback is not None:
                    callback(events)

    def serve(self) -> None:
        """Answer until the client closes the world, then end it and seal the log."""
        self._register(self.control.fileno(), select.EPOLLIN, self._client)
        turn = self._turn
        next_check = 0.0
        while not self._closing:
            turn(0.25)
            now = time.monotonic()
            if now >= next_check:
                next_check = now + 0.25
                self._check(now)
        self.finish()

    def _check(self, now: float) -> None:
        if self.sink is not None:
            self.sink.tick()
        self.placement.check(self.tasks, now)
        if now > self._end_at and not self._killed:
            self.limit_once("wall", f"ran longer than {self.limits.wall_seconds:g} s")
            self.kill("limit")
        if self.tasks.processes and not self._killed:
            total = 0
            for pid in list(self.tasks.processes):
                try:
                    with open(f"{pid}/statm", "rb") as f:
                        total += int(f.read().split()[1]) << 12
                except (OSError, IndexError, ValueError):
                    continue
            if total > self.limits.memory_bytes:
                self.limit_once("memory", f"{total} bytes resident in all")
                self.kill("limit")
        try:
            disk = os.statvfs(f"self/fd/{self._root.scratch}")
            if disk.f_bavail == 0 or disk.f_ffree == 0:
                self.limit_once("disk", f"{self.limits.disk_bytes} bytes written")
        except OSError:
            pass

    def kill(self, reason: str) -> None:
        """Kill every process inside, PID 1 included."""
        self._killed = True
        self._stop_reason = reason
        if self._group is not None:
            self._group.kill()
        try:
            os.kill(self._init_pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _from_init(self, _mask: int) -> None:
        try:
            received = wire.receive(self._init)
        except OSError:  # killed with messages of ours unread
            received = None
        if received is None:
            self._unregister(self._init.fileno())
            self._idle = True
            self._fail_commands()
            if not self._killed and not self._closing:
                self._killed = True
                self._stop_reason = "killed"
            return
        message = received[0]
        if "exit" in message:
            self._exited(int(message["exit"]), int(message["code"]), message["rusage"])
        elif "idle" in message:
            self._idle = True
        elif "census" in message:
            self._census_answer = int(message["census"])

    def _exited(self, command: int, code: int, usage: object) -> None:
        state = self._commands.pop(command, None)
        if state is not None and command == PROOF:
            self._proof_error = int(state["error"])
        if state is None or command == PROOF:
            return
        if state["error"]:
            code = 126
        peak = usage.get("maxrss_kib", 0) << 10 if isinstance(usage, dict) else 0
        if peak > self.limits.memory_bytes:
            self.limit_once("memory", f"{peak} bytes resident at the peak")
        if code == -signal.SIGXFSZ:
            self.limit_once("disk", f"a file reached {self.limits.file_bytes} bytes")
        self.log.record({"e": "status", "c": command, "code": code, "rusage": usage})
        self.log.set_phase(command, "post")
        self._tell_client({"exit": command, "code": code, "error": state["error"]})

    def _tell_client(self, message: wire.Message) -> None:
        try:
            wire.send(self.control, message)
        except OSError:
            pass  # it is gone; its closed socket ends the world

    def _fail_commands(self) -> None:
        for command in list(self._commands):
            if command != PROOF:
                self._exited(command, -signal.SIGKILL, {})

    def _client(self, _mask: int) -> None:
        try:
            received = wire.receive(self.control)
        except OSError:
            received = None
        if received is None:
            self._closing = True
            self._stop_reason = self._stop_reason or "client-gone"
            return
        message, fds = received
        try:
            if "run" in message:
                self._run(message, fds)
            elif "kill" in message:
                if message.get("reason"):
                    self.limit_once(str(message["reason"]), str(message.get("detail", "")))
                wire.send(self._init, {"kill": message["kill"]})
            elif "put" in message:
                self.log.record({"e": "put", "n": message["put"], "h256": message["h256"]})
            elif "open" in message:
                self._give(message)
            elif "close" in message:
                self._closing = True
                if message.get("grace") is not None:
                    self.spec["grace"] = message["grace"]
        except OSError as e:
            self._closing = True
            self._stop_reason = f"error: {e}"

    def _give(self, message: wire.Message) -> None:
        """Open a path of the world for the client (who reads or writes it outside): nothing inside is run."""
        flags = int(message["flags"])
        path = str(message["open"])
        try:
            if message.get("parents"):
                os.makedirs(os.path.dirname(path), exist_ok=True)
            fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, int(message["mode"]))
        except OSError as e:
            wire.send(self.control, {"reply": message["id"], "errno": e.errno or errno.EIO})
            return
        try:
            wire.send(self.control, {"reply": message["id"], "errno": 0}, [fd])
        finally:
            os.close(fd)

    # --- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Grace, kill, read the witnesses, seal."""
        reason = self._stop_reason or "exit"
        grace = 0.0 if reason == "client-gone" else float(self.spec["grace"])
        deadline = min(time.monotonic() + grace, max(self._end_at, time.monotonic()))
        while not self._idle and not self._killed and time.monotonic() < deadline:
            self._turn(min(0.05, max(0.0, deadline - time.monotonic())))
        self._idle = self._idle and not self._commands
        allocated = -1
        if not self._killed:
            if not self._idle:
                self._survivors()
            allocated = self._ask_census()
        self.kill(reason if self._killed else "")
        self._stop_reason = reason
        self._await_death()
        self._read_witnesses(allocated, reason)

    def _survivors(self) -> None:
        if "pidns" in self.disabled:
            return
        for name in sorted(os.listdir("/proc"), key=lambda n: (len(n), n)):
            if not name.isdigit() or name == "1":
                continue
            try:
                with open(f"/proc/{name}/cmdline", "rb") as f:
                    argv = f.read(1024).rstrip(b"\0").split(b"\0")
                exe = os.readlink(f"/proc/{name}/exe")
                with open(f"/proc/{name}/stat", "rb") as f:
                    state = f.read(512).rpartition(b")")[2].split()[0]
            except (OSError, IndexError):
                continue
            if state == b"Z":
                continue
            pid = next((p.pid for p in self.tasks.processes.values() if p.ns == int(name)), 0)
            command = next((p.command for p in self.tasks.processes.values() if p.ns == int(name)), 0)
            self.log.record({"e": "survivor", "p": pid, "c": command, "ns": int(name), "x": exe, "argv": argv[:16]})

    def _ask_census(self) -> int:
        try:
            wire.send(self._init, {"census": True})
            until = time.monotonic() + 2
            while self._census_answer is None and time.monotonic() < until and self._init.fileno() in self._callbacks:
                self._turn(0.05)
        except OSError:
            pass
        return -1 if self._census_answer is None else self._census_answer

    def _await_death(self) -> None:
        """PID 1's end implies that the kernel killed and reaped everything in its namespace."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                pid, _ = os.waitpid(self._init_pid, os.WNOHANG)
            except ChildProcessError:
                return
            if pid:
                return
            self._turn(0.002)
        self.log.record({"e": "limit", "what": "survivors", "d": "the namespace did not die within 30 s"})

    def _read_witnesses(self, allocated: int, reason: str) -> None:
        log = self.log
        if self._group is not None:
            self._group.remove()
        for pid in list(self.tasks.processes):
            self.tasks.gone(pid)
        if self._warden is not None:
            for event in self._warden.finish():
                log.record(event)
        if self.sink is not None:
            self.sink.drain(time.monotonic() + 2)
            drops = self.sink.drops()
            self.sink.close()
            if drops:
                log.record(
                    {
                        "e": "witness",
                        "name": "sink",
                        "ok": False,
                        "detail": f"{drops} datagrams lost",
                        "classes": _CLASSES["sink"],
                    }
                )
        if self.census is not None:
            self.census.drain(1 << 20)
            event = self.census.event()
            event["flows"] = [f for f in self.census.flows() if not _of_the_proof(f)]
            log.record(event)
        if "pidns" not in self.disabled:
            seen = self.tasks.clones + self._launched_count + 1
            log.record({"e": "pids", "allocated": allocated, "seen": seen, "threads": self.tasks.thread_clones})
        self.programs.finish()
        if "overlay" not in self.disabled:
            self._changes()
        disk = os.statvfs(f"self/fd/{self._root.scratch}")
        if disk.f_bavail == 0 or disk.f_ffree == 0:
            self.limit_once("disk", f"{self.limits.disk_bytes} bytes written")
        log.record({"e": "end", "reason": reason, "counts": dict(log.counts), "lost": log.lost})
        os.close(log.fd)

    @property
    def _launched_count(self) -> int:
        return self.log.counts.get("command", 0) + 1  # and the proof

    def _changes(self) -> None:
        """The upper layers against the lower ones, now that nobody can change either."""
        linux.set_capabilities(
            permitted={linux.CAP_DAC_READ_SEARCH, linux.CAP_DAC_OVERRIDE, linux.CAP_SYS_PTRACE},
            effective={linux.CAP_DAC_READ_SEARCH},
        )
        scanner = self.scanner if "canary" not in self.disabled else None
        points = [mount[1] for mount in self.spec["mounts"]]
        for layer in self._root.layers:
            for event in walk_upper(
                layer.upper,
                layer.lower,
                layer.target,
                limits=WalkLimits(),
                scanner=scanner,
                started=self.spec["started"],
                ignore=[p for p in points if p != layer.target and _under(p, [layer.target])],
            ):
                size = event.get("size")
                if isinstance(size, int) and size >= self.limits.file_bytes:
                    self.limit_once("disk", f"{event.get('x')} reached {self.limits.file_bytes} bytes")
                if event.get("x") in self._root.made and event.get("w") == "created":
                    continue
                if event.get("x") == layer.target and event.get("d") == ["mode"] and event.get("mode") == layer.mode:
                    continue  # as the world made it
                self.log.record(dict(event))


def _of_the_proof(flow: Mapping[str, object]) -> bool:
    """Is this flow of packets the canary action's own?"""
    sent = flow["dst"] == proof.ADDRESS and flow["dport"] == proof.PORT
    return sent or flow["src"] == proof.ADDRESS


def _under(path: str, roots: list[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def serve(control: socket.socket, evidence: int, spec: dict[str, Any], extra: list[int]) -> None:
    """Be the supervisor of one world. Reports readiness or the failed step to the client; returns when sealed."""
    try:
        os.setsid()
    except OSError:
        pass
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if spec["tier"] in ("N", "P"):
        from .lower import supervisor_of

        supervisor = supervisor_of(spec["tier"])(control, evidence, spec, extra)
    else:
        supervisor = Supervisor(control, evidence, spec, extra)
    try:
        supervisor.start()
    except rooting.StepFailed as e:
        wire.send(control, {"failed": e.step, "errno": e.error.errno or 0, "detail": str(e.error)})
        return
    except OSError as e:
        wire.send(control, {"failed": getattr(e, "step", "") or str(e), "errno": e.errno or 0, "detail": str(e)})
        return
    wire.send(
        control,
        {
            "ready": True,
            "witnesses": supervisor._live,
            "tier": supervisor.tier if supervisor.tier != "auto" else "U",
            "path": spec["path"],
        },
    )
    supervisor.serve()
    try:
        wire.send(control, {"closed": True, "head": supervisor.log.head.decode(), "reason": supervisor._stop_reason})
    except OSError:
        pass
    if supervisor._warden is not None:
        supervisor._warden.reap()
