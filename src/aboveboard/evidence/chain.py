"""The hash chain that ties the lines of an event log together (``docs/reference/evidence.md``, "The chain").

Writer (in the world) and reader (here) share these functions, so there is one definition of what is hashed.
"""

from __future__ import annotations

from binascii import b2a_base64
from hashlib import sha256
from typing import NamedTuple

#: What the first line takes for the hash of the line before it.
GENESIS = b"A" * 22

SEAL = b',"h":"'
_END = b'"}'
#: Length of the sealed end of a line without its newline: seal, hash, closing quote and brace.
SEAL_BYTES = len(SEAL) + len(GENESIS) + len(_END)

_TO_URLSAFE = bytes.maketrans(b"+/", b"-_")


def chain_hash(previous: bytes, body: bytes) -> bytes:
    """Hash of one line: 22 ASCII bytes, the first 128 bits of SHA-256(previous || body) in unpadded URL-safe base64.

    ``previous`` is the 22-byte hash of the line before (``GENESIS`` for the first); ``body`` is the line up to, not
    including, ``,"h":"``.
    """
    return b2a_base64(sha256(previous + body).digest()[:16], newline=False)[:22].translate(_TO_URLSAFE)


def seal(previous: bytes, body: bytes) -> tuple[bytes, bytes]:
    """The finished line with its newline, and its hash (the new head). ``body`` is a JSON object without its ``}``."""
    head = chain_hash(previous, body)
    return body + SEAL + head + _END + b"\n", head


def unseal(line: bytes) -> tuple[bytes, bytes] | None:
    """Body and hash of a line without its newline, or None when the line does not end in a seal."""
    start = len(line) - SEAL_BYTES
    if start < 1 or not line.startswith(SEAL, start) or not line.endswith(_END):
        return None
    return line[:start], line[start + len(SEAL) : -len(_END)]


class ChainReport(NamedTuple):
    """What following the chain through a log has shown.

    ``ok``: every line is sealed, in sequence, and chained to the one before. ``events``: lines in the unbroken part.
    ``head``: hash of the last of them. ``first_bad_line``: 1-based, or None. ``complete``: the last line is an ``end``
    event and nothing follows it. ``torn``: the last line stops half-way, as a killed supervisor leaves it; a torn line
    makes a log incomplete, not broken.
    """

    ok: bool
    events: int
    head: str
    first_bad_line: int | None
    complete: bool
    torn: bool = False
