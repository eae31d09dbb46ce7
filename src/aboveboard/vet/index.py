"""Fetch an sdist as a file from a package index, without pip.

``pip download --no-binary`` runs a project's build back end to learn its metadata; that must not happen outside a
world. The simple API (PEP 503 in HTML, PEP 691 in JSON) is all that is needed. Which indexes: pip's own configuration.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from aboveboard.errors import EnvironmentProblem, TargetError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from packaging.requirements import Requirement
    from packaging.version import Version

DEFAULT_INDEX = "https://pypi.org/simple"
MAX_PAGE_BYTES = 32 << 20
MAX_SDIST_BYTES = 1 << 30
TIMEOUT_SECONDS = 30
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"


@dataclass(frozen=True, slots=True)
class Link:
    """One file of a project on an index."""

    filename: str
    url: str
    sha256: str | None
    requires_python: str | None
    yanked: bool


def download_sdist(need: Requirement, folder: Path, *, pip: Sequence[str]) -> Path:
    """The newest sdist that satisfies ``need``, in ``folder``, its digest checked against the index.

    Raises TargetError when no index has one, EnvironmentProblem when none can be reached.
    """
    from packaging.utils import canonicalize_name

    reasons: list[str] = []
    reached = False
    for index in index_urls(pip):
        url = f"{index.rstrip('/')}/{canonicalize_name(need.name)}/"
        try:
            body, kind, final = _get(url, MAX_PAGE_BYTES)
        except FileNotFoundError:
            reached = True
            continue
        except OSError as problem:
            reasons.append(f"{redact(index)}: {getattr(problem, 'reason', None) or problem}")
            continue
        reached = True
        link = choose(parse_page(body, kind, final), need)
        if link is not None:
            return _download(link, folder)
    if reached:
        raise TargetError(
            f"no index has a wheel or an sdist for {need} that fits this Python",
            advice="Check the spelling and the version: pip index versions NAME.",
        )
    raise EnvironmentProblem(
        f"{need} cannot be fetched: no package index answers ({'; '.join(reasons) or 'none is configured'})",
        advice="Check the network and pip's configuration (pip config list), or give a wheel file.",
    )


def index_urls(pip: Sequence[str]) -> list[str]:
    """Index URLs as pip would use them: environment, then configuration files, then PyPI."""
    listed = subprocess.run(
        [*pip, "config", "list"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return parse_config(listed.stdout)


def parse_config(text: str) -> list[str]:
    """Index URLs in the output of ``pip config list``."""
    main: dict[str, str] = {}
    extra: list[str] = []
    for line in text.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        try:
            words = str(ast.literal_eval(value)).split()
        except (ValueError, SyntaxError):
            continue
        if option == "index-url" and words:
            main[section] = words[0]
        elif option == "extra-index-url":
            extra += [word for word in words if word not in extra]
    chosen = next((main[section] for section in (":env:", "download", "global") if section in main), DEFAULT_INDEX)
    return [chosen, *extra]


def parse_page(body: bytes, kind: str, base: str) -> list[Link]:
    """The files on a project page. Malformed entries are left out."""
    if "json" in kind:
        try:
            page = json.loads(body)
        except ValueError:
            return []
        files = page.get("files") if isinstance(page, dict) else None
        return [link for item in files if (link := _json_link(item, base))] if isinstance(files, list) else []
    parser = _Anchors(base)
    parser.feed(body.decode("utf-8", "replace"))
    return parser.links


def choose(links: Sequence[Link], need: Requirement) -> Link | None:
    """The newest sdist that satisfies ``need`` on this Python; yanked files only for an exact pin (PEP 592)."""
    import platform

    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename

    exact = any(spec.operator in ("==", "===") for spec in need.specifier)
    found: dict[Version, Link] = {}
    for link in links:
        try:
            name, version = parse_sdist_filename(link.filename)
            fits = SpecifierSet(link.requires_python or "").contains(platform.python_version(), prereleases=True)
        except (InvalidSdistFilename, InvalidSpecifier):
            continue
        if name == canonicalize_name(need.name) and fits and (exact or not link.yanked):
            found.setdefault(version, link)
    fitting = list(need.specifier.filter(found))
    return found[max(fitting)] if fitting else None


def redact(url: str) -> str:
    """The URL without credentials, for messages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _json_link(item: object, base: str) -> Link | None:
    if not isinstance(item, dict):
        return None
    entry: dict[str, Any] = item
    name, url, hashes = entry.get("filename"), entry.get("url"), entry.get("hashes")
    if not isinstance(name, str) or not isinstance(url, str):
        return None
    sha256 = hashes.get("sha256") if isinstance(hashes, dict) else None
    python = entry.get("requires-python")
    return Link(
        name,
        urljoin(base, url),
        sha256 if isinstance(sha256, str) else None,
        python if isinstance(python, str) else None,
        bool(entry.get("yanked")),
    )


class _Anchors(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[Link] = []
        self._base = base

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        href = values.get("href")
        if tag != "a" or not href:
            return
        try:
            url, fragment = urldefrag(urljoin(self._base, href))
            name = unquote(urlsplit(url).path.rsplit("/", 1)[-1])
        except ValueError:
            return
        sha256 = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        self.links.append(Link(name, url, sha256, values.get("data-requires-python"), "data-yanked" in values))


def _get(url: str, limit: int) -> tuple[bytes, str, str]:
    """Body, content type and final URL. Raises FileNotFoundError for a 404, OSError otherwise."""
    with _open(url) as response:
        body = response.read(limit + 1)
        if len(body) > limit:
            raise OSError(f"the page has more than {limit:,} bytes")
        return body, response.headers.get("Content-Type") or "text/html", response.geturl()


def _open(url: str) -> Any:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    parts = urlsplit(url)
    if parts.scheme not in ("https", "http", "file"):
        raise OSError(f"an index of scheme {parts.scheme!r} is not supported")
    if parts.scheme == "file" and os.path.isdir(unquote(parts.path)):
        url = url.rstrip("/") + "/index.html"
    request = Request(redact(url), headers={"Accept": _ACCEPT})
    if parts.username:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        request.add_header("Authorization", f"Basic {base64.b64encode(secret).decode()}")
    try:
        return urlopen(request, timeout=TIMEOUT_SECONDS)
    except HTTPError as problem:
        if problem.code == 404:
            raise FileNotFoundError(url) from None
        raise OSError(f"HTTP status {problem.code}") from None
    except OSError as problem:
        if parts.scheme == "file":
            raise FileNotFoundError(url) from problem
        raise


def _download(link: Link, folder: Path) -> Path:
    target = folder / os.path.basename(link.filename)
    digest = hashlib.sha256()
    size = 0
    try:
        with _open(link.url) as response, target.open("wb") as out:
            while chunk := response.read(1 << 20):
                size += len(chunk)
                if size > MAX_SDIST_BYTES:
                    raise TargetError(
                        f"{link.filename!r} has more than {MAX_SDIST_BYTES:,} bytes", advice="Vet a part."
                    )
                digest.update(chunk)
                out.write(chunk)
    except OSError as problem:
        raise EnvironmentProblem(
            f"{redact(link.url)} cannot be fetched: {getattr(problem, 'reason', None) or problem}",
            advice="Check the network and try again.",
        ) from None
    if link.sha256 is not None and digest.hexdigest() != link.sha256:
        raise TargetError(
            f"{link.filename!r} has sha256 {digest.hexdigest()}, the index says {link.sha256}",
            advice="The download was damaged or replaced: try again, then ask the index's operator.",
        )
    return target
