"""What a task allows: the contract, and the fast matchers compiled from it.

A contract is a few lines of TOML that a person can check without having seen the code it judges. Whatever it does not
allow is forbidden; an absent key allows nothing. The same compiled rules answer the oracle (after the run) and the
supervisor in block mode (at every open), so they are pure, cheap and take only text.

The grammar is documented in ``docs/reference/contract.md``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from aboveboard.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

MAX_FILE_BYTES = 1 << 20
MAX_PATTERNS = 10_000
MAX_PATTERN_CHARS = 4_096
MAX_SECONDS = 7 * 24 * 3600.0

#: Assurance tiers from the weakest to the strongest (``docs/reference/evidence.md``).
TIERS = ("P", "N", "U", "R")

#: SQLite creates these next to a database it opens, even read-only (sqlite.org/tempfiles.html).
SQLITE_SIBLINGS = ("-wal", "-shm", "-journal")

_PATH_KEYS = ("read", "write", "delete", "metadata")
_NETWORK_KEYS = ("network", "share_input")
_KEYS = (
    "read",
    "write",
    "delete",
    "metadata",
    "network",
    "share_input",
    "listen",
    "programs",
    "environment",
    "grace_seconds",
    "wall_seconds",
    "minimum_tier",
)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z")
_HOST = re.compile(r"[a-z0-9_.*-]+\Z")


class PathRules:
    """Decides whether a path is covered by a list of globs.

    ``match`` takes an absolute path as the supervisor resolved it. Literal paths and ``dir/**`` rules, which is nearly
    all there ever are, cost one set lookup or one ``startswith``; only rules with wildcards inside reach a regular
    expression, and that one cannot backtrack exponentially.
    """

    __slots__ = ("_ancestors", "_expression", "_globs", "_literals", "_prefixes", "patterns")

    def __init__(self, patterns: Sequence[str], *, workspace: str, home: str) -> None:
        self.patterns = tuple(patterns)
        literals: dict[str, str] = {}
        prefixes: dict[str, str] = {}
        globs: list[tuple[str, str]] = []
        for pattern in self.patterns:
            absolute = _anchor(pattern, workspace, home)
            if absolute.endswith("/**") and not _is_wild(absolute[:-3]):
                prefixes[absolute[:-3] + "/"] = pattern
            elif _is_wild(absolute):
                globs.append((_translate(absolute), pattern))
            else:
                literals[absolute] = pattern
        self._literals = literals
        self._ancestors = prefixes
        # A long tuple makes startswith linear in the rules; beyond this, walking up the path is cheaper.
        self._prefixes = tuple(prefixes) if len(prefixes) <= 16 else None
        self._globs = globs
        self._expression = re.compile("|".join(f"(?:{text})" for text, _ in globs), re.DOTALL) if globs else None

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def match(self, path: str) -> bool:
        """True when a rule covers ``path``, or the database that ``path`` is a SQLite sibling of."""
        if "/../" in path or "/./" in path or "//" in path or path.endswith(("/..", "/.", "/")):
            path = normalise(path)
        if self._covers(path):
            return True
        if path.endswith(SQLITE_SIBLINGS):
            return self._covers(path[: path.rindex("-")])
        return False

    def rule(self, path: str) -> str | None:
        """The pattern that covers ``path``, as written in the contract, or None. Slower than ``match``."""
        path = normalise(path)
        candidates = [path]
        if path.endswith(SQLITE_SIBLINGS):
            candidates.append(path[: path.rindex("-")])
        for candidate in candidates:
            if candidate in self._literals:
                return self._literals[candidate]
            for prefix in _ancestors(candidate):
                if prefix in self._ancestors:
                    return self._ancestors[prefix]
            for text, pattern in self._globs:
                if re.match(text, candidate, re.DOTALL):
                    return pattern
        return None

    def directories(self) -> tuple[str, ...]:
        """The literal directory each rule is rooted in, e.g. ``/ws/output`` for ``output/*.json``; sorted, unique."""
        found = {prefix.rstrip("/") for prefix in self._ancestors}
        found.update(literal.rpartition("/")[0] for literal in self._literals)
        return tuple(sorted(found))

    def _covers(self, path: str) -> bool:
        if path in self._literals:
            return True
        prefixes = self._prefixes
        if prefixes is None:
            table = self._ancestors
            if any(prefix in table for prefix in _ancestors(path)):
                return True
        elif prefixes and (path + "/").startswith(prefixes):
            return True
        return self._expression is not None and self._expression.match(path) is not None


class Destination(NamedTuple):
    """One parsed network pattern. ``protocol`` is ``tcp``, ``udp`` or empty for both; ``port`` 0 stands for ``*``."""

    protocol: str
    host: str
    port: int
    text: str


class NetworkRules:
    """Decides whether a destination is on the list of ``host:port`` patterns."""

    __slots__ = ("_exact", "_wild", "patterns")

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self._exact: dict[str, list[Destination]] = {}
        self._wild: list[tuple[re.Pattern[str], Destination]] = []
        for pattern in self.patterns:
            destination = parse_destination(pattern)
            if "*" in destination.host:
                self._wild.append((_host_expression(destination.host), destination))
            else:
                self._exact.setdefault(destination.host, []).append(destination)

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def rule(self, protocol: str, hosts: Iterable[str], port: int) -> str | None:
        """The pattern that allows ``protocol`` (``tcp``/``udp``) to ``port`` of any of ``hosts``, or None.

        ``hosts`` are the names and addresses known for one destination. A wildcard never covers an address unless it
        is the bare ``*``: ``*.1`` must not match ``198.51.100.1``.
        """
        for host in hosts:
            for destination in self._candidates(canonical_host(host)):
                if destination.port in (0, port) and destination.protocol in ("", protocol):
                    return destination.text
        return None

    def names(self, host: str) -> str | None:
        """The pattern that names ``host`` on whatever port: a host one may talk to is a host one may look up."""
        for destination in self._candidates(canonical_host(host)):
            return destination.text
        return None

    def _candidates(self, host: str) -> Iterable[Destination]:
        yield from self._exact.get(host, ())
        if self._wild and host:
            numeric = _is_address(host)
            for expression, destination in self._wild:
                if (destination.host == "*" or not numeric) and expression.match(host):
                    yield destination


class ProgramRules:
    """Decides whether an executed file is an allowed program."""

    __slots__ = ("_any", "_digests", "_names", "_paths", "patterns")

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self._any = "*" in self.patterns
        self._digests = frozenset(p[7:] for p in self.patterns if p.startswith("sha256:"))
        self._paths = frozenset(p for p in self.patterns if p.startswith("/"))
        self._names = frozenset(p for p in self.patterns if not p.startswith(("/", "sha256:")) and p != "*")

    def rule(self, requested: str, resolved: str, digest: str, *, original: bool) -> str | None:
        """The pattern that allows the program, or None.

        ``digest`` is the lower-case SHA-256 of the file or empty. ``original`` says that the file was there before the
        run and is not part of the candidate: a name or a path speaks for such a file only, since anybody can call a
        file ``git``.
        """
        if digest and digest in self._digests:
            return f"sha256:{digest}"
        if not original:
            return None
        for path in (resolved, requested):
            if path in self._paths:
                return path
            name = path.rpartition("/")[2]
            if name in self._names:
                return name
        return "*" if self._any else None


class Rules(NamedTuple):
    """A contract compiled for one world: the workspace and home its relative patterns are anchored in are fixed."""

    read: PathRules
    write: PathRules
    delete: PathRules
    metadata: PathRules
    network: NetworkRules
    share_input: NetworkRules
    programs: ProgramRules
    listen: frozenset[int]
    environment: frozenset[str]


class Contract:
    """What one task allows. Immutable, hashable, comparable; equal contracts have equal digests.

    Attributes
    ----------
    read, write, delete, metadata
        Globs of files that may be read, written (created, changed, removed), removed, and whose mode, owner, times or
        extended attributes may change.
    network
        ``host:port`` patterns that may be contacted and looked up.
    share_input
        ``host:port`` patterns that may besides receive the content of input files.
    listen
        Ports (1-65535) on which non-loopback addresses may be served.
    programs
        Child programs by name, absolute path, ``sha256:HEX``, or ``*`` for everything that was there before.
    environment
        Names of secret environment variables that may be passed on.
    grace_seconds
        How long, in seconds, processes may live on after the main one ended.
    wall_seconds
        Longest run in seconds, or None for the world's own limit.
    minimum_tier
        Weakest assurance tier (``P`` < ``N`` < ``U`` < ``R``) whose "clean" is accepted.
    """

    __slots__ = _KEYS

    read: tuple[str, ...]
    write: tuple[str, ...]
    delete: tuple[str, ...]
    metadata: tuple[str, ...]
    network: tuple[str, ...]
    share_input: tuple[str, ...]
    listen: tuple[int, ...]
    programs: tuple[str, ...]
    environment: tuple[str, ...]
    grace_seconds: float
    wall_seconds: float | None
    minimum_tier: str

    def __init__(
        self,
        *,
        read: Iterable[str] = (),
        write: Iterable[str] = (),
        delete: Iterable[str] = (),
        metadata: Iterable[str] = (),
        network: Iterable[str] = (),
        share_input: Iterable[str] = (),
        listen: Iterable[int] = (),
        programs: Iterable[str] = (),
        environment: Iterable[str] = (),
        grace_seconds: float = 1.0,
        wall_seconds: float | None = None,
        minimum_tier: str = "U",
    ) -> None:
        put = object.__setattr__
        for key, given in (("read", read), ("write", write), ("delete", delete), ("metadata", metadata)):
            put(self, key, _clean(key, given, normalise_pattern))
        for key, given in (("network", network), ("share_input", share_input)):
            put(self, key, _clean(key, given, lambda text: parse_destination(text).text))
        put(self, "listen", _ports(listen))
        put(self, "programs", _clean("programs", programs, _program))
        put(self, "environment", _clean("environment", environment, _variable))
        put(self, "grace_seconds", _seconds("grace_seconds", grace_seconds))
        put(self, "wall_seconds", None if wall_seconds is None else _seconds("wall_seconds", wall_seconds))
        put(self, "minimum_tier", _tier(minimum_tier))
        total = sum(len(getattr(self, key)) for key in (*_PATH_KEYS, *_NETWORK_KEYS, "programs", "environment"))
        if total > MAX_PATTERNS:
            raise ContractError(f"contract has {total} patterns, more than {MAX_PATTERNS}: use dir/** instead of files")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Contract is immutable; use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Contract is immutable; use replace(...)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contract) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Contract({', '.join(f'{key}={getattr(self, key)!r}' for key in _KEYS)})"

    def __reduce__(self) -> tuple[object, ...]:
        # Slots plus a raising __setattr__ defeat the default pickling; the canonical text is the whole state.
        return (Contract.parse, (self.to_toml(),))

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, key) for key in _KEYS)

    @classmethod
    def default(cls) -> Contract:
        """Read ``input/**``, write ``output/**``, nothing else."""
        return cls(read=["input/**"], write=["output/**"])

    @classmethod
    def load(cls, source: Path | str | bytes) -> Contract:
        """Reads a contract from a file, or parses the TOML text itself.

        A ``str`` that holds a newline, or that starts with ``[`` and names no existing file, is taken as TOML text,
        any other ``str`` as a path; ``bytes`` are always TOML text.

        Raises
        ------
        ContractError
            The file cannot be read, is larger than 1 MiB, or is not a contract.
        """
        if isinstance(source, bytes):
            return cls.parse(source)
        if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("[")):
            return cls.parse(source)
        try:
            with open(source, "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ContractError(f"cannot read contract {source}: {reason}; name an existing TOML file") from error
        return cls.parse(data, name=str(source))

    @classmethod
    def parse(cls, text: str | bytes, *, name: str = "contract") -> Contract:
        """Parses TOML text with one table, ``[contract]``.

        Raises
        ------
        ContractError
            Not TOML, larger than 1 MiB, unknown or misspelt keys, wrong types, patterns out of bounds.
        """
        if len(text) > MAX_FILE_BYTES:
            raise ContractError(f"{name} is larger than {MAX_FILE_BYTES} bytes: use dir/** instead of single files")
        import tomllib  # 10 ms that a world without a contract file need not pay

        try:
            document = tomllib.loads(text.decode("utf-8") if isinstance(text, bytes) else text)
        except UnicodeDecodeError as error:
            raise ContractError(f"{name} is not UTF-8 text (byte {error.start}): save it as UTF-8") from error
        except tomllib.TOMLDecodeError as error:
            raise ContractError(f"{name} is not valid TOML: {error}") from error
        except (RecursionError, ValueError) as error:
            raise ContractError(f"{name} is not usable TOML: nested too deeply or a number out of range") from error
        try:
            return cls._from_document(document)
        except ContractError as error:
            raise ContractError(f"{name}: {error}") from error

    @classmethod
    def _from_document(cls, document: Mapping[str, object]) -> Contract:
        for key in document:
            if key != "contract":
                raise ContractError(f"unknown top-level key {_shown(key)}; everything goes in the table [contract]")
        table = document.get("contract")
        if not isinstance(table, dict):
            raise ContractError("has no [contract] table; start with a line [contract]")
        for key in table:
            if key not in _KEYS:
                raise ContractError(f"unknown key {_shown(key)} in [contract]{_suggestion(key)}")
        return cls(**table)

    def replace(self, **changes: object) -> Contract:
        """A copy with some attributes changed, checked like a new one."""
        values: dict[str, object] = {key: getattr(self, key) for key in _KEYS}
        for key in changes:
            if key not in values:
                raise ContractError(f"unknown key {_shown(key)}{_suggestion(key)}")
        values.update(changes)
        return Contract(**values)  # type: ignore[arg-type]  # the constructor checks every type itself

    def to_toml(self) -> str:
        """Canonical TOML: fixed key order, patterns sorted and unique. ``parse`` of it gives an equal contract."""
        lines = ["[contract]"]
        for key in _KEYS:
            value = getattr(self, key)
            if isinstance(value, tuple):
                lines.append(f"{key} = [{', '.join(_toml(item) for item in value)}]")
            elif value is not None:
                lines.append(f"{key} = {_toml(value)}")
        return "\n".join(lines) + "\n"

    def digest(self) -> str:
        """Lower-case hex SHA-256 of the canonical TOML."""
        import hashlib

        return hashlib.sha256(self.to_toml().encode("utf-8")).hexdigest()

    def compile(self, *, workspace: str, home: str = "/home/dev") -> Rules:
        """Matchers with relative patterns anchored in ``workspace`` and ``~/`` in ``home`` (absolute, inside)."""

        def paths(patterns: tuple[str, ...]) -> PathRules:
            return PathRules(patterns, workspace=workspace, home=home)

        return Rules(
            read=paths(self.read),
            write=paths(self.write),
            delete=paths(self.delete),
            metadata=paths(self.metadata),
            network=NetworkRules(self.network),
            share_input=NetworkRules(self.share_input),
            programs=ProgramRules(self.programs),
            listen=frozenset(self.listen),
            environment=frozenset(self.environment),
        )


# ---- paths -------------------------------------------------------------------------------------------------------


def normalise(path: str) -> str:
    """Lexical normal form of an absolute path: no ``.``, ``..``, doubled or trailing slashes; never above ``/``."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if parts:
                parts.pop()
        elif part and part != ".":
            parts.append(part)
    return "/" + "/".join(parts)


def normalise_pattern(pattern: str) -> str:
    """Canonical text of a path pattern.

    Raises
    ------
    ContractError
        Empty, with ``..``, ``~user``, a NUL, an unclosed ``[`` or a ``**`` that is not a whole component.
    """
    if "\0" in pattern:
        raise ContractError(f"path pattern {_shown(pattern)} holds a NUL character; remove it")
    subtree = pattern.endswith("/")
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    absolute = pattern.startswith("/")
    if not parts and not absolute and pattern not in (".", "./"):
        raise ContractError("path pattern is empty; write ** for the whole workspace")
    if ".." in parts:
        raise ContractError(f"path pattern {_shown(pattern)} leaves its root with '..'; write an absolute path instead")
    if parts and not absolute and parts[0].startswith("~") and parts[0] != "~":
        raise ContractError(f"path pattern {_shown(pattern)}: only ~/ (the home inside) is known, not ~name")
    for part in parts:
        if "**" in part and part != "**":
            raise ContractError(f"path pattern {_shown(pattern)}: ** must be a whole component; write a/**/b or a/*b")
        _segment(part)
    # ``a/**/**`` says no more than ``a/**``.
    parts = [part for index, part in enumerate(parts) if not (part == "**" and index and parts[index - 1] == "**")]
    if (subtree or not parts) and (not parts or parts[-1] != "**"):
        parts.append("**")
    return ("/" if absolute else "") + "/".join(parts)


def _anchor(pattern: str, workspace: str, home: str) -> str:
    if pattern.startswith("/"):
        base, rest = "", pattern[1:]
    elif pattern == "~" or pattern.startswith("~/"):
        base, rest = _escape(normalise(home)), pattern[2:]
    else:
        base, rest = _escape(normalise(workspace)), pattern
    if base == "/":
        base = ""
    return f"{base}/{rest}" if rest else base or "/"


def _escape(path: str) -> str:
    """A real directory may be called ``a[1]``: keep the wildcards of the pattern apart from the letters of the path."""
    return re.sub(r"([*?\[])", r"[\1]", path) if _is_wild(path) else path


def _is_wild(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def _ancestors(path: str) -> Iterable[str]:
    """``/a/b/``, ``/a/``, ``/`` for ``/a/b``."""
    end = len(path)
    while end > 0:
        yield path[:end] + "/"
        end = path.rfind("/", 0, end)
    yield "/"


def _segment(part: str) -> str:
    """Regular expression for one component; ``*`` stands for any run of characters but ``/``.

    Every ``*`` but the last is an atomic lazy group: the first match of what follows it is always good enough for a
    glob, so nothing is retried and the time stays linear in stars times length (the scheme of CPython's fnmatch).
    """
    chunks: list[str] = [""]
    index = 0
    while index < len(part):
        char = part[index]
        if char == "*":
            chunks.append("")
        elif char == "?":
            chunks[-1] += "[^/]"
        elif char == "[":
            end = part.find("]", index + 2 + part.startswith("[!", index))
            if end < 0:
                raise ContractError(f"path pattern: '[' is not closed in {_shown(part)}; write [[] for a bracket")
            chunks[-1] += _character_class(part[index + 1 : end])
            index = end
        else:
            chunks[-1] += re.escape(char)
        index += 1
    first, *rest = chunks
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{chunk})" for chunk in middle if chunk) + "[^/]*" + last


def _character_class(body: str) -> str:
    negate = body.startswith("!")
    body = body[1:] if negate else body
    members: list[str] = []
    index = 0
    while index < len(body):
        if index + 2 < len(body) and body[index + 1] == "-":
            low, high = body[index], body[index + 2]
            if low > high:
                raise ContractError(f"path pattern: empty range [{_shown(body)}]; write the smaller character first")
            members.append(f"{re.escape(low)}-{re.escape(high)}")
            index += 3
        else:
            members.append(re.escape(body[index]))
            index += 1
    joined = "".join(members)
    return f"(?!/)[{'^' if negate else ''}{joined}]"


def _translate(pattern: str) -> str:
    """Regular expression, anchored at both ends, for an absolute glob."""
    runs: list[list[str]] = [[]]
    for part in pattern.split("/")[1:]:
        if part == "**":
            runs.append([])
        else:
            runs[-1].append(part)
    first, *rest = runs
    text = "".join("/" + _segment(part) for part in first)
    if not rest:
        return text + r"\Z"
    *middle, last = rest
    for run in middle:
        text += "(?>(?:/[^/]+)*?" + "".join("/" + _segment(part) for part in run) + "(?=/|\\Z))"
    # The node itself is covered by ``dir/**``: the last ``**`` may stand for nothing at all.
    return text + "(?:/[^/]+)*" + "".join("/" + _segment(part) for part in last) + r"\Z"


# ---- network -----------------------------------------------------------------------------------------------------


def parse_destination(text: str) -> Destination:
    """Parses ``[tcp:|udp:]host:port``.

    Raises
    ------
    ContractError
        No port, a port out of range, an unusable host.
    """
    rest = text.strip().lower()
    protocol = ""
    for prefix in ("tcp:", "udp:"):
        if rest.startswith(prefix) and ":" in rest[4:]:
            protocol, rest = prefix[:-1], rest[4:]
            break
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or not tail.startswith(":"):
            raise ContractError(f"network pattern {_shown(text)}: write an IPv6 destination as [address]:port")
        port_text = tail[1:]
        if not _is_address(host) or ":" not in host:
            raise ContractError(f"network pattern {_shown(text)}: {_shown(host)} is not an IPv6 address")
    else:
        host, colon, port_text = rest.rpartition(":")
        if not colon:
            raise ContractError(f"network pattern {_shown(text)} has no port; write host:port, or host:* for any port")
        if ":" in host:
            raise ContractError(f"network pattern {_shown(text)}: put an IPv6 address in brackets, [host]:port")
        host = host.rstrip(".")
        if not host or len(host) > 253 or not _HOST.match(host):
            raise ContractError(f"network pattern {_shown(text)}: host is not a name, an address or a wildcard")
    if port_text == "*":
        port = 0
    elif port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and 0 < int(port_text) < 65536:
        port = int(port_text)
    else:
        raise ContractError(f"network pattern {_shown(text)}: port {_shown(port_text)} is not 1-65535 or *")
    host = canonical_host(host)
    shown = f"[{host}]" if ":" in host else host
    return Destination(protocol, host, port, f"{protocol + ':' if protocol else ''}{shown}:{port if port else '*'}")


def canonical_host(host: str) -> str:
    """Lower case, no trailing dot, no zone; addresses in one spelling, with IPv4-mapped IPv6 as IPv4."""
    host = host.lower().rstrip(".")
    if ":" not in host:
        return host
    import _socket  # inet_pton without the start-up cost of socket's enums

    try:
        packed = _socket.inet_pton(_socket.AF_INET6, host.partition("%")[0])
    except (OSError, ValueError, UnicodeError):
        return host
    if packed[:12] == b"\0" * 10 + b"\xff\xff":
        return ".".join(str(byte) for byte in packed[12:])
    return _socket.inet_ntop(_socket.AF_INET6, packed)


def _is_address(host: str) -> bool:
    if ":" in host:
        import _socket

        try:
            _socket.inet_pton(_socket.AF_INET6, host)
        except (OSError, ValueError, UnicodeError):
            return False
        return True
    parts = host.split(".")
    return len(parts) == 4 and all(part.isascii() and part.isdigit() for part in parts)


def _host_expression(host: str) -> re.Pattern[str]:
    chunks = host.split("*")
    if len(chunks) == 1:
        return re.compile(re.escape(host) + r"\Z")
    first, *middle, last = chunks
    text = re.escape(first) + "".join(f"(?>.*?{re.escape(chunk)})" for chunk in middle if chunk)
    return re.compile(text + ".*" + re.escape(last) + r"\Z", re.DOTALL)


# ---- values ------------------------------------------------------------------------------------------------------


def _clean(key: str, given: object, canonical: object) -> tuple[str, ...]:
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise ContractError(f'{key} must be a list of strings, not {_shown(given)}; write {key} = ["..."]')
    found: set[str] = set()
    for item in given:
        if not isinstance(item, str):
            raise ContractError(f"{key} holds {_shown(item)}, which is not a string; put it in quotes")
        if len(item) > MAX_PATTERN_CHARS:
            raise ContractError(f"{key} holds a pattern of {len(item)} characters, more than {MAX_PATTERN_CHARS}")
        try:
            item.encode("utf-8")
        except UnicodeEncodeError:
            raise ContractError(f"{key} holds {_shown(item)}, not valid Unicode; use ? for such bytes") from None
        found.add(canonical(item))  # type: ignore[operator]
        if len(found) > MAX_PATTERNS:
            raise ContractError(f"{key} has more than {MAX_PATTERNS} patterns: use dir/** instead of single files")
    return tuple(sorted(found))


def _program(text: str) -> str:
    if text.startswith("sha256:"):
        if not _SHA256.match(text[7:]):
            raise ContractError(f"programs: {_shown(text)} is not sha256: and 64 hexadecimal digits")
        return text.lower()
    if text.startswith("/"):
        return normalise(text)
    if not text or "/" in text or "\0" in text:
        raise ContractError(f"programs: {_shown(text)} is neither a name, nor an absolute path, nor sha256:HEX")
    return text


def _variable(text: str) -> str:
    if not _ENVIRONMENT_NAME.match(text):
        raise ContractError(f"environment: {_shown(text)} is not the name of an environment variable")
    return text


def _ports(given: object) -> tuple[int, ...]:
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise ContractError(f"listen must be a list of ports, not {_shown(given)}; write listen = [8080]")
    ports: set[int] = set()
    for item in given:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 < item < 65536:
            raise ContractError(f"listen holds {_shown(item)}, which is not a port from 1 to 65535")
        ports.add(item)
    return tuple(sorted(ports))


def _seconds(key: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= MAX_SECONDS:
        raise ContractError(f"{key} is {_shown(given)}, not a number of seconds from 0 to {MAX_SECONDS:.0f}")
    return float(given)


def _tier(given: object) -> str:
    if given not in TIERS:
        raise ContractError(f"minimum_tier is {_shown(given)}; it must be one of {', '.join(TIERS)}")
    return str(given)


def _shown(value: object) -> str:
    """A value as it may stand in a message: escaped and short, whatever it holds."""
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _suggestion(key: str) -> str:
    import difflib  # only on the way to an error

    near = difflib.get_close_matches(key[:64], _KEYS, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known keys: {', '.join(_KEYS)}"


_TOML_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _toml(value: object) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if not isinstance(value, str):
        return str(value)
    escaped = "".join(
        _TOML_ESCAPES.get(char) or (f"\\u{ord(char):04x}" if ord(char) < 32 or ord(char) == 127 else char)
        for char in value
    )
    return f'"{escaped}"'
