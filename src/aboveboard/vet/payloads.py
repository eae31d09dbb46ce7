"""What left a candidate through the network, as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aboveboard.errors import EvidenceError

if TYPE_CHECKING:
    from aboveboard.evidence.event import Event
    from aboveboard.evidence.store import Evidence

MAX_READ_BYTES = 64 << 10
"""Of a transcript, to find where the body starts."""
EXCERPT_CHARS = 2_000


class Payload(NamedTuple):
    """What the sink received in one flow. Texts are the candidate's: escape before showing."""

    protocol: str
    destination: str
    """``name:port`` when the sink gave out the address for a name, else ``address:port``."""
    bytes: int
    sha256: str
    summary: str
    """Request line, DNS question or TLS server name; empty for other bytes."""
    excerpt: str
    """The beginning of the body (of an HTTP request) or of the bytes, undecodable ones as surrogates."""
    canaries: tuple[str, ...]
    """``id/encoding`` of planted values found in it."""
    file: str
    """Transcript in the evidence folder's ``payloads/``; empty when there is none."""

    def to_dict(self) -> dict[str, object]:
        return {**self._asdict(), "canaries": list(self.canaries)}


def payload_of(event: Event, evidence: Evidence | None = None) -> Payload:
    """The reader's view of a ``flow`` event; with ``evidence`` the excerpt comes from the transcript, else from its
    head."""
    port = event.integer("port")
    name = event.text("name")
    host = name or event.text("dst")
    http, dns, tls = event.mapping("http"), event.mapping("dns"), event.mapping("tls")
    if http:
        summary = f"{http.get('method', '')} {http.get('path', '')}"
        named = http.get("host")
        # The Host header is the candidate's claim, the address it dialled is a fact: show where they differ.
        if isinstance(named, str) and named and named.partition(":")[0] != host:
            summary += f" (Host: {named})"
    elif dns:
        summary = f"{dns.get('type', '')} {dns.get('name', '')}"
    else:
        summary = str(tls.get("sni", "")) if tls else ""
    file = event.text("file")
    text = event.text("head")
    if file and evidence is not None:
        try:
            text = evidence.payload(file, MAX_READ_BYTES).decode("utf-8", "surrogateescape")
        except EvidenceError:
            file = ""
    if http:
        text = text.partition("\r\n\r\n")[2]
    elif dns or tls:
        # Nothing but what the summary says, and ciphertext.
        text = ""
    return Payload(
        event.text("proto"),
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        event.integer("len"),
        event.text("sha256"),
        summary.strip()[:500],
        text[:EXCERPT_CHARS],
        tuple(f"{hit.get('id', '')}/{hit.get('enc', '')}" for hit in event.mappings("canaries")),
        file,
    )
