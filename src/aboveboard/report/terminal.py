"""Verdicts, traces and vet tables for a terminal: colour and boxes on a TTY, the same words without them elsewhere."""

from __future__ import annotations

import json as json_module
import sys
from typing import IO, TYPE_CHECKING

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from aboveboard.errors import printable
from aboveboard.evidence.verdict import ALLOWED, ATTEMPT, CLEAN, FORBIDDEN, INDETERMINATE
from aboveboard.report.summary import RUNTIME, Summary, summarise
from aboveboard.vet.compare import Sameness

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from aboveboard.evidence import Effect, Evidence, Reason, Verdict
    from aboveboard.vet.payloads import Payload
    from aboveboard.vet.results import Observed, TargetReport, VetReport

PLAIN_WIDTH = 120
"""Columns when the output is not a terminal."""
MAX_PANELS = 5
"""Payloads shown of one target."""
MAX_NAMES = 4
MAX_ROWS = 40
"""Rows of one list on a screen; JSON and HTML have all."""

_STYLE = {CLEAN: "bold green", FORBIDDEN: "bold red", INDETERMINATE: "bold yellow"}
_SIGN = {CLEAN: "✓", FORBIDDEN: "✗", INDETERMINATE: "?"}
_SAMENESS = {
    Sameness.IDENTICAL: ("same", "green"),
    Sameness.EQUIVALENT: ("same", "green"),
    Sameness.DIFFERENT: ("different", "yellow"),
    Sameness.MISSING: ("none", "dim"),
}


def console(file: IO[str] | None = None) -> Console:
    """A console that is plain, and of a fixed width, unless ``file`` is a terminal. Markup is off: texts are
    hostile."""
    stream = sys.stdout if file is None else file
    tty = hasattr(stream, "isatty") and stream.isatty()
    return Console(file=stream, width=None if tty else PLAIN_WIDTH, markup=False, emoji=False, highlight=False)


def print_json(value: object, file: IO[str] | None = None) -> None:
    """One JSON object, ASCII only: a path may hold bytes that no terminal encoding has."""
    print(json_module.dumps(value, indent=2, ensure_ascii=True), file=sys.stdout if file is None else file)


def print_verdict(
    verdict: Verdict, evidence: Evidence | None = None, *, json: bool = False, file: IO[str] | None = None
) -> None:
    """The verdict of one world: the answer, the effects behind it, and the reasons for doubt.

    With ``evidence`` the payloads of forbidden effects are shown too. ``json`` prints :meth:`Verdict.to_dict` instead.
    """
    if json:
        print_json(verdict.to_dict(), file)
        return
    console(file).print(Group(*_verdict_parts(verdict, evidence)))


def print_trace(
    evidence: Evidence, verdict: Verdict | None = None, *, json: bool = False, file: IO[str] | None = None
) -> None:
    """What one world did: processes, files by class, changes, network, and the verdict when there is a contract.

    ``json`` prints the verdict's stable object when there is one.
    """
    if json and verdict is not None:
        print_json(verdict.to_dict(), file)
        return
    out = console(file)
    out.print(Group(*_trace_parts(summarise(evidence))))
    if verdict is not None:
        out.print(Group(Text(), *_verdict_parts(verdict, evidence)))


def print_vet(report: VetReport, *, json: bool = False, file: IO[str] | None = None) -> None:
    """The table of a vetting and, below it, what only one target did. ``json`` prints :meth:`VetReport.to_dict`."""
    if json:
        print_json(report.to_dict(), file)
        return
    console(file).print(Group(*_vet_parts(report)))


def verdict_text(verdict: str) -> Text:
    """``✗ forbidden`` in its colour."""
    return Text(f"{_SIGN.get(verdict, '?')} {verdict}", style=_STYLE.get(verdict, ""))


