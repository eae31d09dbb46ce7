"""What a path is: which root of the world it lies under, and what kind of place that makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aboveboard.contract import normalise
from aboveboard.oracles import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RUNTIME = "runtime"
CANDIDATE = "candidate"
RIVAL = "rival"
INPUT = "input"
HOME = "home"
TMP = "tmp"
PROC = "proc"
DEV = "dev"
SYS = "sys"
WORKSPACE = "workspace"
OTHER = "other"

_FIXED = {"/proc": PROC, "/dev": DEV, "/sys": SYS, "/tmp": TMP, "/var/tmp": TMP, "/dev/shm": TMP}
_MAX_CACHED = 50_000


class Places:
    """Classifies absolute paths by the deepest root they lie under; roots are fixed before the run."""

    def __init__(self, roots: Mapping[str, object], *, workspace: str, home: str, mounts: Iterable[str] = ()) -> None:
        self._mounts = tuple(normalise(path) for path in mounts)
        self.home = normalise(home)
        self.workspace = normalise(workspace)
        table = dict(_FIXED)
        table.update(dict.fromkeys(catalogue.RUNTIME_PATHS, RUNTIME))
        if workspace:
            table[self.workspace] = WORKSPACE
        if home:
            table[self.home] = HOME
        for name, paths in roots.items():
            for path in paths if isinstance(paths, list) else ():
                if isinstance(path, str) and path.startswith("/"):
                    table[normalise(path)] = name
        self._table = table
        self._directories: dict[str, str] = {}
        self._scaffold: set[str] | None = None

    def of(self, path: str) -> str:
        """The class of a path."""
        found = self._table.get(path)
        if found is not None:
            return found
        directory = path.rpartition("/")[0]
        found = self._directories.get(directory)
        if found is None:
            found = self._walk(directory)
            if len(self._directories) < _MAX_CACHED:
                self._directories[directory] = found
        return found

    def scaffold(self, path: str) -> bool:
        """Whether a path is a root or mount point, or leads to one: the world itself makes these to mount things on."""
        if self._scaffold is None:
            self._scaffold = {*self._table, *self._mounts}
            for root in (*self._table, *self._mounts):
                while root:
                    root = root.rpartition("/")[0]
                    self._scaffold.add(root)
        return path in self._scaffold

    def _walk(self, directory: str) -> str:
        while directory:
            found = self._table.get(directory)
            if found is not None:
                return found
            directory = directory.rpartition("/")[0]
        return self._table.get("/", OTHER)

    def temporary(self, path: str, place: str) -> bool:
        """Whether this is where temporary files belong. A workspace under /tmp is a workspace."""
        return place == TMP or (place in (OTHER, DEV) and path.startswith(catalogue.TEMPORARY))

    def home_cache(self, path: str) -> bool:
        """Whether well-behaved libraries write here unasked."""
        if not path.startswith(self.home + "/"):
            return False
        rest = path[len(self.home) :]
        return (rest + "/").startswith(catalogue.HOME_CACHES) or rest in catalogue.HOME_CACHE_FILES

    def system_cache(self, path: str) -> bool:
        """Whether a system library keeps an index here, and renews it in whatever program uses it."""
        return (path + "/").startswith(catalogue.SYSTEM_CACHES)

    def credential(self, path: str) -> bool:
        """Whether a path is where secrets are kept, planted or not."""
        if path.endswith(catalogue.CREDENTIAL_ENDINGS):
            return True
        for part in catalogue.CREDENTIAL_DIRECTORIES:
            if part in path:
                name = path.rpartition("/")[2]
                return name not in catalogue.CREDENTIAL_HARMLESS and not name.endswith(".pub")
        return False

    def persistence(self, path: str) -> bool:
        """Whether something will run or obey a file at this path later."""
        name = path.rpartition("/")[2]
        if name in catalogue.PERSISTENCE_NAMES:
            return True
        if path.endswith(catalogue.PERSISTENCE_ENDINGS) and any(part in path for part in catalogue.TOOL_PARTS):
            return True
        if name.endswith(catalogue.PERSISTENCE_INERT):
            return False
        return any(part in path for part in catalogue.PERSISTENCE_PARTS)

    def tool(self, path: str, place: str) -> bool:
        """Whether a path belongs to the runtime, an installed package or the PATH."""
        if place == RUNTIME or any(part in path for part in catalogue.TOOL_PARTS):
            return True
        if place == OTHER:
            return path.startswith(catalogue.TOOL_DIRECTORIES)
        if place == HOME:
            return path[len(self.home) :].startswith(catalogue.HOME_TOOL_DIRECTORIES)
        return False
