"""Finds planted values and the user's own input in bytes that left, or were left behind.

A thief seldom sends a secret as it is. Instead of listing every encoding of every value, the scanner undoes encodings:
it derives *views* of the data (base64 runs decoded, compressed streams inflated, separators taken out ...), looks for
the plain values in each, and does so again on the views, up to three layers deep. One pass over a view costs the same
whatever the layers, so the work is bounded by a byte budget, and hostile data (bombs, nesting) ends at the budget.

Most data holds nothing, and that has to be cheap to see: a view is made only where the data has the alphabet for it in
a run long enough to hold a value, what only repeats is looked at once, and one look at every eighth byte position
rules out all values together.

What it cannot see is encryption, and encodings it does not know: a hit is proof, the absence of one is not.
"""

from __future__ import annotations

import bz2
import lzma
import re
import sys
import zlib
from binascii import Error as BinasciiError
from binascii import a2b_base64, unhexlify
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MAX_DEPTH = 3
#: Shorter values would be found by accident.
MIN_VALUE_BYTES = 8
#: A common run of at least this many bytes counts as input content.
SHINGLE_BYTES = 24
#: Input kept for comparison, over all files; more than this is sampled evenly.
MAX_INPUT_BYTES = 512 << 10

_MAX_BUDGET = 128 << 20
_MAX_INFLATED = 4 << 20
#: Compressed streams of one buffer: that gave much, and that were tried. In noise a stream seems to start every few
#: thousand bytes, and gives a few bytes or none; these must not use up what real ones need.
_MAX_STREAMS = 64
_MAX_TRIED = 512
_MUCH = 256
#: Comparisons of a word of the data with its places in the input: in all, and for one word.
_MAX_CANDIDATES = 20_000
_MAX_PLACES = 512
_LZMA_MEMORY = 64 << 20
_MAX_JOINED = 128 << 10
_MAX_REVERSED = 256 << 10
_MIN_RUN = 16
#: Up to this size, looking up every word of the data is cheaper than preparing every word of the values.
_FEW_BYTES = 1024
#: Repetition is looked for in blocks of this size; a multiple of every encoding's unit.
_BLOCK = 4096


def _alphabet(characters: bytes) -> bytes:
    """A table for ``bytes.translate``: 1 for the characters, 0 for all others."""
    return bytes(byte in characters for byte in range(256))


_UPPER, _DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0123456789"
_BASE64 = _alphabet(_UPPER + _UPPER.lower() + _DIGITS + b"+/_-")
_BASE32 = (_alphabet(_UPPER + b"234567"), _alphabet(_UPPER.lower() + b"234567"))
_HEX = _alphabet(_DIGITS + b"abcdefABCDEF")
#: 1 for what every text encoding of a value is made of, its line ends and separators included; 0 for NUL, 2 for others.
_TEXT = bytes(byte and 2 - (0x20 <= byte < 0x7F or byte in b"\t\r\n") for byte in range(256))
_WIDE_RUN = 8
_WIDE_TEXT = (b"\1\0" * _WIDE_RUN, b"\1\0\0\0" * _WIDE_RUN)

_PERCENT = re.compile(rb"%([0-9a-fA-F]{2})")
_BACKSLASH = re.compile(rb"\\(?:u00([0-9a-fA-F]{2})|x([0-9a-fA-F]{2})|([\\/\"'nrtbf]))")
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
#: (bytes that give a compressed stream away, how far into the stream they stand).
_STREAMS = (
    (b"\x1f\x8b\x08", 0), (b"x\x9c", 0), (b"x\x01", 0), (b"x\x5e", 0), (b"x\xda", 0), (b"1AY&SY", 4),
    (b"\xfd7zXZ\0", 0), (b"]\0\0", 0), (b"PK\x03\x04", 0),
)  # fmt: skip
#: Removed to put together again what was cut over labels, lines, cells or quoted pieces; no character of an encoding.
_GLUE = b" \t\r\n.,:;|&\"'"
#: Removed from data and value alike before the folded comparison.
_FOLD = bytes(byte for byte in range(128) if not chr(byte).isalnum())
_LOWER = bytes(range(256)).lower()
_ROT13 = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", b"NOPQRSTUVWXYZABCDEFGHIJKLMnopqrstuvwxyzabcdefghijklm"
)
_URLSAFE = bytes.maketrans(b"-_", b"+/")
_TO_BASE_32 = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789ABCDEFGHIJKLMNOPQRSTUV")


