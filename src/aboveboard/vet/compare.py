"""Compare what several targets made of the same inputs: pure functions over frozen data.

Two outputs are the same when their bytes are, else when their canonical forms are. A canonical form removes what a
reader of the format does not see (JSON key order and spacing, HTML source layout, line ends), nothing else.
"""

from __future__ import annotations

import enum
import hashlib
import html
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

MAX_CANONICAL_BYTES = 8 << 20
"""Above this size only bytes are compared."""
MAX_JSON_DEPTH = 100
"""Deepest nesting of JSON that is canonicalised (Python's parser recurses)."""


class Sameness(enum.StrEnum):
    """How an output relates to the reference output."""

    IDENTICAL = "identical"
    """The same bytes."""
    EQUIVALENT = "equivalent"
    """The same canonical form."""
    DIFFERENT = "different"
    MISSING = "missing"
    """No output to compare."""


@dataclass(frozen=True, slots=True)
class Output:
    """Files that one target left in ``output/`` (name to bytes), or its standard output under the name ``stdout``."""

    files: Mapping[str, bytes]

    @property
    def sha256(self) -> str:
        """Digest over the sorted names and contents; of nothing when there is no file."""
        total = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            total.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode("utf-8", "surrogateescape"))
        return total.hexdigest()


def sameness(output: Output, reference: Output) -> Sameness:
    """How ``output`` relates to ``reference``, file by file; the worst file decides."""
    if not output.files or not reference.files:
        return Sameness.MISSING
    if output.files == reference.files:
        return Sameness.IDENTICAL
    if set(output.files) != set(reference.files):
        return Sameness.DIFFERENT
    same = all(canonical(name, data) == canonical(name, reference.files[name]) for name, data in output.files.items())
    return Sameness.EQUIVALENT if same else Sameness.DIFFERENT


def consensus(outputs: Sequence[Output]) -> Output | None:
    """The output that most targets agree on (canonically), the earliest on a tie: the reference for a table.

    A lone deviant must not be the yardstick just because it stands first.
    """
    groups: dict[Hashable, list[Output]] = {}
    for output in outputs:
        if output.files:
            key = tuple((name, canonical(name, data)) for name, data in sorted(output.files.items()))
            groups.setdefault(key, []).append(output)
    return max(groups.values(), key=len)[0] if groups else None


def canonical(name: str, data: bytes) -> bytes:
    """The canonical form of a file's content, chosen by its name and content."""
    if len(data) > MAX_CANONICAL_BYTES:
        return data
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    text = text.removeprefix("\ufeff")
    head = text.lstrip()[:1]
    if head in ("{", "[", '"') or name.lower().endswith(".json"):
        as_json = _canonical_json(text)
        if as_json is not None:
            return as_json
    if name.lower().endswith((".html", ".htm")):
        return canonical_html(text).encode("utf-8", "surrogatepass")
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return ("\n".join(lines).rstrip("\n") + "\n").encode()


def _canonical_json(text: str) -> bytes | None:
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > MAX_JSON_DEPTH:
        return None
    try:
        # Floats stay text: 1.0 and 1.00 are equal to a reader of JSON, 1e400 must not become infinity.
        value = json.loads(text, parse_float=_plain_float)
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    except (ValueError, RecursionError, OverflowError):
        return None


def _plain_float(text: str) -> float | str:
    value = float(text)
    return value if value not in (float("inf"), float("-inf")) else text


# fmt: off
_BLOCK = frozenset((
    "address", "article", "aside", "blockquote", "body", "br", "caption", "col", "colgroup", "dd", "details", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head",
    "header", "hr", "html", "legend", "li", "link", "main", "meta", "nav", "ol", "option", "p", "section", "summary",
    "table", "tbody", "td", "tfoot", "th", "thead", "title", "tr", "ul",
))
_VOID = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
))
# fmt: on
_VERBATIM = frozenset({"pre", "textarea"})


def canonical_html(text: str) -> str:
    """HTML with one line a block element: attributes sorted, entities resolved and escaped one way, spaces folded.

    Source layout between block elements is not visible to a reader; inside ``pre`` every character is. Scripts and
    comments stay: they are content of the file.
    """
    parser = _CanonicalHtml()
    parser.feed(text)
    parser.close()
    return parser.result()


class _CanonicalHtml(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._verbatim = 0
        self._run: list[str] = []

    def result(self) -> str:
        self._flush()
        return "\n".join(self._parts) + "\n"

    def _flush(self) -> None:
        line = "".join(self._run)
        self._run.clear()
        if not self._verbatim:
            line = line.strip(" ")
        if line:
            self._parts.append(line)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = "".join(f' {k}="{html.escape(v or "")}"' for k, v in sorted(attrs, key=lambda item: item[0]))
        if tag in _BLOCK or tag in _VERBATIM:
            self._flush()
        self._run.append(f"<{tag}{values}>")
        if tag in _BLOCK:
            self._flush()
        if tag in _VERBATIM:
            self._verbatim += 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if tag in _BLOCK:
            self._flush()
        if tag in _VERBATIM:
            # HTML drops one newline after <pre>, and a final one before </pre> is not visible.
            inside = "".join(self._run)
            self._run[:] = [inside.rstrip("\n")]
            self._verbatim = max(0, self._verbatim - 1)
            self._run.append(f"</{tag}>")
            joined = "".join(self._run)
            self._run.clear()
            self._parts.append(joined)
            return
        self._run.append(f"</{tag}>")
        if tag in _BLOCK:
            self._flush()

    def handle_data(self, data: str) -> None:
        if self._verbatim:
            self._run.append(html.escape(data, quote=False))
            return
        folded = re.sub(r"[ \t\r\n\f]+", " ", data)
        if folded.startswith(" ") and (not self._run or self._run[-1].endswith(" ")):
            folded = folded[1:]
        if folded:
            self._run.append(html.escape(folded, quote=False))

    def handle_comment(self, data: str) -> None:
        self._run.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._run.append(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self._run.append(f"<?{data}>")

    def unknown_decl(self, data: str) -> None:
        self._run.append(f"<![{data}]>")


def only_here(rows: Mapping[str, Sequence[Hashable]]) -> dict[str, list[Hashable]]:
    """For each key, the entries that no other key has, in their order; duplicates once."""
    owners: dict[Hashable, set[str]] = {}
    for name, entries in rows.items():
        for entry in entries:
            owners.setdefault(entry, set()).add(name)
    return {
        name: [entry for entry in dict.fromkeys(entries) if owners[entry] == {name}] for name, entries in rows.items()
    }
