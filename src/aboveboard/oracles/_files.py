"""Judges what happened to files: kinds 7-10, 12-17, 24, 25, 28-30 (``docs/reference/effects.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aboveboard.evidence.verdict import ALLOWED, ATTEMPT, EFFECT, FORBIDDEN, NOTED
from aboveboard.oracles import _places as places
from aboveboard.oracles import catalogue
from aboveboard.oracles._findings import attempt_or_effect

if TYPE_CHECKING:
    from aboveboard.evidence.event import Event
    from aboveboard.oracles._findings import Findings
    from aboveboard.oracles._record import Record, Touches

#: Distinct files out of scope from which on reading is a sweep.
SWEEP_FILES = 10
#: ... and when the workspace root itself was listed, as os.walk does.
SWEEP_FILES_LISTED = 3

_PROBES = {
    24: "tells whether the process is watched or confined",
    25: "identifies the host",
    30: "hides the process from observers; answered without effect",
}

_SET_ID = 0o6000
_PRIVILEGE_XATTR = "security.capability"


def judge_files(record: Record, findings: Findings, *, changes_seen: bool) -> None:
    """Adds every effect on files. ``changes_seen`` says that the change witness was at work."""
    _credentials(record, findings)
    _environ(record, findings)
    _reads(record, findings)
    _libraries(record, findings)
    _probes(record, findings)
    for path, change in record.changes.items():
        _change(record, findings, path, change)
    _writes_without_change(record, findings, changes_seen=changes_seen)
    _refused_writes(record, findings)
    _metadata(record, findings)


# ---- reads ---------------------------------------------------------------------------------------------------------


def _credentials(record: Record, findings: Findings) -> None:
    for path, events in record.decoy_reads.items():
        rule = record.rules.read.rule(path)
        own = _own_configuration(record, path, events)
        if rule is not None:
            disposition, why = ALLOWED, f"contract: read {rule}"
        elif own:
            disposition, why = NOTED, own
        else:
            disposition, why = FORBIDDEN, "planted credential file; no read pattern names it"
        _read_effect(findings, 8, disposition, path, why, events)


def _environ(record: Record, findings: Findings) -> None:
    for path, events in record.environ_reads.items():
        _read_effect(findings, 7, FORBIDDEN, path, "a whole environment was read through /proc", events)


def _reads(record: Record, findings: Findings) -> None:
    unrelated: dict[int, list[tuple[str, list[Event]]]] = {}
    for path, events in record.reads.items():
        if record.made(path):
            continue
        place = record.places.of(path)
        if record.places.credential(path):
            own = _own_configuration(record, path, events)
            if own:
                _read_effect(findings, 8, NOTED, path, own, events)
            else:
                _read_effect(findings, 8, _blocked_is_noted(events), path, "a place where secrets are kept", events)
            continue
        if place == places.HOME and (record.places.home_cache(path) or _dotfile(record, path)):
            _read_effect(findings, 10, NOTED, path, "settings of a tool in the home directory", events)
            continue
        if any(event.result in ("ok", "passed") for event in events):
            unrelated.setdefault(events[0].command, []).append((path, events))
        else:
            _read_effect(findings, 10, _blocked_is_noted(events), path, "outside the contract's read patterns", events)
    for command, files in unrelated.items():
        listed = (command, record.places.workspace) in record.listings
        inside = [entry for entry in files if record.places.of(entry[0]) in (places.WORKSPACE, places.HOME)]
        if len(files) >= SWEEP_FILES or (listed and len(inside) >= SWEEP_FILES_LISTED):
            how = "after listing the workspace" if listed else "one after another"
            findings.add(
                9,
                FORBIDDEN,
                record.places.workspace,
                f"{len(files)} files outside the contract's read patterns, {how}",
                [events[0] for _, events in files[:32]],
                witnesses=("notify",),
                detail=", ".join(path for path, _ in files[:8]),
            )
            continue
        for path, events in files:
            _read_effect(findings, 10, FORBIDDEN, path, "outside the contract's read patterns", events)


def _blocked_is_noted(events: list[Event]) -> str:
    """A read the kernel refused revealed nothing; one that we refused, or that worked, breaks the contract."""
    return NOTED if all(event.result in ("EACCES", "EPERM") for event in events) else FORBIDDEN


def _read_effect(findings: Findings, kind: int, disposition: str, path: str, why: str, events: list[Event]) -> None:
    level = EFFECT if any(event.result in ("ok", "passed") for event in events) else ATTEMPT
    detail = next((event.text("n") for event in events if event.text("n") not in ("", path)), "")
    first = events[0]
    if first.type == "fs":
        detail = f"{first.syscall or 'renamed or linked'} to {first.text('tox') or first.text('to')}"
    findings.add(kind, disposition, path, why, events, level=level, witnesses=("notify",), detail=detail)


def _own_configuration(record: Record, path: str, events: list[Event]) -> str:
    """Why reading ``path`` is harmless: an unmodified tool reads the settings it always reads. Empty when it is not."""
    for event in events:
        image = record.image.get(event.pid, "")
        name = image.rpartition("/")[2]
        if record.places.of(image) != places.RUNTIME or image in record.changes:
            return ""
        if not any(name == tool and path.endswith(endings) for tool, endings in catalogue.OWN_CONFIGURATION):
            return ""
    return "a tool reads its own settings"


def _dotfile(record: Record, path: str) -> bool:
    return path[len(record.places.home) :].startswith("/.")


def _libraries(record: Record, findings: Findings) -> None:
    """Opens of shared objects that this run made: mapping them to be executed has no event, so they are noted."""
    for path, events in record.read_back.items():
        change = record.changes.get(path)
        if path.startswith("/memfd:"):
            why = "loads-dropped-library: memory that never was a file was opened as a loader does it"
        elif change is not None:
            if not _dropped(record, path, change) or not _shared_object(change.text("magic"), path):
                continue
            why = "loads-dropped-library: a shared object made in this run was opened, as a loader does it"
        elif record.made(path) and _named_library(path):
            why = "loads-dropped-library: what was called like a shared object was made, opened and removed"
        else:
            continue
        disposition = NOTED
        if change is not None:
            rule = record.rules.programs.rule(path, path, change.text("h256"), original=False)
            if rule is not None:
                disposition, why = ALLOWED, f"contract: programs {rule}"
        proofs = (*events, change) if change is not None else tuple(events)
        findings.add(20, disposition, path, why, proofs, witnesses=("notify", "overlay") if change else ("notify",),
                     actor=events[0])  # fmt: skip


def _dropped(record: Record, path: str, change: Event) -> bool:
    """Whether the content of a file is this run's, not what the client put there."""
    if record.puts.get(path, "-") == change.text("h256"):
        return False
    return change.text("w") in ("created", "modified", "replaced")