def _vet_parts(report: VetReport) -> Iterable[RenderableType]:
    several = len(report.targets) > 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("target", overflow="fold")
    table.add_column("output", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("phase", no_wrap=True)
    table.add_column("effect", overflow="fold", ratio=1)
    for target in report.targets:
        rows = _effect_rows(target)
        first, *more = rows or [("", Text("nothing the contract forbids", style="dim"))]
        word, style = _SAMENESS[target.sameness]
        if not several and target.sameness is not Sameness.MISSING:
            word = "yes"
        table.add_row(
            Text(printable(target.label), style="bold"), Text(word, style=style), verdict_text(target.verdict), *first
        )
        for phase, what in more:
            table.add_row("", "", "", phase, what)
    yield table
    shown = [target for target in report.targets if target.verdict != CLEAN or target.remarks or target.released]
    for target in shown:
        yield from _target_details(target, several)
    yield _vet_foot(report)


def _effect_rows(target: TargetReport) -> list[tuple[str, Text]]:
    rows = [
        (printable(entry.phase), _effect_text(entry.effect, entry, len(target.trials)))
        for entry in target.forbidden[:MAX_ROWS]
    ]
    if len(target.forbidden) > MAX_ROWS:
        rows.append(("", Text(f"and {len(target.forbidden) - MAX_ROWS} more", style="dim")))
    if not rows and target.verdict == INDETERMINATE:
        rows = [("", Text(printable(_reason(reason)), style="yellow")) for reason in target.reasons[:3]]
    return rows


def _effect_text(effect: Effect, entry: Observed | None = None, trials: int = 1) -> Text:
    text = Text(printable(effect.name), style="red" if effect.disposition == FORBIDDEN else "")
    if effect.level == ATTEMPT:
        text.append(" (attempt)", style="dim")
    text.append(f"  {printable(effect.subject)[:300]}", style="default")
    if effect.times > 1:
        text.append(f"  ×{effect.times}", style="dim")
    if effect.canaries:
        text.append(f"  carries {_planted(effect.canaries)}", style="bold red")
    if entry is not None and len(entry.environments) < trials:
        text.append(f"  only in {', '.join(entry.environments)}", style="magenta")
    return text


def _target_details(target: TargetReport, several: bool) -> Iterable[RenderableType]:
    payloads = [payload for entry in target.forbidden for payload in entry.payloads]
    # A name that was looked up stands in the table already; the same bytes sent twice are shown once.
    different = {
        (entry.destination, entry.sha256, entry.summary): entry for entry in payloads if entry.protocol != "dns"
    }
    for payload in list(different.values())[:MAX_PANELS]:
        yield _payload_panel(payload, f"sent by {target.label}")
    if several and target.forbidden:
        unique = set(target.only_here)
        own = sum(entry.identity in unique for entry in target.forbidden)
        if own == len(target.forbidden):
            yield Text(f"{printable(target.label)} alone did this: no other target has any of these effects.")
        elif own:
            yield Text(
                f"{printable(target.label)}: {own} of its {len(target.forbidden)} forbidden effects are its alone."
            )
    if target.verdict == FORBIDDEN and target.reasons:
        yield _lines(f"also uncertain about {target.label}", [_reason(reason) for reason in target.reasons])
    if target.remarks:
        yield _lines(f"about {target.label}", target.remarks)
    if target.released is not None:
        kept = target.released
        yield _lines(
            f"{target.label} released to {kept.folder}",
            [name for name, _ in kept.files] or ["nothing: no declared output"],
        )
        if kept.withheld:
            yield _lines("withheld", [f"{name}: {reason}" for name, reason in kept.withheld])


def _vet_foot(report: VetReport) -> Text:
    text = Text()
    text.append_text(verdict_text(report.verdict))
    outputs = [target.sameness for target in report.targets]
    if len(outputs) > 1:
        same = all(value in (Sameness.IDENTICAL, Sameness.EQUIVALENT) for value in outputs)
        forbidden = sum(target.verdict == FORBIDDEN for target in report.targets)
        text.append(
            f"  {len(outputs)} targets, {'the same output' if same else 'different outputs'}, {forbidden} forbidden"
        )
    text.append(f"  {report.seconds:.1f} s", style="dim")
    tiers = sorted({target.assurance.tier for target in report.targets if target.assurance.tier})
    text.append(f"  tier {'/'.join(tiers) or '-'}", style="dim")
    environments = list(dict.fromkeys(trial.environment for target in report.targets for trial in target.trials))
    if len(environments) > 1:
        text.append(f"  environments {', '.join(environments)}", style="dim")
    return text


def _body(excerpt: str) -> str:
    """The start of a payload: as text when it is text, else as a hex dump's first line would say it."""
    odd = sum(not (char.isprintable() or char in "\r\n\t") for char in excerpt)
    if odd * 5 > len(excerpt):
        raw = excerpt.encode("utf-8", "surrogateescape")
        return raw[:64].hex(" ") + (" …" if len(raw) > 64 else "")
    return printable(excerpt[:600]) + ("…" if len(excerpt) > 600 else "")


def _planted(canaries: Sequence[str]) -> str:
    """``3 planted secrets: A, B, C`` from ``id/encoding`` texts; one secret may be found in several encodings."""
    names = list(dict.fromkeys(canary.rpartition("/")[0] or canary for canary in canaries))
    shown = ", ".join(name.removeprefix("env:") for name in names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{len(names)} planted secret{'s' * (len(names) != 1)}: {printable(shown)[:200]}{more}"


def _payload_panel(payload: Payload, title: str) -> RenderableType:
    head = Text()
    head.append(printable(f"{payload.protocol} {payload.destination}"), style="bold")
    head.append(f"  {printable(payload.summary)}  {payload.bytes:,} bytes")
    if payload.canaries:
        head.append(f"  carries {_planted(payload.canaries)}", style="bold red")
    body = _body(payload.excerpt)
    parts: list[RenderableType] = [head]
    if body:
        parts.append(Text(body, style="dim"))
    return Panel(Group(*parts), title=Text(printable(title)), title_align="left", border_style="red", box=box.ROUNDED)


def _verdict_parts(verdict: Verdict, evidence: Evidence | None) -> Iterable[RenderableType]:
    head = verdict_text(verdict.verdict)
    head.append(f"  {verdict.events:,} events, tier {verdict.assurance.tier or '-'}", style="dim")
    partial = [name for name, entry in verdict.assurance.classes.items() if entry.status != "complete"]
    if partial:
        head.append(f"; not fully watched: {printable(', '.join(partial))}", style="yellow")
    yield head
    shown = [effect for effect in verdict.effects if effect.disposition == FORBIDDEN]
    if shown:
        yield _effect_table(shown)
    if evidence is not None and shown:
        from aboveboard.vet.results import observe

        payloads = [p for row in observe(evidence, verdict, "") if row.effect in shown for p in row.payloads]
        for payload in list(dict.fromkeys(payloads))[:MAX_PANELS]:
            yield _payload_panel(payload, "sent")
    if verdict.reasons:
        yield _lines(
            "why not clean" if verdict.verdict == INDETERMINATE else "also uncertain", map(_reason, verdict.reasons)
        )
    allowed = sum(effect.disposition == ALLOWED for effect in verdict.effects)
    noted = sum(effect.disposition == "noted" for effect in verdict.effects)
    if allowed or noted:
        yield Text(f"  {allowed} allowed, {noted} noted: --json has them all", style="dim")
    if verdict.notes:
        yield _lines("notes", verdict.notes)


def _effect_table(effects: Sequence[Effect]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("kind", "phase", "effect", "program"):
        table.add_column(name, overflow="fold", no_wrap=name in ("kind", "phase"))
    for effect in effects[:MAX_ROWS]:
        table.add_row(
            str(effect.kind),
            printable(effect.phase),
            _effect_text(effect),
            Text(printable(effect.program), style="dim"),
        )
    if len(effects) > MAX_ROWS:
        table.add_row("", "", Text(f"and {len(effects) - MAX_ROWS} more", style="dim"), "")
    return table


def _trace_parts(summary: Summary) -> Iterable[RenderableType]:
    yield Text("processes", style="bold")
    for pid in summary.roots[:MAX_ROWS]:
        tree = Tree(_process_text(summary, pid), guide_style="dim")
        _grow(tree, summary, pid, {pid})
        yield Padding(tree, (0, 0, 0, 2))
    yield from _trace_files(summary)
    if summary.changes:
        yield _lines(
            "changed",
            [f"{what:<9} {path}" + (f"  {size:,} bytes" if size else "") for what, path, size in summary.changes],
        )
    if summary.names:
        yield _lines("names looked up", summary.names)
    if summary.flows:
        yield Text("sent", style="bold")
        for payload in summary.flows[:MAX_PANELS]:
            yield _payload_panel(payload, "")
        if len(summary.flows) > MAX_PANELS:
            yield Text(f"  and {len(summary.flows) - MAX_PANELS} more flows", style="dim")
    if summary.refusals:
        yield _lines("refused calls", [f"{name} ×{count}" for name, count in summary.refusals.items()])
    if summary.limits:
        yield _lines("limits reached", summary.limits)
    cut = "; shortened" if summary.cut else ""
    yield Text(f"{summary.events:,} events in {summary.seconds:.2f} s, tier {summary.tier or '-'}{cut}", style="dim")


def _trace_files(summary: Summary) -> Iterable[RenderableType]:
    if summary.decoys:
        yield _lines("planted secrets opened", summary.decoys, style="red")
    for name, files in sorted(summary.files.items(), key=lambda item: item[0] == RUNTIME):
        if not files.read:
            continue
        if name == RUNTIME:
            yield Text.assemble(("read ", "bold"), f"{len(files.read):,} files of the runtime")
        else:
            yield _lines(f"read ({name})", list(files.read))


def _process_text(summary: Summary, pid: int) -> Text:
    process = summary.processes[pid]
    words = " ".join(process.argv) or (process.programs[-1] if process.programs else f"process {pid}")
    text = Text(printable(words)[:160])
    if process.status is not None:
        text.append(f"  exit {process.status}", style="dim" if process.status == 0 else "yellow")
    if process.survived:
        text.append("  still alive at the end", style="red")
    return text


def _grow(tree: Tree, summary: Summary, pid: int, seen: set[int]) -> None:
    pending = [(tree, pid)]
    while pending:
        branch, parent = pending.pop()
        for child in summary.processes[parent].children:
            # Forged records may hold cycles.
            if child not in seen and len(seen) < MAX_ROWS * 4:
                seen.add(child)
                pending.append((branch.add(_process_text(summary, child)), child))


def _lines(title: str, lines: Iterable[str], *, style: str = "") -> RenderableType:
    rows = list(lines)
    text = Text(printable(title), style=f"bold {style}".strip())
    for line in rows[:MAX_ROWS]:
        text.append(f"\n  {printable(line)[:400]}", style=style or "not bold")
    if len(rows) > MAX_ROWS:
        text.append(f"\n  and {len(rows) - MAX_ROWS} more", style="dim not bold")
    return text


def _reason(reason: Reason) -> str:
    return f"{reason.code}: {reason.detail}" if reason.detail else reason.code
