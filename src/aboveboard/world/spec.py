"""What a world is given: the values a user chooses, and the plain form in which they reach the supervisor."""

from __future__ import annotations

from dataclasses import asdict, dataclass

WITNESSES = ("notify", "overlay", "sink", "packets", "pidns", "canary", "escape")
"""Names of the witnesses of tier U; tier R adds ``fanotify``."""

TIERS = ("auto", "R", "U", "N", "P", "refuse")
"""What may be asked for (``docs/explanation/assurance-tiers.md``)."""


@dataclass(frozen=True)
class Service:
    """A named service that a world may talk to.

    ``host`` and ``port`` are what programs inside use. ``upstream`` is ``unix:/path`` or ``tcp:HOST:PORT`` (on the
    host) or ``inside:PORT`` (a server run in the world, on its loopback). Both directions are recorded.
    """

    name: str
    host: str
    port: int
    upstream: str


@dataclass(frozen=True)
class Limits:
    """Bounds of one world; reaching one is recorded, and the verdict is then not ``clean``.

    Seconds, bytes, and counts. ``memory_bytes`` bounds each process's data segment and the sum of all resident sets
    (a control group as well where one can be had); ``disk_bytes`` all files written; ``file_bytes`` one file.
    """

    wall_seconds: float = 300.0
    processes: int = 512
    memory_bytes: int = 4 << 30
    disk_bytes: int = 1 << 30
    file_bytes: int = 1 << 30
    output_bytes: int = 16 << 20
    payload_bytes: int = 64 << 20
    events: int = 2_000_000
    open_files: int = 4096

    def plain(self) -> dict[str, float]:
        """As a dictionary of numbers."""
        return asdict(self)
