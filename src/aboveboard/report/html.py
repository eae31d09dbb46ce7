"""A vetting as one self-contained HTML page: the table, and every effect with the events that prove it.

The page has no script and loads nothing; a content security policy says so to the browser, because the texts in it were
written by the code that was vetted.
"""

from __future__ import annotations

import html
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from aboveboard.errors import printable
from aboveboard.evidence.verdict import FORBIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aboveboard.vet.payloads import Payload
    from aboveboard.vet.results import Observed, TargetReport, VetReport

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--bad:#c62828;--good:#2e7d32;--doubt:#b26a00}
@media(prefers-color-scheme:dark){:root{--bad:#ff8a80;--good:#81c784;--doubt:#ffcc80}}
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem;border-bottom:1px solid var(--line)}
.table{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600}code,pre{font:13px/1.45 ui-monospace,monospace;overflow-wrap:anywhere}
pre{white-space:pre-wrap;border-left:3px solid var(--bad);padding:.5rem 1rem;margin:.5rem 0}
.forbidden{color:var(--bad);font-weight:600}.clean{color:var(--good);font-weight:600}
.indeterminate{color:var(--doubt);font-weight:600}.quiet{opacity:.7}
"""
_COLUMNS = ("phase", "effect", "subject", "says", "why", "events", "environments")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_html(report: VetReport, path: Path | str) -> None:
    """Write the page, all or nothing. Raises OSError."""
    path = Path(path)
    descriptor, staged = tempfile.mkstemp(prefix=".report-", dir=path.absolute().parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(render_vet(report))
            os.fchmod(stream.fileno(), 0o644)
        os.replace(staged, path)
    except BaseException:
        os.unlink(staged)
        raise


def render_vet(report: VetReport) -> str:
    """The page as text."""
    plural = f"{len(report.targets)} target{'s' * (len(report.targets) != 1)}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>Aboveboard: {_text(report.verdict)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Vetting of {plural}: {_verdict(report.verdict)}</h1>",
        '<div class="table"><table><tr><th>target<th>output<th>verdict<th>forbidden effects<th>tier</tr>',
    ]
    for number, target in enumerate(report.targets):
        effects = "<br>".join(
            f"{_text(e.phase)}: {_text(e.effect.name)} <code>{_text(e.effect.subject)}</code>" for e in target.forbidden
        )
        parts.append(
            f'<tr><td><a href="#t{number}">{_text(target.label)}</a><td>{_text(target.sameness.value)}'
            f"<td>{_verdict(target.verdict)}<td>{effects or '<span class=quiet>none</span>'}"
            f"<td>{_text(target.assurance.tier)}</tr>"
        )
    parts.append("</table></div>")
    for number, target in enumerate(report.targets):
        parts += _target(target, number)
    inputs = ", ".join(f"{_text(name)} <code>{digest}</code>" for name, digest in report.inputs)
    parts.append(
        f'<p class="quiet">Contract <code>{_text(report.contract)}</code>. Inputs: {inputs or "none"}. '
        f"{report.seconds:.1f} s.</p></body></html>\n"
    )
    return "".join(parts)


def _target(target: TargetReport, number: int) -> Iterable[str]:
    prepared = target.prepared
    yield f'<h2 id="t{number}">{_text(target.label)} {_verdict(target.verdict)}</h2>'
    yield f'<p class="quiet">{_text(prepared.target.kind.value)} <code>{_text(prepared.sha256)}</code></p>'
    for entry in target.forbidden:
        for payload in entry.payloads:
            yield _payload(payload)
    if target.effects:
        yield f'<div class="table"><table><tr>{"".join(f"<th>{name}" for name in _COLUMNS)}</tr>'
        yield from (_row(entry, entry.identity in set(target.only_here)) for entry in target.effects)
        yield "</table></div>"
    if target.reasons:
        yield "<p>Doubts:</p><ul>"
        yield from (f"<li><code>{_text(reason.code)}</code> {_text(reason.detail)}" for reason in target.reasons)
        yield "</ul>"
    if target.notes:
        yield "<p>Notes:</p><ul>"
        yield from (f"<li>{_text(note)}" for note in target.notes)
        yield "</ul>"
    yield '<div class="table"><table><tr><th>environment<th>command<th>ended with<th>seconds<th>evidence</tr>'
    for trial in target.trials:
        for ran in trial.ran:
            yield (
                f"<tr><td>{_text(trial.environment)}<td>{_text(ran.phase)}: {_text(ran.name)}"
                f"<td>{'timeout' if ran.timed_out else ran.returncode}<td>{ran.seconds:.2f}"
                f"<td>{'<br>'.join(_text(folder) for folder in trial.evidence)}</tr>"
            )
    yield "</table></div>"


def _row(entry: Observed, alone: bool) -> str:
    effect = entry.effect
    often = f" ×{effect.times}" if effect.times > 1 else ""
    mark = " <strong>only here</strong>" if alone else ""
    return (
        f"<tr><td>{_text(entry.phase)}<td>{effect.kind} {_text(effect.name)}"
        f"{' (attempt)' if effect.level == 'attempt' else ''}{often}"
        f"<td><code>{_text(effect.subject)}</code>{mark}"
        f'<td class="{FORBIDDEN if effect.disposition == FORBIDDEN else "quiet"}">{_text(effect.disposition)}'
        f"<td>{_text(effect.rule)}<td>{', '.join(map(str, effect.events))}"
        f"<td>{_text(', '.join(entry.environments))}</tr>"
    )


def _payload(payload: Payload) -> str:
    canaries = (
        f" <span class=forbidden>planted values: {_text(', '.join(payload.canaries))}</span>"
        if payload.canaries
        else ""
    )
    return (
        f"<p>Sent to <code>{_text(payload.destination)}</code> ({_text(payload.protocol)}, {payload.bytes:,} bytes): "
        f"<code>{_text(payload.summary)}</code>{canaries}</p><pre>{_text(payload.excerpt)}</pre>"
    )


def _verdict(verdict: str) -> str:
    return f'<span class="{_text(verdict)}">{_text(verdict)}</span>'


def _text(text: str) -> str:
    return html.escape(printable(text))
