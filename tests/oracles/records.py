"""Builds synthetic records: a whole, healthy world around the events of one test."""

from __future__ import annotations

from typing import Any

from aboveboard.contract import Contract
from aboveboard.evidence import Evidence, Verdict
from aboveboard.oracles.process import judge

WS = "/home/dev/work"
HOME = "/home/dev"
PYTHON = "/usr/bin/python3.11"
SECRET = "wJalrXUtnFEMI7K7MDENGbPxRfiCYEXAMPLEKEY1"
TOKEN = "hf_pQzRtYuIoPaSdFgHjKlZxCvBnMqWeRtY12"

Fields = dict[str, Any]

HEADER: Fields = {
    "e": "world",
    "v": 1,
    "tier": "U",
    "mode": "observe",
    "roots": {
        "runtime": ["/usr", "/lib", "/etc/alternatives"],
        "candidate": [f"{WS}/candidate"],
        "rival": [f"{WS}/candidates/other"],
        "home": [HOME],
        "tmp": ["/tmp", "/var/tmp", "/dev/shm"],
        "proc": ["/proc"],
        "dev": ["/dev"],
        "sys": ["/sys"],
        "workspace": [WS],
    },
    "decoys": [
        {"path": f"{HOME}/.aws/credentials", "kind": "cloud", "canary": SECRET},
        {"path": f"{HOME}/.ssh/id_ed25519", "kind": "ssh", "canary": "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAA"},
    ],
    "environ_canaries": [{"name": "HF_TOKEN", "canary": TOKEN, "decoy": True}],
    "services": [{"name": "model", "host": "10.0.2.9", "port": 8080}],
    "workspace": WS,
    "home": HOME,
}

WITNESSES = ("notify", "overlay", "sink", "packets", "pidns", "canary", "escape")


def record(
    *events: Fields, header: Fields | None = None, census: list[Fields] | None = None, **without: Any
) -> Evidence:
    """A record in which one command, Python, causes ``events``; ``flow`` events are in the packet census too.

    Keyword ``without`` names parts to leave out: ``end``, ``status``, ``packets``, ``pids``, or ``witness="sink"``.
    """
    flows = [
        {
            "proto": "udp" if e.get("proto") == "dns" else e.get("proto", "tcp"),
            "src": "127.0.0.1",
            "dst": e["dst"],
            "sport": 40000,
            "dport": e["port"],
            "n": 3,
        }
        for e in events
        if e["e"] == "flow" and census is None
    ]
    lines: list[Fields] = [{**HEADER, **(header or {})}]
    tier = lines[0]["tier"]
    names = (*WITNESSES, "fanotify") if tier == "R" else WITNESSES
    lines += [{"e": "witness", "name": name, "ok": name != without.get("witness")} for name in names]
    lines.append({"e": "command", "c": 1, "argv": ["python3", "tool.py"], "cwd": WS})
    lines.append(
        {
            "e": "exec",
            "p": 9,
            "c": 1,
            "n": "/usr/bin/python3",
            "x": PYTHON,
            "argv": ["python3", "tool.py"],
            "r": "passed",
            "main": True,
        }
    )
    lines.append({"e": "proc", "p": 9, "c": 1, "pp": 1, "x": PYTHON})
    body = [{"p": 9, "c": 1, **event} for event in events]
    late = {"change", "survivor", "fanotify", "end"}
    lines += [event for event in body if event["e"] not in late]
    if "status" not in without:
        lines.append({"e": "status", "c": 1, "code": 0})
    lines += [{**event, "p": event["p"] if event["e"] == "survivor" else 0} for event in body if event["e"] in late]
    if "packets" not in without:
        lines.append({"e": "packets", "flows": flows if census is None else census, "drops": without.get("drops", 0)})
    if "pids" not in without:
        lines.append({"e": "pids", "allocated": without.get("allocated", 4), "seen": 4, "threads": 0})
    if "end" not in without:
        counts: dict[str, int] = {}
        for line in lines:
            counts[line["e"]] = counts.get(line["e"], 0) + 1
        lines.append(
            {"e": "end", "reason": without.get("reason", "exit"), "lost": without.get("lost", 0), "counts": counts}
        )
    return Evidence.from_events(lines)


def verdict(*events: Fields, contract: Contract | None = None, **options: Any) -> Verdict:
    """The verdict on ``record(*events, ...)`` under the default contract or another."""
    return judge(record(*events, **options), contract or Contract.default())


def opened(path: str, access: str = "r", result: str = "ok", **more: Any) -> Fields:
    return {"e": "open", "s": "openat", "n": path, "a": access, "r": result, **more}


def changed(path: str, what: str = "created", kind: str = "file", **more: Any) -> Fields:
    return {"e": "change", "x": path, "w": what, "k": kind, **more}


def written(path: str, what: str = "created", **more: Any) -> tuple[Fields, Fields]:
    """An open for writing and the change it made."""
    return opened(path, "wct" if what == "created" else "w"), changed(path, what, **more)


def renamed(call: str, source: str, target: str) -> Fields:
    return {"e": "fs", "s": call, "n": source, "to": target, "r": "ok"}


def meta(path: str, detail: str, result: str = "passed", call: str = "fchmodat") -> Fields:
    return {"e": "meta", "s": call, "n": path, "d": detail, "r": result}


def executed(path: str, *argv: str, pid: int = 20, result: str = "passed", **more: Any) -> tuple[Fields, Fields]:
    """A forked child of the command that runs a program."""
    return (
        {"e": "proc", "p": pid, "pp": 9, "x": PYTHON},
        {"e": "exec", "p": pid, "n": path, "argv": list(argv) or [path], "r": result, **more},
    )


def net(call: str, addr: str, port: int = 0, typ: str = "stream", fam: str = "inet", **more: Any) -> Fields:
    return {"e": "net", "s": call, "fam": fam, "typ": typ, "addr": addr, "port": port, "r": "passed", **more}


def flow(dst: str, port: int, proto: str = "tcp", length: int = 10, **more: Any) -> Fields:
    return {"e": "flow", "proto": proto, "dst": dst, "port": port, "src": ["127.0.0.1", 40000], "len": length, **more}


def http(method: str = "POST", path: str = "/", host: str = "", body: int = 10) -> Fields:
    return {"method": method, "path": path, "host": host, "headers": {}, "body_len": body}


def query(name: str, **more: Any) -> Fields:
    return flow("10.0.2.3", 53, "dns", dns={"name": name, "type": "A"}, **more)


def escape(call: str, detail: str = "", **more: Any) -> Fields:
    return {"e": "escape", "s": call, "d": detail, "r": "denied", **more}
