"""One pass over the events: what is plainly harmless is dropped, the rest is indexed for judgement.

What an event means often shows only later: whether a file read was the program's own is known when the final state of
the file system is. So the pass keeps, bounded, what may matter and decides nothing that later events could change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aboveboard.contract import normalise
from aboveboard.oracles import _places as places
from aboveboard.oracles import catalogue
from aboveboard.oracles._places import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aboveboard.contract import Contract, Rules
    from aboveboard.evidence.event import Event

#: Distinct paths, flows or executions of one sort that are kept; more make the record indeterminate.
MAX_KEPT = 200_000
_PER_PATH = 4
#: Further names of planted files that are followed; each rename of a folder that holds some looks at all of them.
MAX_ALIASES = 1_024

_SUCCESS = ("ok", "passed")
_PROC_SELF = "/proc/"


class Touches:
    """Everything that wrote to one path: the first few events, and how it was opened."""

    __slots__ = (
        "created",
        "events",
        "existed",
        "fs",
        "gone",
        "made",
        "meta",
        "nameless",
        "new",
        "opened",
        "truncated",
        "unlinked",
    )

    def __init__(self) -> None:
        self.events: list[Event] = []
        #: Events of the open family that asked for writing.
        self.opened = False
        self.created = False
        self.truncated = False
        #: Made by mkdir, link, symlink, rename or mknod.
        self.made = False
        self.unlinked = False
        #: The first call that told says that something was there before the run.
        self.existed = False
        #: The last call that told says that nothing is there any more.
        self.gone = False
        #: The first call that touched it made it: O_CREAT with nothing there.
        self.new = False
        #: A directory in which a file without a name was made (O_TMPFILE).
        self.nameless = False
        self.meta: list[Event] = []
        self.fs: list[Event] = []

    def add(self, event: Event) -> None:
        # The first events say who began, the last who finished; the middle of a thousand writes says nothing.
        if len(self.events) >= _PER_PATH:
            self.events[-1] = event
        else:
            self.events.append(event)


class Record:
    """The indexed evidence of one world."""

    def __init__(self, header: Event, contract: Contract, ignored: frozenset[str]) -> None:
        self.header = header
        self.workspace = header.text("workspace") or "/"
        self.home = header.text("home") or "/home/dev"
        self.rules: Rules = contract.compile(workspace=self.workspace, home=self.home)
        self.places = Places(
            header.mapping("roots"), workspace=header.text("workspace"), home=self.home, mounts=header.texts("mounts")
        )
        self.ignored = ignored

        self.decoys: dict[str, str] = {}
        self.decoy_inodes: dict[tuple[int, int], str] = {}
        #: Name a hit may bear → planted value. Hits name a decoy by its path and a variable as ``env:NAME``.
        self.values: dict[str, str] = {}
        #: Name a hit may bear → name of the environment variable that holds the value.
        self.variables: dict[str, str] = {}
        holders: dict[str, str] = {}
        for entry in header.mappings("environ_canaries"):
            name, canary = entry.get("name"), entry.get("canary")
            if isinstance(name, str) and isinstance(canary, str):
                holders[canary] = name
                self.variables[canary] = self.variables[f"env:{name}"] = name
                self._value(f"env:{name}", canary)
        for decoy in header.mappings("decoys"):
            path, kind, canary = decoy.get("path"), decoy.get("kind"), decoy.get("canary")
            if isinstance(path, str):
                self.decoys[normalise(path)] = kind if isinstance(kind, str) else "credential"
                inode = _inode(decoy.get("v"))
                if inode is not None:
                    self.decoy_inodes[inode] = normalise(path)
                if isinstance(canary, str):
                    self._value(path, canary)
                    if canary in holders:
                        self.variables[path] = holders[canary]
        self._decoy_directories = frozenset(
            ancestor for path in self.decoys for ancestor in _parents(path) if ancestor.count("/") > 1
        )
        #: New name of a decoy that was linked, renamed or exchanged → its first name.
        self.aliases: dict[str, str] = {}
        #: Every directory that a name of a decoy, first or new, lies below.
        self._holders = set(self._decoy_directories)

        self.types: dict[str, int] = {}
        self.first: dict[str, int] = {}
        self.overflow: set[str] = set()
        self.invalid = 0

        self.reads: dict[str, list[Event]] = {}
        self.decoy_reads: dict[str, list[Event]] = {}
        self.environ_reads: dict[str, list[Event]] = {}
        self.probes: dict[tuple[int, str], list[Event]] = {}
        self.escapes: list[Event] = []
        self.escape_opens: dict[str, list[Event]] = {}
        self.observer: dict[str, list[Event]] = {}
        self.sources: set[str] = set()
        #: Reads of what may be a library that this run made: what was written before, or is named like one.
        self.read_back: dict[str, list[Event]] = {}
        self.listings: set[tuple[int, str]] = set()
        self.overlong = 0
        self.touches: dict[str, Touches] = {}
        self.refused_writes: dict[str, list[Event]] = {}
        self.changes: dict[str, Event] = {}
        #: What the client put into the world from outside: path → digest, and the directories made for it.
        self.puts: dict[str, str] = {}
        self.put_directories: set[str] = set()

        self.execs: list[tuple[Event, str, int]] = []
        #: pid → its last exec, until a ``proc`` event tells what really runs.
        self.executed: dict[int, Event] = {}
        #: ``proc`` events of processes that run another file than their exec named, with that exec.
        self.swapped: list[tuple[Event, Event]] = []
        #: Number of such an exec → what ran: for a script its interpreter.
        self.actual: dict[int, str] = {}
        self.digests: dict[str, str] = {}
        self.image: dict[int, str] = {}
        self.parent: dict[int, int] = {}
        self.nets: list[Event] = []
        self.flows: list[Event] = []
        self.packets: list[Event] = []
        self.signals: list[Event] = []
        self.survivors: list[Event] = []
        self.limits: list[Event] = []
        self.fanotify: list[Event] = []
        self.pids: list[Event] = []
        self.commands: dict[int, Event] = {}
        self.statuses: dict[int, Event] = {}
        self.witnesses: dict[str, tuple[bool, Event]] = {}
        self.end: Event | None = None

        self._handlers: dict[str, Callable[[Event], None]] = {
            "open": self._on_open,
            "exec": self._on_exec,
            "hash": self._on_hash,
            "fs": self._on_fs,
            "meta": self._on_meta,
            "proc": self._on_proc,
            "net": lambda event: self._keep("net", self.nets, event),
            "flow": lambda event: self._keep("flow", self.flows, event),
            "packets": lambda event: self._keep("packets", self.packets, event),
            "signal": lambda event: self._keep("signal", self.signals, event),
            "survivor": lambda event: self._keep("survivor", self.survivors, event),
            "limit": lambda event: self._keep("limit", self.limits, event),
            "fanotify": lambda event: self._keep("fanotify", self.fanotify, event),
            "pids": lambda event: self._keep("pids", self.pids, event),
            "escape": lambda event: self._keep("escape", self.escapes, event),
            "probe": self._on_probe,
            "change": self._on_change,
            "put": self._on_put,
            "command": self._on_command,
            "status": self._on_status,
            "witness": self._on_witness,
            "end": self._on_end,
        }

    def feed(self, events: Iterable[Event]) -> None:
        """Indexes every event, in order."""
        handlers, types, ignored = self._handlers, self.types, self.ignored
        for event in events:
            kind = event.type
            types[kind] = types.get(kind, 0) + 1
            if kind in ignored:
                continue
            handler = handlers.get(kind)
            if handler is not None:
                handler(event)
            elif kind == "invalid":
                self.invalid += 1

    # ---- what judges ask -------------------------------------------------------------------------------------------

    def made(self, path: str) -> bool:
        """Whether the file at ``path`` came into being during the run, so that reading it tells nothing new."""
        if path in self.puts:
            return False
        change = self.changes.get(path)
        if change is not None and change.text("w") == "created":
            return True
        touch = self.touches.get(path)
        if touch is not None and change is None:
            # O_CREAT by itself proves nothing: it opens what is there just as well. The open says so when it made it.
            if touch.new:
                return True
            # Gone at the end: the lower layer never had it, or its removal would be a change.
            if (touch.created or touch.made) and touch.gone and not touch.existed and self._compared():
                return True
        # A rename of a whole tree moves files that have no event of their own.
        return any(
            (parent := self.touches.get(ancestor)) is not None
            and parent.made
            and not parent.existed
            and self._created(ancestor)
            for ancestor in _parents(path)
        )

    def _created(self, path: str) -> bool:
        change = self.changes.get(path)
        return change is None or change.text("w") == "created"

    def _compared(self) -> bool:
        """Whether the files of the end were compared with those of the start."""
        return "change" not in self.ignored and any(
            name in self.witnesses and self.witnesses[name][0] for name in ("overlay", "walk")
        )

    def actor(self, path: str) -> tuple[Event, ...]:
        """The events that wrote to a path, or moved the tree it lies in."""
        touch = self.touches.get(path)
        if touch is not None and touch.events:
            return tuple(touch.events)
        for ancestor in _parents(path):
            touch = self.touches.get(ancestor)
            if touch is not None and touch.fs:
                return tuple(touch.fs[:_PER_PATH])
        return ()

    def decoy(self, path: str) -> str | None:
        """The planted path that ``path`` is, by name or by an alias made during the run."""
        if path in self.decoys:
            return path
        return self.aliases.get(path)

    def variable(self, canary: str) -> str | None:
        """The environment variable whose value a hit is, or None."""
        return self.variables.get(canary) or self.variables.get(canary.partition("#")[0])

    def canary_name(self, canary: str) -> str:
        """How to name a canary to a reader: the variable it stands in, or where it was planted."""
        if canary.startswith("/"):
            return canary
        return self.variable(canary) or canary

    # ---- handlers --------------------------------------------------------------------------------------------------

    def _value(self, name: str, value: str) -> None:
        if len(value) >= 12:
            self.values.setdefault(name, value)

    def _keep(self, what: str, kept: list[Event], event: Event) -> None:
        if len(kept) < MAX_KEPT:
            kept.append(event)
        else:
            self.overflow.add(what)

    def _note(self, what: str, table: dict[str, list[Event]], path: str, event: Event) -> None:
        known = table.get(path)
        if known is None:
            if len(table) >= MAX_KEPT:
                self.overflow.add(what)
                return
            table[path] = [event]
        elif len(known) < _PER_PATH:
            known.append(event)

    def touch(self, path: str, event: Event) -> Touches:
        found = self.touches.get(path)
        if found is None:
            found = Touches()
            if len(self.touches) >= MAX_KEPT:
                self.overflow.add("writes")
            else:
                self.touches[path] = found
        found.add(event)
        return found

    def _on_open(self, event: Event) -> None:
        get = event.data.get
        path = get("x") or get("n")
        access = get("a")
        if type(path) is not str or type(access) is not str or not path:
            return
        result = get("r") or "ok"
        done = result in _SUCCESS
        if not done and result not in catalogue.BLOCKED:
            if result == "ENAMETOOLONG":
                self.overlong += 1
            elif path.rpartition("/")[2] in catalogue.OBSERVER_NAMES:
                self._note("observer", self.observer, path, event)
            return
        if "/../" in path or "//" in path or "/./" in path:
            path = normalise(path)
        writes = "w" in access or "t" in access or "m" in access
        reads = "r" in access and "p" not in access
        if reads and done and path.endswith(".py"):
            self.sources.add(path)
        if path.startswith(_PROC_SELF):
            if reads or writes:
                self._on_proc_open(path, event, writes=writes)
            return
        if path.startswith("/memfd:"):
            # Memory of the program's own, opened again through /proc: for reading, as a loader does it.
            if reads and not writes and done:
                self._read_back(path, event)
            return
        if path.startswith("/sys/"):
            if path.startswith(catalogue.FINGERPRINT_PREFIXES) or (
                path.startswith("/sys/class/net/") and path.endswith(catalogue.FINGERPRINT_SUFFIXES)
            ):
                self._probe(25, path, event)
            elif path in catalogue.EVASION_PATHS:
                self._probe(24, path, event)
            elif path in catalogue.ESCAPE_PATHS or writes:
                self._note("escape", self.escape_opens, path, event)
            return
        place = self.places.of(path)
        if (writes or "c" in access) and place != places.DEV:
            if done:
                touch = self.touch(path, event)
                if "m" in access:
                    touch.nameless = True
                elif "c" not in access and not touch.created and not touch.made:
                    touch.existed = True
                elif event.flag("new") and not touch.existed and not touch.created and not touch.made:
                    touch.new = True
                touch.opened = touch.opened or writes
                touch.created = touch.created or "c" in access
                touch.truncated = touch.truncated or "t" in access
                touch.gone = False
            elif writes and not self.rules.write.match(path) and not self.places.temporary(path, place):
                self._note("writes", self.refused_writes, path, event)
        if "p" in access or get("k") == "dir" or "d" in access:
            if done and "p" not in access and place in (places.WORKSPACE, places.HOME):
                self.listings.add((event.command, path))
            elif done:
                self._decoy_of(path, event)  # a handle is no read, but it gives the file another name
            return
        if not reads and not writes:
            return
        if (
            not writes
            and done
            and (path in self.touches or (place != places.RUNTIME and catalogue.LIBRARY_NAME in path))
        ):
            self._read_back(path, event)
        self._on_file(path, place, event, reads=reads)

    def _read_back(self, path: str, event: Event) -> None:
        if path in self.read_back or len(self.read_back) < MAX_KEPT:
            self._note("reads", self.read_back, path, event)

    def _on_file(self, path: str, place: str, event: Event, *, reads: bool) -> None:
        decoy = self._decoy_of(path, event)
        if not reads:
            return
        if decoy is not None:
            if self.decoys.get(decoy, "").startswith("fingerprint"):
                self._probe(25, path, event)
            else:
                self._note("reads", self.decoy_reads, decoy, event)
            return
        if path in catalogue.FINGERPRINT_PATHS:
            self._probe(25, path, event)
            return
        if path in catalogue.EVASION_PATHS:
            self._probe(24, path, event)
            return
        if path in catalogue.ESCAPE_PATHS:
            self._note("escape", self.escape_opens, path, event)
            return
        if path.rpartition("/")[2] in catalogue.OBSERVER_NAMES and place not in (places.WORKSPACE, places.CANDIDATE):
            self._note("observer", self.observer, path, event)
        if place in (places.RUNTIME, places.CANDIDATE, places.INPUT, places.TMP, places.DEV):
            return
        if self.rules.read.match(path) or self.rules.write.match(path):
            return
        self._note("reads", self.reads, path, event)

    def _decoy_of(self, path: str, event: Event) -> str | None:
        """The planted file that was opened, by its name or by the inode it was seen to have."""
        decoy = self.decoy(path)
        inode = _inode(event.data.get("v"))
        if inode is not None:
            if decoy is not None:
                self.decoy_inodes[inode] = decoy
            elif self.decoy_inodes:
                decoy = self.decoy_inodes.get(inode)
        return decoy

    def _on_proc_open(self, path: str, event: Event, *, writes: bool) -> None:
        name = path.rpartition("/")[2]
        if name == "environ":
            self._note("reads", self.environ_reads, path, event)
        elif (
            path in catalogue.ESCAPE_PATHS
            or name == "mem"
            or (writes and (name in catalogue.ESCAPE_PROC_FILES or path.startswith("/proc/sys/")))
        ):
            self._note("escape", self.escape_opens, path, event)
        elif path in catalogue.FINGERPRINT_PATHS:
            self._probe(25, path, event)
        elif path in catalogue.EVASION_PATHS or name in catalogue.EVASION_PROC_FILES:
            self._probe(24, path, event)

    def _probe(self, kind: int, subject: str, event: Event) -> None:
        known = self.probes.get((kind, subject))
        if known is None:
            if len(self.probes) < MAX_KEPT:
                self.probes[kind, subject] = [event]
        elif len(known) < _PER_PATH:
            known.append(event)

    def _on_probe(self, event: Event) -> None:
        name = event.path
        if name.startswith("PR_SET_DUMPABLE"):
            self._probe(30, name, event)
        elif name and event.syscall != "memfd_create":
            # An anonymous file is nothing in itself; running one is judged at its exec.
            self._probe(24, name, event)

    def _on_fs(self, event: Event) -> None:
        source = _path(event, "x", "n")
        target = _path(event, "tox", "to")
        call = event.syscall
        result = event.result
        if result not in _SUCCESS:
            if result in catalogue.BLOCKED:
                path = target if call.startswith(("rename", "link")) else source
                path = path or source
                place = self.places.of(path)
                free = place in (places.DEV, places.PROC, places.SYS) or self.places.temporary(path, place)
                if path and not free and not self.rules.write.match(path):
                    self._note("writes", self.refused_writes, path, event)
                for path in (source, target) if _exchange(event) else (source,):
                    if self._protected(path) and call.startswith(("rename", "link")):
                        self._take(path, event)
            return
        if call.startswith("symlink"):
            # symlink(text, path): only the new name is touched; the text is no access to what it names.
            self._make(target or source, event)
            return
        if call.startswith(("rename", "link")):
            self._rename(source, target, event)
            return
        if not source:
            return
        if call.startswith(("unlink", "rmdir")):
            self._remove(source, event)
            return
        if call.startswith(("mkdir", "mknod")):
            self._make(source, event)
            return
        touch = self.touch(source, event)
        if not touch.created and not touch.made:
            touch.existed = True
        touch.opened = True
        touch.truncated = touch.truncated or call.startswith("truncate")

    def _rename(self, source: str, target: str, event: Event) -> None:
        """What lay below ``source`` has the name ``target``; in an exchange, also the other way round."""
        exchange = _exchange(event)
        moved = [(target, self._carried(source))]
        if exchange:
            moved.append((source, self._carried(target)))
        self._take(source, event)
        if exchange:
            self._take(target, event)
        for place, carried in moved:
            for rest, decoy in carried:
                self._alias(place + rest, decoy)
        if exchange:
            for path in (source, target):
                self._remove(path, event)  # it was there before
                self._make(path, event)
            return
        self._make(target, event)
        if event.syscall.startswith("rename") and source:
            touch = self._remove(source, event)
            if len(touch.fs) < _PER_PATH:
                touch.fs.append(event)

    def _carried(self, path: str) -> list[tuple[str, str]]:
        """(rest of the name, first name) of every planted file at or below ``path``."""
        decoy = self.decoy(path)
        if decoy is not None:
            return [("", decoy)]
        if path not in self._holders:
            return []
        below, size = path + "/", len(path)
        found = [(name[size:], name) for name in self.decoys if name.startswith(below)]
        return found + [(name[size:], first) for name, first in self.aliases.items() if name.startswith(below)]

    def _alias(self, path: str, decoy: str) -> None:
        if not path.startswith("/") or path in self.decoys:
            return
        if path not in self.aliases and len(self.aliases) >= MAX_ALIASES:
            self.overflow.add("names of planted files")
            return
        # Old names stay: renaming one hard link over another of the same file does nothing.
        self.aliases[path] = decoy
        self._holders.update(_parents(path))

    def _make(self, path: str, event: Event) -> None:
        if path:
            touch = self.touch(path, event)
            touch.made = True
            touch.gone = False
            if len(touch.fs) < _PER_PATH:
                touch.fs.append(event)

    def _remove(self, path: str, event: Event) -> Touches:
        touch = self.touch(path, event)
        if not touch.created and not touch.made:
            touch.existed = True
        touch.unlinked = touch.gone = True
        return touch

    def _protected(self, path: str) -> bool:
        return bool(path) and (self.decoy(path) is not None or path in self._decoy_directories)

    def _take(self, source: str, event: Event) -> None:
        """A new name for an old file: as good as reading it, when the file is none of the program's business."""
        if not source or source.startswith("/proc/"):
            return
        decoy = self.decoy(source)
        if decoy is not None:
            self._note("reads", self.decoy_reads, decoy, event)
            return
        place = self.places.of(source)
        private = place in (places.WORKSPACE, places.HOME, places.OTHER, places.RIVAL)
        if private and not self.rules.read.match(source) and not self.rules.write.match(source):
            self._note("reads", self.reads, source, event)

    def _on_meta(self, event: Event) -> None:
        path = _path(event, "x", "n")
        if not path.startswith("/") or path.startswith(("/proc/", "/dev/")):
            return  # nothing was found under that name
        result = event.result
        if result in _SUCCESS or result in catalogue.BLOCKED:
            touch = self.touch(path, event)
            if len(touch.meta) < _PER_PATH:
                touch.meta.append(event)

    def _on_proc(self, event: Event) -> None:
        pid, parent, path = event.pid, event.integer("pp"), event.text("x")
        if parent:
            self.parent[pid] = parent
        if not path:
            if parent in self.image:
                self.image.setdefault(pid, self.image[parent])
            return
        asked = self.executed.pop(pid, None)
        if asked is not None and path != asked.path and len(self.swapped) < MAX_KEPT:
            # The path of an exec can be changed after it was looked at; what runs cannot.
            self.swapped.append((event, asked))
            self.actual[asked.number] = path
        self.image[pid] = path

    def _on_exec(self, event: Event) -> None:
        result = event.result
        path = _path(event, "x", "n")
        if result not in _SUCCESS and result not in catalogue.BLOCKED:
            return
        pid = event.pid
        before = self.image.get(pid) or self.image.get(self.parent.get(pid, 0), "")
        if len(self.execs) >= MAX_KEPT:
            self.overflow.add("exec")
        else:
            self.execs.append((event, before, self.parent.get(pid, 0)))
        if result in _SUCCESS:
            self.image[pid] = path
            if len(self.executed) < MAX_KEPT:
                self.executed[pid] = event
        digest = event.text("h256")
        if digest:
            self.digests[path] = digest.lower()

    def _on_hash(self, event: Event) -> None:
        path, digest = event.path, event.text("h256")
        if path and digest and len(self.digests) < MAX_KEPT:
            self.digests[path] = digest.lower()

    def _on_change(self, event: Event) -> None:
        path = _path(event, "x", "n")
        if not path:
            return
        if path not in self.changes and len(self.changes) >= MAX_KEPT:
            self.overflow.add("change")
        else:
            self.changes[path] = event

    def _on_put(self, event: Event) -> None:
        path = _path(event, "x", "n")
        if path and len(self.puts) < MAX_KEPT:
            self.puts[path] = event.text("h256")
            self.put_directories.update(_parents(path))

    def _on_command(self, event: Event) -> None:
        if len(self.commands) < MAX_KEPT:
            self.commands[event.command] = event

    def _on_status(self, event: Event) -> None:
        if len(self.statuses) < MAX_KEPT:
            self.statuses[event.command] = event

    def _on_witness(self, event: Event) -> None:
        name = event.text("name")
        if name and (name in self.witnesses or len(self.witnesses) < 64):
            before = self.witnesses.get(name)
            ok = event.flag("ok") and (before is None or before[0])
            self.witnesses[name] = (ok, event if before is None or before[0] else before[1])

    def _on_end(self, event: Event) -> None:
        self.end = event


def _exchange(event: Event) -> bool:
    """Whether a rename swapped its two names (RENAME_EXCHANGE)."""
    return event.syscall.startswith("rename") and event.text("d") == "exchange"


def _inode(value: object) -> tuple[int, int] | None:
    """``[device, inode]`` of an event, or None."""
    if type(value) is list and len(value) == 2 and type(value[0]) is int and type(value[1]) is int:
        return value[0], value[1]
    return None


def _path(event: Event, *keys: str) -> str:
    for key in keys:
        path = event.text(key)
        if path:
            return normalise(path) if "/../" in path or "//" in path or "/./" in path or path.endswith("/") else path
    return ""


def _parents(path: str) -> Iterable[str]:
    end = path.rfind("/")
    while end > 0:
        yield path[:end]
        end = path.rfind("/", 0, end)