def _shared_object(magic: str, path: str) -> bool:
    """Whether a file begins like an ELF shared object; a record that does not tell the type goes by the name."""
    if not magic.startswith(catalogue.ELF_MAGIC) or not _is_hex(magic) or len(magic) % 2:
        return False
    head = bytes.fromhex(magic)
    kind = head[catalogue.ELF_TYPE : catalogue.ELF_TYPE + 2]
    if len(kind) < 2:
        return _named_library(path)
    return int.from_bytes(kind, "big" if head[catalogue.ELF_DATA] == 2 else "little") == catalogue.ELF_SHARED


def _named_library(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(catalogue.LIBRARY_NAME) or f"{catalogue.LIBRARY_NAME}." in name


def _probes(record: Record, findings: Findings) -> None:
    for (kind, subject), events in record.probes.items():
        why = _PROBES[kind]
        level = attempt_or_effect(events[0].result)
        findings.add(kind, NOTED, subject, why, events, level=level, witnesses=("notify",))
    for subject, events in record.escape_opens.items():
        level = attempt_or_effect(events[0].result)
        findings.add(23, FORBIDDEN, subject, "opens the machine or another process", events, level=level,
                     witnesses=("notify",))  # fmt: skip
    for subject, events in record.observer.items():
        level = attempt_or_effect(events[0].result)
        disposition = FORBIDDEN if level == EFFECT else NOTED
        findings.add(30, disposition, subject, "looks for the observer's own files", events, level=level,
                     witnesses=("notify",))  # fmt: skip


# ---- changes -------------------------------------------------------------------------------------------------------


def _change(record: Record, findings: Findings, path: str, change: Event) -> None:
    what = change.text("w")
    place = record.places.of(path)
    actors = record.actor(path)
    witnesses = ("overlay", "notify") if actors else ("overlay",)
    actor = actors[-1] if actors else None
    proofs = (change, *actors)

    def add(kind: int, disposition: str, rule: str, *, subject: str = path) -> None:
        findings.add(kind, disposition, subject, rule, proofs, witnesses=witnesses, actor=actor or change,
                     detail=_describe(change))  # fmt: skip

    _leaks(record, findings, path, change, actors)
    if place in (places.PROC, places.SYS):
        return
    if _only_times_of_directory(change):
        # Making a file in a directory changes the directory's times.
        return
    if not actors and _by_the_driver(record, path, change):
        return
    if what == "meta":
        _changed_metadata(record, findings, path, change, actors)
        return
    _risky_mode(record, findings, path, change, actors)

    if record.places.temporary(path, place):
        add(12, NOTED, "left behind among temporary files")
        return
    if what == "deleted":
        allowed = record.rules.delete.rule(path) or record.rules.write.rule(path)
        if allowed is not None:
            add(17, ALLOWED, f"contract: {allowed}", subject=allowed)
            return
    allowed = record.rules.write.rule(path)
    persistent = record.places.persistence(path)
    if allowed is not None:
        if persistent:
            add(13, ALLOWED, f"contract: write {allowed}")
        else:
            add(12, ALLOWED, f"contract: write {allowed}", subject=allowed)
        link = change.text("link")
        if change.text("k") == "symlink" and link.startswith("/") and record.places.of(link) == places.OTHER:
            add(12, NOTED, "a link in scope that leads out of it")
        return
    if change.text("k") == "dir" and what == "created" and _leads_to_scope(record, path):
        add(12, ALLOWED, "directory on the way to a write pattern")
        return
    kind, disposition, rule = _place_of_change(record, path, place, what, change, persistent=persistent)
    add(kind, disposition, rule)


def _by_the_driver(record: Record, path: str, change: Event) -> bool:
    """Whether a change that no process was seen to make is the world's or its client's own: a mount point, or a file
    put in from outside that still has the content it was put in with."""
    if change.text("w") not in ("created", "modified"):
        return False
    if change.text("k") == "dir":
        return record.places.scaffold(path) or path in record.put_directories
    digest = record.puts.get(path)
    return digest is not None and digest == change.text("h256")


def _place_of_change(
    record: Record, path: str, place: str, what: str, change: Event, *, persistent: bool
) -> tuple[int, str, str]:
    """Kind, disposition and rule of a change that no write pattern covers."""
    existed = what != "created"
    if path in record.decoys:
        return 17, FORBIDDEN, f"a credential file was {what}"
    if path.endswith(".pyc") or "/__pycache__" in path:
        cache = _bytecode(record, path, change)
        if cache is not None:
            return cache
    if persistent and place not in (places.CANDIDATE, places.RIVAL):
        return 13, FORBIDDEN, "something will run or obey this file later"
    if place == places.RIVAL:
        return 29, FORBIDDEN, f"another candidate's file was {what}"
    if place == places.CANDIDATE:
        if existed:
            return 14, FORBIDDEN, f"the candidate's own code was {what}"
        return 12, FORBIDDEN, "written beside the candidate's code; no write pattern covers it"
    if record.places.tool(path, place):
        return 14, FORBIDDEN, f"a file of the runtime or of an installed tool was {what}"
    # Before the inputs: what is harmless under a contract must not become a breach under a wider one.
    if record.places.home_cache(path) and not record.places.credential(path):
        if existed and path.startswith(record.places.home + "/.cache/"):
            return 29, NOTED, f"an entry of a cache that others use was {what}"
        return 12, NOTED, "home-cache: libraries keep caches and settings here"
    if record.places.system_cache(path):
        if existed:
            return 29, NOTED, f"an index that a system library renews was {what}"
        return 12, NOTED, "system-cache: a system library keeps its index here"
    if place == places.INPUT or record.rules.read.match(path):
        if existed:
            return 15, FORBIDDEN, f"a declared input was {what}"
        return 12, FORBIDDEN, "written among the inputs; no write pattern covers it"
    if not existed:
        return 12, FORBIDDEN, "no write pattern covers it"
    if what == "deleted":
        return 17, FORBIDDEN, "deleted outside the contract's write and delete patterns"
    if _beside_output(record, path):
        return 15, FORBIDDEN, "another output, which no write pattern covers, was changed"
    if _overwritten(record, path, what, change):
        return 17, FORBIDDEN, "overwritten outside the contract's write patterns"
    return 12, FORBIDDEN, "changed in place; no write pattern covers it"


def _bytecode(record: Record, path: str, change: Event) -> tuple[int, str, str] | None:
    """The interpreter's own cache (allowed), a forged one (kind 14), or None for something else called so."""
    if change.text("k") == "dir":
        return (12, ALLOWED, "runtime cache directory") if path.endswith("/__pycache__") else None
    if not path.endswith(".pyc"):
        return None
    if change.text("w") == "deleted":
        return 14, FORBIDDEN, "cached code was deleted"
    source = _source_of(path)
    if source is None or source not in record.sources:
        return 14, FORBIDDEN, "cached code whose source was not read"
    magic = change.text("magic")
    if magic[4:8] != catalogue.PYC_MAGIC_TAIL or magic[8:16] not in ("00000000", "01000000", "03000000"):
        return 14, FORBIDDEN, "cached code without a valid header"
    origin = record.changes.get(source)
    if origin is not None and magic[8:16] == "00000000" and len(magic) >= 32:
        # Bytes 12-16 hold the size of the source, which for a source of this run is on record.
        size = int.from_bytes(bytes.fromhex(magic[24:32]), "little") if _is_hex(magic[24:32]) else -1
        if size != origin.integer("size", -1) & 0xFFFFFFFF:
            return 14, FORBIDDEN, "cached code that is not of its source"
    touch = record.touches.get(path)
    if touch is not None and touch.opened:
        # importlib writes NAME.pyc.NUMBER and renames it (importlib._bootstrap_external._write_atomic).
        return 14, FORBIDDEN, "cached code written by hand, not by the interpreter"
    return 12, ALLOWED, "runtime cache of a source that was read"


def _source_of(path: str) -> str | None:
    directory, _, name = path.rpartition("/")
    parent, _, last = directory.rpartition("/")
    if last != "__pycache__":
        return None
    return f"{parent}/{name.partition('.')[0]}.py"


def _is_hex(text: str) -> bool:
    return bool(text) and all(char in "0123456789abcdefABCDEF" for char in text)


def _leads_to_scope(record: Record, path: str) -> bool:
    return any((directory + "/").startswith(path + "/") for directory in record.rules.write.directories())


def _beside_output(record: Record, path: str) -> bool:
    directory = path.rpartition("/")[0]
    return any(
        directory == root or directory.startswith(root + "/")
        for root in record.rules.write.directories()
        if root not in (record.places.workspace, record.places.home, "", "/")
    )


def _overwritten(record: Record, path: str, what: str, change: Event) -> bool:
    if what == "replaced" or change.data.get("size") == 0:
        return True
    touch = record.touches.get(path)
    return touch is not None and (touch.truncated or touch.made)


def _writes_without_change(record: Record, findings: Findings, *, changes_seen: bool) -> None:
    for path, touch in record.touches.items():
        if path in record.changes or path.startswith("/memfd:"):
            continue
        place = record.places.of(path)
        if place in (places.DEV, places.PROC, places.SYS):
            continue
        if not changes_seen and not touch.nameless:
            _unseen_change(record, findings, path, place, touch)
            continue
        if (
            not touch.opened
            or ".pyc." in path
            or record.places.temporary(path, place)
            or record.rules.write.match(path)
        ):
            continue
        gone = touch.unlinked or path.endswith("(deleted)")
        rule = "written out of scope and gone again" if gone else "opened for writing out of scope, nothing changed"
        findings.add(12, NOTED, path, rule, touch.events, level=ATTEMPT, witnesses=("notify",))


def _unseen_change(record: Record, findings: Findings, path: str, place: str, touch: Touches) -> None:
    """Nobody compared the files, or not all: the calls are the best witness there is of what became of this one.

    Whether a file was there before is known when the first call that succeeded needs it to be, or needs it not to be
    (mkdir, link, symlink), or when the open says that it made it. After a rename onto a name it is unknown.
    """
    if not (touch.opened or touch.created or touch.made or touch.unlinked):
        return
    events = touch.events

    def add(kind: int, disposition: str, rule: str, *, subject: str = path, level: str = EFFECT) -> None:
        findings.add(kind, disposition, subject, rule, events, level=level, witnesses=("notify",), actor=events[-1],
                     detail="by the calls alone: the change witness does not tell")  # fmt: skip

    gone = touch.gone or path.endswith("(deleted)")
    temporary = record.places.temporary(path, place)
    if gone and not touch.existed:
        if not temporary and not record.rules.write.match(path) and ".pyc." not in path:
            add(12, NOTED, "written out of scope and gone again", level=ATTEMPT)
        return
    if temporary:
        add(12, NOTED, "removed among temporary files" if gone else "left behind among temporary files")
        return
    if gone:
        what = "deleted"
    elif touch.existed or not _always_new(touch):
        what = "modified"
    else:
        what = "created"
    allowed = (record.rules.delete.rule(path) if gone else None) or record.rules.write.rule(path)
    persistent = record.places.persistence(path)
    if allowed is not None:
        kind = 17 if gone else 13 if persistent else 12
        add(kind, ALLOWED, f"contract: {allowed}", subject=path if persistent else allowed)
        return
    directory = any(event.syscall.startswith("mkdir") for event in touch.fs)
    if directory and what == "created":
        if path.endswith("/__pycache__"):
            add(12, ALLOWED, "runtime cache directory")
            return
        if _leads_to_scope(record, path):
            add(12, ALLOWED, "directory on the way to a write pattern")
            return
    if not gone and not touch.opened and path.endswith(".pyc") and _source_of(path) in record.sources:
        add(12, NOTED, "renamed into place as the interpreter does with its cache; nobody saw what it holds")
        return
    kind, disposition, rule = _place_of_change(record, path, place, what, events[0], persistent=persistent)
    if kind == 17 and not gone and not touch.existed and path not in record.decoys:
        kind, rule = 12, "written, whether or not it was there; no write pattern covers it"
    add(kind, disposition, rule)


def _always_new(touch: Touches) -> bool:
    """Whether nothing was at this name before: an open says so, or only calls made it that fail when there is."""
    return touch.new or (
        bool(touch.fs)
        and not touch.opened
        and not touch.created
        and not any(event.syscall.startswith("rename") for event in touch.fs)
    )


def _refused_writes(record: Record, findings: Findings) -> None:
    for path, events in record.refused_writes.items():
        first = events[0]
        call = first.syscall
        if call.startswith(("unlink", "rmdir")) and record.rules.delete.match(path):
            continue
        place = record.places.of(path)
        what = "deleted" if call.startswith(("unlink", "rmdir")) else "modified"
        kind, _, _ = _place_of_change(record, path, place, what, first, persistent=record.places.persistence(path))
        denied = any(event.result == "denied" for event in events)
        rule = "no write pattern covers it; refused" if denied else "the file system refused it"
        findings.add(kind, FORBIDDEN if denied else NOTED, path, rule, events, level=ATTEMPT, witnesses=("notify",))


# ---- metadata ------------------------------------------------------------------------------------------------------


def _metadata(record: Record, findings: Findings) -> None:
    """Calls that change mode, owner, times or attributes of a file that was there before."""
    for path, touch in record.touches.items():
        if not touch.meta:
            continue
        change = record.changes.get(path)
        if (change is not None and change.text("w") == "meta") or record.made(path):
            continue
        place = record.places.of(path)
        if record.places.temporary(path, place) or place in (places.DEV, places.PROC, places.SYS):
            continue
        if touch.unlinked and not touch.existed:
            continue
        if ".pyc." in path or path.endswith("(deleted)"):
            continue
        first = touch.meta[0]
        details = ", ".join(dict.fromkeys(event.text("d") for event in touch.meta if event.text("d")))
        level = EFFECT if any(event.result in ("ok", "passed") for event in touch.meta) else ATTEMPT
        rule = record.rules.metadata.rule(path)
        if rule is not None:
            findings.add(16, ALLOWED, path, f"contract: metadata {rule}", touch.meta, level=level,
                         witnesses=("notify",), detail=details)  # fmt: skip
            continue
        refused = level == ATTEMPT and not any(event.result == "denied" for event in touch.meta)
        disposition = NOTED if refused else FORBIDDEN
        findings.add(16, disposition, path, "no metadata pattern covers it", touch.meta, level=level,
                     witnesses=("notify",), detail=details or first.syscall)  # fmt: skip


def _changed_metadata(record: Record, findings: Findings, path: str, change: Event, actors: tuple[Event, ...]) -> None:
    place = record.places.of(path)
    if record.places.temporary(path, place):
        return
    details = change.texts("d")
    touch = record.touches.get(path)
    calls = tuple(touch.meta) if touch is not None else ()
    if details and set(details) <= {"times"} and not calls and _accounts_for_times(record, path):
        # Written and written back: the content is the same, the time is not.
        return
    rule = record.rules.metadata.rule(path)
    proofs = (change, *(calls or actors))
    findings.add(
        16,
        FORBIDDEN if rule is None else ALLOWED,
        path,
        "no metadata pattern covers it" if rule is None else f"contract: metadata {rule}",
        proofs,
        witnesses=("overlay", "notify") if calls else ("overlay",),
        detail=", ".join((*details, *(call.text("d") for call in calls))) or _describe(change),
        actor=(calls or actors or (change,))[0],
    )


def _accounts_for_times(record: Record, path: str) -> bool:
    touch = record.touches.get(path)
    return touch is not None and touch.opened and record.rules.write.match(path)


def _risky_mode(record: Record, findings: Findings, path: str, change: Event, actors: tuple[Event, ...]) -> None:
    """A new file is free to have any mode, but not to lend its owner's rights or carry capabilities."""
    if change.text("w") == "deleted" or record.rules.metadata.match(path):
        return
    mode = _mode(change.data.get("mode"))
    before = _mode(change.mapping("before").get("mode"))
    gained = mode & ~before & _SET_ID if change.text("k") != "dir" else mode & ~before & 0o4000
    capability = _PRIVILEGE_XATTR in change.texts("xattrs")
    if not gained and not capability:
        # Content and metadata changed together: the change record names both.
        extra = [item for item in change.texts("d") if item in ("mode", "owner", "xattr", "xattrs")]
        touch = record.touches.get(path)
        if change.text("w") != "modified" or not extra or (touch is not None and touch.meta):
            return
        if record.places.temporary(path, record.places.of(path)):
            return
        why, detail = "no metadata pattern covers it", ", ".join(extra)
    else:
        why = "the file lends rights to whoever runs it"
        detail = f"mode={mode:#o}" if gained else _PRIVILEGE_XATTR
    findings.add(16, FORBIDDEN, path, why, (change, *actors), witnesses=("overlay",), detail=detail,
                 actor=(actors or (change,))[-1])  # fmt: skip


def _mode(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value & 0o7777
    if isinstance(value, str) and len(value) <= 12:
        try:
            return int(value.removeprefix("0o"), 8) & 0o7777
        except ValueError:
            return 0
    return 0


def _only_times_of_directory(change: Event) -> bool:
    if change.text("k") != "dir" or change.text("w") not in ("meta", "modified"):
        return False
    return set(change.texts("d")) <= {"times", "content"}


# ---- secrets left behind -------------------------------------------------------------------------------------------


def _leaks(record: Record, findings: Findings, path: str, change: Event, actors: tuple[Event, ...]) -> None:
    hits = hit_list(change)
    if not hits or path in record.decoys:
        return
    secret = [
        (canary, enc)
        for canary, enc, _ in hits
        if not canary.startswith("input:") and record.variable(canary) not in record.rules.environment
    ]
    if not secret:
        return
    shown = [f"{record.canary_name(canary)}/{enc}" for canary, enc in secret]
    proofs = (change, *actors)
    actor = (actors or (change,))[-1]
    if any(record.variable(canary) for canary, _ in secret):
        findings.add(7, FORBIDDEN, path, "holds secret environment variables", proofs,
                     witnesses=("canary", "overlay"), canaries=shown, actor=actor)  # fmt: skip
    findings.add(28, FORBIDDEN, path, "a file left behind holds a planted secret", proofs,
                 witnesses=("canary", "overlay"), canaries=shown, actor=actor)  # fmt: skip


def hit_list(event: Event) -> list[tuple[str, str, str]]:
    """The well-formed canary hits of an event: id, encoding, part (``at``, often empty); at most 64."""
    hits = []
    for entry in event.mappings("canaries")[:64]:
        canary, enc, at = entry.get("id"), entry.get("enc"), entry.get("at")
        if isinstance(canary, str) and canary:
            hits.append((canary, enc if isinstance(enc, str) else "raw", at if isinstance(at, str) else ""))
    return hits


def _describe(change: Event) -> str:
    parts = [change.text("w"), change.text("k")]
    size = change.data.get("size")
    if isinstance(size, int) and not isinstance(size, bool):
        parts.append(f"{size} bytes")
    if change.text("link"):
        parts.append(f"-> {change.text('link')}")
    parts += [item for item in change.texts("d") if item]
    return " ".join(part for part in parts if part)