class Hit(NamedTuple):
    """A value that was found.

    ``id`` names the canary, or ``input:NAME`` for input content. ``enc`` is how it was hidden, outermost layer first,
    joined by ``+``: ``raw``, ``base64``, ``base64+gzip``. ``at`` is the part it was found in when parts were given.
    """

    id: str
    enc: str
    at: str = ""

    def to_dict(self) -> dict[str, str]:
        """The form of the ``canaries`` field of an event."""
        fields = {"id": self.id, "enc": self.enc}
        if self.at:
            fields["at"] = self.at
        return fields


class InputIndex:
    """Recognises content of the user's input files: any common run of 24 bytes or more with enough variety.

    A common run of 24 bytes starts an 8-byte word at 17 places. It is enough to index the words of the inputs at every
    ``stride``-th place and to look up the words of the data at ``stride`` of the eight offsets, which runs at C speed;
    the few candidates are then compared byte by byte. Small inputs are indexed densely (fast), large ones sparsely
    (small).
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        names: list[str] = []
        starts: list[int] = []
        pool = bytearray()
        left = len(files)
        # The smallest first: what they leave of their share goes to the larger ones.
        for name, content in sorted(files.items(), key=lambda item: len(item[1])):
            share = max(4096, (MAX_INPUT_BYTES - len(pool)) // left)
            left -= 1
            for piece in _sample(content, share):
                if len(pool) + len(piece) <= MAX_INPUT_BYTES:
                    names.append(f"input:{name}")
                    starts.append(len(pool))
                    # Eight zeros on either side keep a run from reaching over into the next file.
                    pool += piece + bytes(8)
        self._names = names
        self._starts = starts
        self._pool = bytes(pool)
        self._stride = next((s for s in (1, 2, 4) if len(pool) <= s * (64 << 10)), 8)
        #: Word → its last place in the pool, and place → the place of the same word before it.
        self._words: dict[int, int] = {}
        self._before: dict[int, int] = {}
        for offset in range(0, 8, self._stride):
            for index, word in enumerate(_words(self._pool, offset)):
                place = offset + index * 8
                # Padding and rulers are in every file; they identify nothing.
                if len(set(self._pool[place : place + 8])) >= 4:
                    known = self._words.get(word)
                    if known is not None:
                        self._before[place] = known
                    self._words[word] = place

    def __bool__(self) -> bool:
        return bool(self._words)

    def find(self, data: bytes) -> Iterator[str]:
        """Ids (``input:NAME``) of the inputs whose content is in ``data``; each at most once."""
        words = self._words
        if not words or len(data) < SHINGLE_BYTES:
            return
        found: set[str] = set()
        checked = 0
        for offset in range(self._stride):
            view = _words(data, offset)
            if words.keys().isdisjoint(view):
                continue
            for index, word in enumerate(view):
                place = words.get(word)
                tries = _MAX_PLACES
                while place is not None and tries:
                    tries -= 1
                    checked += 1
                    if _common_run(data, offset + index * 8, self._pool, place):
                        name = self._names[bisect_right(self._starts, place) - 1]
                        if name not in found:
                            found.add(name)
                            yield name
                        break
                    place = self._before.get(place)
                if checked > _MAX_CANDIDATES:
                    return


class Scanner:
    """Looks for a fixed set of values, and for input content, in data of any size up to the caller's bound.

    Parameters
    ----------
    canaries
        id → planted value (text or bytes, at least 8 bytes).
    inputs
        Index of the user's input, when its content matters as well.

    Raises
    ------
    ValueError
        A value is shorter than 8 bytes and would be found by accident.
    """

    def __init__(self, canaries: Mapping[str, bytes | str], inputs: InputIndex | None = None) -> None:
        self._values: list[tuple[str, bytes]] = []
        self._inputs = inputs if inputs else None
        self._forms: _Forms | None = None
        longest = SHINGLE_BYTES
        shortest = SHINGLE_BYTES if inputs else MAX_INPUT_BYTES
        for name, given in canaries.items():
            value = given.encode("utf-8", "surrogateescape") if isinstance(given, str) else bytes(given)
            if len(value) < MIN_VALUE_BYTES:
                raise ValueError(f"canary {name!a} has {len(value)} bytes; plant a value of {MIN_VALUE_BYTES} or more")
            longest = max(longest, len(value))
            shortest = min(shortest, len(value))
            self._values.append((name, value))
        #: Bytes of two neighbouring windows that must overlap: the longest value in its longest encoding.
        self.overlap = min(longest * 4 + 64, 64 << 10)
        self._shortest = shortest

    def scan(self, data: bytes, at: str = "") -> tuple[Hit, ...]:
        """Every value found in ``data``, each once per way of hiding; ``at`` is copied into the hits."""
        if not self._values and self._inputs is None:
            return ()
        return tuple(_Pass(self, bytes(data), at).run())

    def scan_parts(self, parts: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> tuple[Hit, ...]:
        """Scans named parts (``query``, ``header``, ``body`` ...) one by one, then joined for values cut over them."""
        items = list(parts.items() if hasattr(parts, "items") else parts)
        hits: dict[tuple[str, str], Hit] = {}
        for at, data in items:
            for hit in self.scan(data, at):
                hits.setdefault((hit.id, hit.enc), hit)
        whole = b"".join(data for _, data in items)
        if len(items) > 1 and len(whole) <= _MAX_JOINED:
            seen = {hit.id for hit in hits.values()}
            for hit in self.scan(whole, items[0][0]):
                if hit.id not in seen:
                    hits.setdefault((hit.id, hit.enc), hit)
        return tuple(hits.values())

    def scan_names(self, names: Sequence[str]) -> tuple[Hit, ...]:
        """Looks for values cut over the labels of DNS names, and over several names of one parent domain.

        Labels are joined in the order of the queries without the parent (the last two labels): all of them, all but
        counters, and column by column from either end.
        """
        groups: dict[str, list[list[str]]] = {}
        for name in names:
            labels = name.rstrip(".").split(".")
            if len(labels) > 2:
                rows = groups.setdefault(".".join(labels[-2:]).lower(), [])
                if not rows or rows[-1] != labels[:-2]:  # a resolver asks for A and AAAA, and repeats itself
                    rows.append(labels[:-2])
        hits: dict[tuple[str, str], Hit] = {}
        for rows in groups.values():
            joined = {
                "".join("".join(row) for row in rows),
                "".join("".join(label for label in row if not label.isdigit()) for row in rows),
            }
            for column in range(min(4, max(len(row) for row in rows))):
                joined.add("".join(row[column] for row in rows if column < len(row)))
                joined.add("".join(row[-1 - column] for row in rows if column < len(row)))
            for text in joined:
                for hit in self.scan(text.encode("utf-8", "surrogateescape")[:_MAX_JOINED], "name"):
                    hits.setdefault((hit.id, hit.enc), hit)
        return tuple(hits.values())

    def stream(self, at: str = "") -> StreamScanner:
        """A scanner for data that comes in pieces and must not be held whole."""
        return StreamScanner(self, at)


class _Forms:
    """What is looked for in every view: each value as it is, reversed and rotated, and folded.

    Made at the first scan, because a world that sends nothing and leaves nothing behind never needs it.
    """

    def __init__(self, values: Sequence[tuple[str, bytes]]) -> None:
        self.needles: list[tuple[str, str, bytes]] = []
        self.folded: list[tuple[str, bytes]] = []
        #: Whether every value is printable ASCII, as all that is planted is.
        self.text = True
        for name, value in values:
            self.needles.append((name, "raw", value))
            if value[::-1] != value:
                self.needles.append((name, "reversed", value[::-1]))
            rotated = value.translate(_ROT13)
            if rotated != value:
                self.needles.append((name, "rot13", rotated))
            folded = _fold(value)
            if len(folded) >= 12:
                self.folded.append((name, folded))
            self.text = self.text and value.translate(_TEXT) == b"\1" * len(value)
        self._needles = _Sieve([needle for _, _, needle in self.needles])
        self._folded = _Sieve([needle for _, needle in self.folded])

    def likely(self, data: bytes) -> Iterator[tuple[str, str, bytes]]:
        """The needles that ``data`` may hold."""
        return (self.needles[index] for index in self._needles.likely(data))

    def likely_folded(self, folded: bytes) -> Iterator[tuple[str, bytes]]:
        """The folded needles that folded data may hold."""
        return (self.folded[index] for index in self._folded.likely(folded))


class _Sieve:
    """Tells quickly that none of many needles, each of 8 bytes or more, is in some data, which is the usual answer."""

    def __init__(self, needles: Sequence[bytes]) -> None:
        self._all = needles
        #: First word of a needle → the needles that start with it.
        self._heads: dict[int, list[int]] = {}
        for index, needle in enumerate(needles):
            self._heads.setdefault(int.from_bytes(needle[:8], sys.byteorder), []).append(index)
        self._short = [index for index, needle in enumerate(needles) if len(needle) < 15]
        self._words: frozenset[int] | None = None

    def likely(self, data: bytes) -> Sequence[int]:
        """Indexes of the needles that may be there."""
        if len(data) <= _FEW_BYTES:
            heads = self._heads
            hits = (heads.keys() & set(_words(data, offset)) for offset in range(min(8, len(data))))
            return sorted({index for words in hits for word in words for index in heads[word]})
        if self._words is None:
            self._words = _words_of(self._all)
        # Wherever a needle of 15 bytes or more lies in the data, one aligned word of the data is a word of the needle.
        return self._short if self._words.isdisjoint(_words(data, 0)) else range(len(self._all))


class StreamScanner:
    """Scans a stream in overlapping windows: memory is one window, whatever the length of the stream.

    A stream that *starts* compressed is inflated as it comes, so its windows are windows of the plain text.
    """

    WINDOW = 256 << 10

    def __init__(self, scanner: Scanner, at: str = "", *, depth: int = MAX_DEPTH, prefix: str = "") -> None:
        self._scanner = scanner
        self._at = at
        self._depth = depth
        self._prefix = prefix
        self._buffer = bytearray()
        self._fresh = 0
        self._started = False
        self._inflater: _Inflater | None = None
        self._inner: StreamScanner | None = None
        self._hits: dict[tuple[str, str], Hit] = {}

    def feed(self, data: bytes) -> None:
        """Takes the next piece, of any size."""
        for start in range(0, len(data), self.WINDOW):
            self._feed(data[start : start + self.WINDOW])

    def close(self) -> tuple[Hit, ...]:
        """Scans what is left and returns every hit of the stream."""
        if not self._started:
            self._start()
        if self._fresh or not self._hits:
            self._scan_window()
        self._buffer.clear()
        if self._inner is not None:
            for hit in self._inner.close():
                self._hits.setdefault((hit.id, hit.enc), hit)
            self._inner = None
        return tuple(self._hits.values())

    def _feed(self, data: bytes) -> None:
        self._buffer += data
        self._fresh += len(data)
        if not self._started:
            if len(self._buffer) < 16:
                return
            self._start()
        elif self._inflater is not None:
            self._inflate(data)
        if len(self._buffer) >= self.WINDOW:
            self._scan_window()
            del self._buffer[: len(self._buffer) - self._scanner.overlap]
            self._fresh = 0

    def _start(self) -> None:
        self._started = True
        found = _inflater(bytes(self._buffer[:16])) if self._depth > 0 else None
        if found is not None:
            name, self._inflater = found
            path = f"{self._prefix}+{name}" if self._prefix else name
            self._inner = StreamScanner(self._scanner, self._at, depth=self._depth - 1, prefix=path)
            self._inflate(bytes(self._buffer))

    def _inflate(self, data: bytes) -> None:
        inflater, inner = self._inflater, self._inner
        if inflater is None or inner is None:
            return
        try:
            while True:
                plain = inflater.decompress(data, 64 << 10)
                if plain:
                    inner.feed(plain)
                data = getattr(inflater, "unconsumed_tail", b"")
                if inflater.eof or not plain or (not data and getattr(inflater, "needs_input", True)):
                    break
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, MemoryError):
            self._inflater = None
        else:
            if inflater.eof:
                self._inflater = None

    def _scan_window(self) -> None:
        for hit in _Pass(self._scanner, bytes(self._buffer), self._at, depth=self._depth, prefix=self._prefix).run():
            self._hits.setdefault((hit.id, hit.enc), hit)


class _Inflater(Protocol):
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...

    @property
    def eof(self) -> bool: ...


class _Pass:
    """One scan of one buffer: the budget and the hits of it."""

    def __init__(self, scanner: Scanner, data: bytes, at: str, *, depth: int = MAX_DEPTH, prefix: str = "") -> None:
        if scanner._forms is None:
            scanner._forms = _Forms(scanner._values)
        self._forms = scanner._forms
        self._scanner = scanner
        self._data = data
        self._at = at
        self._depth = depth
        self._prefix = prefix
        self._budget = min(_MAX_BUDGET, 48 * max(len(data), 256 << 10))
        self._streams = _MAX_STREAMS
        self._tries = _MAX_TRIED
        self._hits: dict[tuple[str, str], Hit] = {}

    def run(self) -> Iterable[Hit]:
        # Breadth first: a shallow layer is likelier than a deep one, and must not starve behind it.
        layer = [(self._prefix, self._data)]
        for depth in range(self._depth + 1):
            following: list[tuple[str, bytes]] = []
            for path, data in layer:
                if len(data) > self._budget:
                    continue
                self._budget -= len(data)
                data = _condensed(data, self._scanner.overlap)
                self._search(path, data)
                if depth < self._depth:
                    for name, view in self._views(data, outermost=depth == 0):
                        if len(view) >= MIN_VALUE_BYTES:
                            following.append((f"{path}+{name}" if path else name, view))
            layer = following
        return self._hits.values()

    def _search(self, path: str, data: bytes) -> None:
        for name, how, needle in self._forms.likely(data):
            if needle in data:
                self._found(name, path, how)
        if self._forms.folded and len(data) <= _MAX_JOINED:
            folded = _fold(data)
            for name, needle in self._forms.likely_folded(folded):
                if needle in folded and not any(hit == name for hit, _ in self._hits):
                    self._found(name, path, "split")
        if self._scanner._inputs is not None:
            for name in self._scanner._inputs.find(data):
                self._found(name, path, "raw")

    def _found(self, name: str, path: str, how: str) -> None:
        if how != "raw":
            path = f"{path}+{how}" if path else how
        enc = path or "raw"
        # ``base64`` found under two alignments or behind two paths is one finding; keep the list short.
        if sum(1 for hit, _ in self._hits if hit == name) < 4:
            self._hits.setdefault((name, enc), Hit(name, enc, self._at))

    def _views(self, data: bytes, *, outermost: bool) -> Iterator[tuple[str, bytes]]:
        kinds = data.translate(_TEXT)
        zeros = data.count(b"\0")
        if zeros * 3 > len(data) or (zeros and any(wide in kinds for wide in _WIDE_TEXT)):
            yield "utf-16", data.replace(b"\0", b"")
        # Where no run of text is long enough for a value, nothing is encoded as text.
        if not self._forms.text or b"\1" * min(self._scanner._shortest, _MIN_RUN) in kinds:
            yield from self._texts(data, outermost=outermost)
        yield from self._inflated(data)

    def _texts(self, data: bytes, *, outermost: bool) -> Iterator[tuple[str, bytes]]:
        if b"%" in data:
            view = _PERCENT.sub(lambda match: unhexlify(match[1]), data)
            if view != data:
                yield "url", view
        if b"\\" in data:
            view = _BACKSLASH.sub(_unescape, data)
            if view != data:
                yield "escape", view
        # In little data, pieces of a value that were encoded one by one are found by folding; in much, a run must hold
        # the whole of it.
        least = MIN_VALUE_BYTES if len(data) <= _MAX_JOINED else min(self._scanner._shortest, SHINGLE_BYTES)
        unwrapped = data.translate(None, b"\r\n") if b"\n" in data else data
        yield from _decoded(unwrapped, least)
        if outermost:
            if len(data) <= _MAX_JOINED:
                joined = data.translate(None, _GLUE)
                if joined != unwrapped:
                    yield from _decoded(joined, least)
            if len(data) <= _MAX_REVERSED:
                for name, view in _decoded(unwrapped[::-1], least):
                    yield f"reversed+{name}", view
                for name, view in _decoded(unwrapped.translate(_ROT13), least):
                    if name == "base64":
                        yield f"rot13+{name}", view

    def _inflated(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        for start in _stream_starts(data):
            if self._streams <= 0 or self._tries <= 0:
                return
            skip = 0
            name = "zip"
            inflater: _Inflater
            head = data[start : start + 30]
            if head.startswith(b"PK"):
                if len(head) < 30 or head[8:10] != b"\x08\0":
                    continue
                skip = 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
                inflater = zlib.decompressobj(-15)
            else:
                found = _inflater(head)
                if found is None:
                    continue
                name, inflater = found
            self._tries -= 1
            plain = _inflate_bounded(inflater, data, start + skip, min(_MAX_INFLATED, self._budget))
            if len(plain) > _MUCH:
                self._streams -= 1
            if plain:
                yield name, plain


def _condensed(data: bytes, overlap: int) -> bytes:
    """``data`` without what only repeats itself, for as far as a value can reach.

    A stretch of equal blocks holds nothing that two of them do not hold, and what repeats with any other period from
    start to end nothing that its start does not hold.
    """
    if len(data) <= 4 * _BLOCK:
        return data
    enough = max(overlap, _BLOCK) + 2 * _BLOCK
    period = data.find(data[:32], 1, _BLOCK)
    if period > 0 and len(data) > enough and data[period:] == data[:-period]:
        return data[:enough]
    if overlap > _BLOCK:
        return data
    kept = []
    last = before = b""
    for start in range(0, len(data), _BLOCK):
        block = data[start : start + _BLOCK]
        if block != last or block != before:
            kept.append(block)
        last, before = block, last
    return b"".join(kept) if len(kept) * _BLOCK < len(data) else data


def _runs(data: bytes, alphabet: bytes, least: int) -> list[bytes]:
    """The longest stretches of at least ``least`` characters of an alphabet (a table of :func:`_alphabet`)."""
    marked = data.translate(alphabet)
    enough = b"\1" * least
    found = []
    start = marked.find(enough)
    while start >= 0:
        end = marked.find(b"\0", start + least)
        if end < 0:
            end = len(data)
        found.append(data[start:end])
        start = marked.find(enough, end)
    return found


def _decoded(data: bytes, least: int) -> Iterator[tuple[str, bytes]]:
    """Views with base64, base32 and hexadecimal runs decoded: one view per alignment, runs joined by a newline.

    Only runs are looked at that are long enough to hold ``least`` bytes (and 16 characters).
    """
    runs = _runs(data, _BASE64, max(_MIN_RUN, -(-least * 4 // 3)))
    if not runs:
        return
    for shift in range(4):
        pieces = []
        for run in runs:
            part = run[shift:]
            part = part[: len(part) - (len(part) % 4 == 1)]
            if len(part) >= 8:
                try:
                    pieces.append(a2b_base64(part.translate(_URLSAFE) + b"=" * (-len(part) % 4)))
                except BinasciiError:  # pragma: no cover - the run is clean by construction
                    continue
        if pieces:
            yield "base64", b"\n".join(pieces)
    # Hexadecimal and base32 runs of one case lie within base64 runs: no run there, none here.
    data = b"\n".join(runs)
    hexadecimal = _runs(data, _HEX, max(_MIN_RUN, 2 * least))
    for shift in range(2 if hexadecimal else 0):
        yield "hex", b"\n".join(unhexlify(run[shift : len(run) - (len(run) - shift) % 2]) for run in hexadecimal)
    runs = [run for alphabet in _BASE32 for run in _runs(data, alphabet, max(_MIN_RUN, -(-least * 8 // 5)))]
    if runs:
        numbers = [(int(run.upper().translate(_TO_BASE_32), 32), len(run) * 5) for run in runs]
        for shift in range(8):
            yield "base32", b"\n".join((number << shift).to_bytes((bits + 15) // 8, "big") for number, bits in numbers)


def _stream_starts(data: bytes) -> list[int]:
    """Where a compressed stream may begin, in order; of each kind the first few."""
    starts = []
    for magic, offset in _STREAMS:
        position = data.find(magic)
        for _ in range(_MAX_STREAMS):
            if position < 0:
                break
            if position >= offset:
                starts.append(position - offset)
            position = data.find(magic, position + 1)
    return sorted(starts)


def _inflater(magic: bytes) -> tuple[str, _Inflater] | None:
    if magic.startswith(b"\x1f\x8b"):
        return "gzip", zlib.decompressobj(31)
    if magic.startswith(b"\x78") and len(magic) > 1 and int.from_bytes(magic[:2], "big") % 31 == 0:
        return "zlib", zlib.decompressobj(15)
    if magic.startswith(b"BZh"):
        return "bz2", bz2.BZ2Decompressor()
    if magic.startswith(b"\xfd7zXZ\x00"):
        return "lzma", lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_MEMORY)
    if magic.startswith(b"\x5d\x00\x00"):
        return "lzma", lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=_LZMA_MEMORY)
    return None


def _inflate_bounded(inflater: _Inflater, data: bytes, begin: int, limit: int) -> bytes:
    """Up to ``limit`` bytes of the plain text of the stream that starts at ``begin``; what was inflated before an error
    counts too."""
    plain = bytearray()
    # Small steps, so that the good start of a damaged or wrongly guessed stream is not lost with the rest.
    for start in range(begin, len(data), 16 << 10):
        piece = data[start : start + (16 << 10)]
        try:
            while len(plain) < limit:
                more = inflater.decompress(piece, min(64 << 10, limit - len(plain)))
                plain += more
                piece = getattr(inflater, "unconsumed_tail", b"")
                if inflater.eof or not more or (not piece and getattr(inflater, "needs_input", True)):
                    break
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, MemoryError):
            break
        if inflater.eof or len(plain) >= limit:
            break
    return bytes(plain)


def _unescape(match: re.Match[bytes]) -> bytes:
    digits = match[1] or match[2]
    if digits is not None:
        return unhexlify(digits)
    return _LETTERS.get(match[3], match[3])


def _words(data: bytes, offset: int) -> memoryview:
    """The 8-byte words of ``data`` from ``offset`` on, as integers."""
    usable = max(0, len(data) - offset) // 8 * 8
    return memoryview(data)[offset : offset + usable].cast("Q")


def _words_of(needles: Iterable[bytes]) -> frozenset[int]:
    """Every 8-byte word of every needle, at any offset."""
    # Seven bytes between two needles keep them apart; words that lie across are in no data but by accident.
    pool = b"\xf5\0\xf7\1\xfe\0\xfd".join(needles)
    words: set[int] = set()
    for offset in range(8):
        words.update(_words(pool, offset))
    return frozenset(words)


def _fold(data: bytes) -> bytes:
    return data.translate(_LOWER, _FOLD)


def _sample(content: bytes, share: int) -> Iterator[bytes]:
    """The content itself, or evenly spread pieces of 4 KiB of it that add up to ``share`` bytes."""
    if len(content) <= share:
        yield content
        return
    pieces = max(1, share // 4096)
    for index in range(pieces):
        start = (len(content) - 4096) * index // max(1, pieces - 1)
        yield content[start : start + 4096]


def _common_run(left: bytes, left_at: int, right: bytes, right_at: int) -> bool:
    """Whether the equal bytes around two equal words make a telling run of at least ``SHINGLE_BYTES``."""
    # 24 bytes around a word of 8 reach at least 8 bytes further on one side; most candidates end here.
    after = left_at + 8
    if (
        left[after : after + 8] != right[right_at + 8 : right_at + 16]
        and left[max(0, left_at - 8) : left_at] != right[max(0, right_at - 8) : right_at]
    ):
        return False
    back = 0
    while back < SHINGLE_BYTES and left_at > back and right_at > back:
        if left[left_at - back - 1] != right[right_at - back - 1]:
            break
        back += 1
    ahead = 0
    while ahead < 2 * SHINGLE_BYTES and left_at + ahead < len(left) and right_at + ahead < len(right):
        if left[left_at + ahead] != right[right_at + ahead]:
            break
        ahead += 1
    run = left[left_at - back : left_at + ahead]
    return len(run) >= SHINGLE_BYTES and len(set(run)) >= 8
