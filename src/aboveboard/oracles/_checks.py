"""Do the witnesses agree, and is the record whole? Every doubt is a reason why "clean" cannot be said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aboveboard.contract import TIERS, canonical_host
from aboveboard.evidence.verdict import ABSENT, COMPLETE, PARTIAL, Assurance, ClassAssurance, Reason
from aboveboard.oracles import _places as places
from aboveboard.oracles.catalogue import CHANGE, CLASSES, LACKING, PROCESS, READ, REQUIRED, SECRET, TRANSMISSION

if TYPE_CHECKING:
    from collections.abc import Collection

    from aboveboard.contract import Contract
    from aboveboard.evidence.chain import ChainReport
    from aboveboard.oracles._findings import Findings
    from aboveboard.oracles._record import Record

#: Version of the event record this oracle understands.
FORMAT = 1

_MAX_SHOWN = 5
#: Addresses of a bind that mean every address of the world's own.
_WILDCARDS = ("", "0.0.0.0", "::")
#: What a bound that was hit hides.
_HIDDEN_BY_LIMIT = {
    "payload": TRANSMISSION,
    "scan": SECRET,
    "disk": CHANGE,
    "processes": PROCESS,
    "output": "",
    "wall": "",
    "memory": "",
    "events": "",
}


def assurance(record: Record, disabled: Collection[str]) -> Assurance:
    """How well each class was watched: by the proof of each witness at the start, and its losses since."""
    tier = record.header.text("tier")
    off = {*disabled, *record.header.texts("disabled")}
    proven = {name for name, (ok, _) in record.witnesses.items() if ok and name not in off}
    required = REQUIRED.get(tier, {})
    classes = {}
    for name in CLASSES:
        needed = required.get(name, ())
        present = tuple(witness for witness in needed if witness in proven)
        missing = tuple(witness for witness in needed if witness not in proven)
        lacking = LACKING.get(tier, {}).get(name, ())
        status = COMPLETE if needed and not missing and not lacking else PARTIAL if present else ABSENT
        if name == SECRET and status == COMPLETE and any(event.text("what") == "scan" for event in record.limits):
            status = PARTIAL  # proven, but it did not look at everything
        classes[name] = ClassAssurance(status, present, (*missing, *lacking))
    return Assurance(tier or "none", classes)


def reasons(
    record: Record,
    contract: Contract,
    findings: Findings,
    chain: ChainReport,
    state: Assurance,
) -> list[Reason]:
    """Every reason to doubt the record; empty when "clean" may be said."""
    found: list[Reason] = []
    _whole(record, findings, chain, found)
    _tier(record, contract, state, found)
    _limits(record, found)
    _flows(record, found)
    _packets(record, found)
    _opens(record, found)
    _processes(record, found)
    return found


def _whole(record: Record, findings: Findings, chain: ChainReport, found: list[Reason]) -> None:
    header = record.header
    if header.number != 0:
        found.append(Reason("no-header", "", "the record does not start with its world event"))
    version = header.integer("v")
    if header.number == 0 and version != FORMAT:
        found.append(Reason("format", "", f"record of format {version}; this oracle reads format {FORMAT}"))
    if not chain.ok:
        where = f"at line {chain.first_bad_line}" if chain.first_bad_line is not None else "before the first event"
        found.append(Reason("chain-broken", "", f"the hash chain breaks {where}"))
    if record.invalid:
        found.append(Reason("unreadable-events", "", f"{record.invalid} lines are no events"))
    end = record.end
    if end is None or not chain.complete:
        torn = "; its last line is torn" if chain.torn else ""
        found.append(Reason("no-end", "", f"the record does not end with an end event: the observer died{torn}"))
    if end is not None:
        number = (end.number,)
        lost = end.data.get("lost", 0)
        if lost != 0:
            found.append(Reason("events-lost", "", f"{lost!s:.20} events were lost", number))
        reason = end.text("reason")
        if reason and reason != "exit":
            found.append(Reason("ended-early", "", f"the world ended by {reason[:40]}", number))
        short = [
            kind
            for kind, count in end.mapping("counts").items()
            if isinstance(count, int) and kind != "end" and count > record.types.get(kind, 0)
        ]
        if short:
            shown = ", ".join(sorted(short)[:_MAX_SHOWN])
            found.append(Reason("events-missing", "", f"fewer events than were written: {shown[:200]}", number))
    unfinished = [number for number in record.commands if number not in record.statuses]
    if unfinished:
        events = tuple(record.commands[number].number for number in unfinished[:32])
        found.append(Reason("command-unfinished", "", f"{len(unfinished)} commands have no exit status", events))
    if record.overflow:
        found.append(Reason("too-much", "", f"more than the oracle keeps: {', '.join(sorted(record.overflow))}"))
    if findings.dropped:
        found.append(Reason("too-much", "", f"{findings.dropped} further effects are not listed"))


def _tier(record: Record, contract: Contract, state: Assurance, found: list[Reason]) -> None:
    tier = state.tier
    if tier not in TIERS or TIERS.index(tier) < TIERS.index(contract.minimum_tier):
        found.append(Reason("tier", "", f"assurance tier {tier[:20]} is below {contract.minimum_tier}"))
    for name, entry in state.classes.items():
        # What the tier itself lacks the tier's letter tells, what a proven witness did not look at its limit.
        gone = [witness for witness in REQUIRED.get(tier, {}).get(name, ()) if witness not in entry.proven]
        if entry.proven and not gone:
            continue
        missing = ", ".join(gone) or "every witness"
        events = tuple(record.witnesses[w][1].number for w in gone if w in record.witnesses)
        details = [record.witnesses[w][1].text("detail") for w in gone if w in record.witnesses]
        told = "; ".join(detail for detail in details if detail)
        told = f" ({told[:200]})" if told else ""
        found.append(Reason("witness-missing", name, f"not proven, or switched off: {missing}{told}", events))


def _limits(record: Record, found: list[Reason]) -> None:
    seen: set[str] = set()
    for event in record.limits:
        what = event.text("what")
        if what not in seen:
            seen.add(what)
            detail = event.text("d")
            told = f": {detail[:200]}" if detail else ""
            hidden = _HIDDEN_BY_LIMIT.get(what, "")
            found.append(Reason("limit", hidden, f"the bound {what[:40]} was reached{told}", (event.number,)))


def _flows(record: Record, found: list[Reason]) -> None:
    broken = [flow.number for flow in record.flows if flow.text("failed")]
    if broken:
        told = f"{len(broken)} transmissions could not be taken apart to their end"
        found.append(Reason("flow-unread", TRANSMISSION, told, tuple(broken[:32])))


def _packets(record: Record, found: list[Reason]) -> None:
    """The packet census knows every flow; each of them must be known by a call or by what the sink received."""
    if not record.packets:
        if "packets" in record.witnesses and record.witnesses["packets"][0] and "packets" not in record.ignored:
            found.append(Reason("census-missing", TRANSMISSION, "the packet census was proven and then never written"))
        return
    endpoints: set[tuple[str, int]] = set()
    hosts: set[str] = set()
    wildcards: set[int] = set()
    for event in record.nets:
        if event.result == "denied":
            continue  # it accounts for no packet
        host, port = canonical_host(event.text("addr")), event.integer("port")
        endpoints.add((host, port))
        hosts.add(host)
        if event.syscall in ("bind", "listen") and host in _WILDCARDS and port:
            wildcards.add(port)
    raw = any(event.syscall == "socket" for event in record.nets)
    for flow in record.flows:
        host, port = canonical_host(flow.text("dst")), flow.integer("port")
        endpoints.add((host, port))
        hosts.add(host)
    for service in record.header.mappings("services"):
        name, port_value = service.get("host"), service.get("port")
        if isinstance(name, str) and isinstance(port_value, int):
            endpoints.add((canonical_host(name), port_value))
    unexplained: list[str] = []
    events: list[int] = []
    for event in record.packets:
        drops = event.data.get("drops", 0)
        if drops != 0:
            told = f"the packet census dropped {drops!s:.20} packets"
            found.append(Reason("packets-dropped", TRANSMISSION, told, (event.number,)))
        for field, what in (("overflow", "beyond its table of flows"), ("unparsed", "that it could not take apart")):
            count = event.data.get(field, 0)
            if count != 0:
                told = f"the packet census counted {count!s:.20} packets {what}"
                found.append(Reason(f"packets-{field}", TRANSMISSION, told, (event.number,)))
        for entry in event.mappings("flows"):
            if entry.get("loopback") is True:
                continue  # to the world's own addresses: it stays inside, and answers of the sink are among it
            source, target = entry.get("src"), entry.get("dst")
            source = canonical_host(source) if isinstance(source, str) else ""
            target = canonical_host(target) if isinstance(target, str) else ""
            sport, dport, protocol = _port(entry.get("sport")), _port(entry.get("dport")), entry.get("proto")
            if (target, dport) in endpoints or (source, sport) in endpoints:
                continue
            if (dport in wildcards and _loopback(target)) or (sport in wildcards and _loopback(source)):
                continue
            if protocol not in ("tcp", "udp"):
                # Errors about known traffic, answers to known echoes, and the kernel's own neighbour talk.
                if target in hosts or source in hosts or raw or target.startswith("ff0"):
                    continue
                if source.startswith("127.") and target.startswith("127."):
                    continue
            if len(unexplained) < _MAX_SHOWN:
                unexplained.append(f"{protocol!s:.8} to {target[:64]} port {dport}")
                events.append(event.number)
    if unexplained:
        found.append(
            Reason(
                "packets-unexplained",
                TRANSMISSION,
                f"traffic that neither the sink nor a call accounts for: {'; '.join(unexplained)}",
                tuple(dict.fromkeys(events)),
            )
        )


def _loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


def _port(value: object) -> int:
    return value if isinstance(value, int) else 0


def _opens(record: Record, found: list[Reason]) -> None:
    """Tier R: an open that the supervisor did not make is explained by an exec, whose files the kernel opens itself."""
    executed: set[object] = set()
    for event, _, _ in record.execs:
        executed.add(event.path)
        inode = event.data.get("v")
        if isinstance(inode, list):
            executed.add(repr(inode))
    unexplained = []
    for event in record.fanotify:
        path = event.path
        if event.flag("exec"):
            if path in executed or repr(event.data.get("v")) in executed:
                continue
            if record.places.of(path) == places.RUNTIME and path not in record.changes:
                continue  # the loader, or the interpreter a "#!" names
        unexplained.append(event)
    if unexplained:
        shown = ", ".join(ascii(event.path)[1:81] for event in unexplained[:_MAX_SHOWN])
        found.append(
            Reason(
                "open-unseen",
                READ,
                f"{len(unexplained)} opens reached the file system past the supervisor: {shown}",
                tuple(event.number for event in unexplained[:32]),
            )
        )


def _processes(record: Record, found: list[Reason]) -> None:
    for event in record.pids:
        allocated = event.integer("allocated")
        accounted = event.integer("seen")  # threads are among them
        if allocated > accounted:
            found.append(
                Reason(
                    "process-unseen",
                    PROCESS,
                    f"the kernel gave out {allocated} process ids, {accounted} are accounted for",
                    (event.number,),
                )
            )
