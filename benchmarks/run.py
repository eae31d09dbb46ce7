"""Speed, size and false alarms, as ratios in one run: what ``make bench`` runs.

Every figure is measured beside its rivals in the same minutes: one round runs each rival once, in turn, and what is
compared is the median over the rounds of the ratio *within* a round, so that a machine that slows down for a while
slows all of them. The exit status is 0 when every bar is held, 1 when one is not, 2 when the measurement itself failed.

    python benchmarks/run.py                 # everything
    python benchmarks/run.py --rounds 5      # quicker
    python benchmarks/run.py --only speed    # without the false alarms
    python benchmarks/run.py --write         # also write docs/reference/performance.md
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aboveboard.errors import AboveboardError
from aboveboard.world import World, syscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = Path(__file__).resolve().parent
TASK = HERE / "mixed_task.py"
EXPECTED = b"1225 100 child\n"
PAGE = HERE.parent / "docs" / "reference" / "performance.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PYTHON = os.path.realpath(sys.executable)

MIXED_RATIO = 1.35
START_MS = 60.0
WORLDS_PER_SECOND = 10.0
MEMORY_MIB = 40.0
EVENT_BYTES = 250.0

OPENS = 3000
OPEN_LOOP = f"""
import os, time
for _ in range(200): os.close(os.open("/etc/hostname", 0))
start = time.perf_counter()
for _ in range({OPENS}): os.close(os.open("/etc/hostname", 0))
print((time.perf_counter() - start) / {OPENS} * 1e6)
"""

TRACED = sorted(syscalls.OPEN | syscalls.NAMES | syscalls.METADATA | syscalls.EXEC | syscalls.NETWORK)
"""The effects: what strace is asked to trace, the same calls that a world records."""


class Failed(Exception):
    """The measurement itself did not work."""


@dataclass(frozen=True)
class Bar:
    """One requirement: ``value`` must be at most (or at least) ``limit``; None: not measured, ``note`` says why."""

    name: str
    value: float | None
    limit: float
    unit: str = ""
    at_least: bool = False
    note: str = ""

    @property
    def held(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def row(self) -> tuple[str, str, str, str]:
        word = {True: "pass", False: "FAIL", None: "not measured"}[self.held]
        shown = self.note if self.value is None else f"{self.value:.2f}".rstrip("0").rstrip(".")
        return self.name, f"{'≥' if self.at_least else '≤'} {self.limit:g}{self.unit}", f"{shown}{self.unit}", word


@dataclass
class Samples:
    """Milliseconds of every rival, one value a round, in the order of the rounds."""

    of: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def median(self, name: str) -> float:
        return statistics.median(self.of[name])

    def ratio(self, name: str, other: str) -> tuple[float, float, float]:
        """(median, lower and upper quartile) of ``name`` ÷ ``other`` within the rounds."""
        ratios = [a / b for a, b in zip(self.of[name], self.of[other], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        return middle, low, high


def _clocked(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e3


def _require(stdout: bytes, who: str) -> None:
    if stdout != EXPECTED:
        raise Failed(f"{who} printed {stdout[:200]!r} instead of {EXPECTED!r}")


# --- rivals ------------------------------------------------------------------------------------------------------


def native() -> None:
    """The task as it is."""
    _require(subprocess.run([PYTHON, TASK], stdout=subprocess.PIPE, check=True).stdout, "native")


def strace_command(log: str) -> list[str]:
    """strace at its cheapest: stops only for the effects, writes to a file."""
    return ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=" + ",".join(f"?{n}" for n in TRACED), "-o", log]


def strace() -> None:
    """The task under strace."""
    with tempfile.NamedTemporaryFile(prefix="strace-") as log:
        done = subprocess.run([*strace_command(log.name), PYTHON, TASK], stdout=subprocess.PIPE, check=True)
    _require(done.stdout, "strace")


def sandlock() -> None:
    """The task under sandlock, which reads everything and writes below /tmp: it records nothing, it only confines."""
    from sandlock import Sandbox  # type: ignore[import-not-found,import-untyped,unused-ignore]

    result = Sandbox(fs_readable=["/"], fs_writable=["/tmp", "/dev/null"]).run([PYTHON, str(TASK)], timeout=60)
    if not result.success:
        raise Failed(f"sandlock: {result.error or result.stderr!r}")
    _require(result.stdout, "sandlock")


def one_shot() -> None:
    """``aboveboard trace`` from the shell: the interpreter, the world, the task, the sealed record, the summary."""
    done = subprocess.run(
        [sys.executable, "-m", "aboveboard", "trace", "--workspace", HERE, "--", PYTHON, TASK],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    _require(done.stdout, "aboveboard trace")


def whole(tier: str) -> None:
    """A world made for the task and ended: start, run, witnesses read, log sealed."""
    with World(tier=tier, workspace=HERE) as world:
        completed = world.run([PYTHON, str(TASK)])
    _require(completed.stdout, f"world, tier {tier}")


def inside(world: World) -> None:
    """The task in a world that is already there."""
    _require(world.run([PYTHON, str(TASK)]).stdout, "live world")


def fixed_start(tier: str) -> None:
    """From nothing to the first instruction of a program that does nothing, to the sealed record."""
    with World(tier=tier) as world:
        completed = world.run(["/bin/true"])
    if completed.returncode:
        raise Failed(f"/bin/true returned {completed.returncode}")


def present_rivals() -> tuple[dict[str, Callable[[], None]], dict[str, str]]:
    """(rivals that run here, name → reason for those that do not)."""
    rivals: dict[str, Callable[[], None]] = {}
    absent: dict[str, str] = {}
    for name, action, missing in (
        ("strace", strace, "" if shutil.which("strace") else "strace is not installed (apt install strace)"),
        ("sandlock", sandlock, _sandlock_missing()),
    ):
        if not missing:
            try:
                action()
            except (Failed, subprocess.SubprocessError, OSError) as e:
                missing = f"does not run the task here: {e}"
        if missing:
            absent[name] = missing
        else:
            rivals[name] = action
    return rivals, absent


def _sandlock_missing() -> str:
    try:
        import sandlock as _  # noqa: F401
    except ImportError:
        return "sandlock is not installed (make bench installs it)"
    return ""


# --- measurements ------------------------------------------------------------------------------------------------


def measure_task(rounds: int, tiers: Sequence[str], rivals: dict[str, Callable[[], None]]) -> tuple[Samples, float]:
    """The mixed task under every rival, in turn, after one round that warms up; and bytes an event of the log."""
    samples = Samples()
    live = {tier: World(tier=tier, workspace=HERE).start() for tier in tiers}
    contenders: dict[str, Callable[[], object]] = {"native": native}
    for tier in tiers:
        contenders[f"inside {tier}"] = partial(inside, live[tier])
        contenders[f"whole {tier}"] = partial(whole, tier)
        contenders[f"start {tier}"] = partial(fixed_start, tier)
    contenders |= rivals
    contenders["one-shot"] = one_shot
    try:
        for number in range(rounds + 1):
            for name, action in contenders.items():
                took = _clocked(action)
                if number:
                    samples.of[name].append(took)
    finally:
        for world in live.values():
            evidence = world.close()
    assert evidence.folder is not None
    data = Path(evidence.folder, "events.jsonl").read_bytes()
    return samples, len(data) / data.count(b"\n")


def measure_opens(rounds: int, tiers: Sequence[str], with_strace: bool) -> Samples:
    """Microseconds of one open and close in a loop: the price of a single event."""
    samples = Samples()
    argv = [PYTHON, "-c", OPEN_LOOP]
    live = {tier: World(tier=tier).start() for tier in tiers}
    try:
        for _ in range(rounds):
            samples.of["native"].append(float(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout))
            for tier, world in live.items():
                samples.of[f"inside {tier}"].append(float(world.run(argv).stdout))
            if with_strace:
                done = subprocess.run([*strace_command(os.devnull), *argv], stdout=subprocess.PIPE, check=True)
                samples.of["strace"].append(float(done.stdout))
    finally:
        for world in live.values():
            world.close()
    return samples


def measure_throughput(worlds: int, tier: str) -> float:
    """Short worlds (start, /bin/true, sealed) a second, made by two threads."""
    with ThreadPoolExecutor(2) as pool:
        start = time.perf_counter()
        list(pool.map(lambda _: fixed_start(tier), range(worlds)))
        return worlds / (time.perf_counter() - start)


def measure_memory(count: int, tier: str) -> tuple[float, float] | None:
    """MiB (proportional set size) of the machinery of one world, and of each of ``count`` at once.

    The machinery is the spawner, the supervisors and everything they forked that is ours; the spawner is counted whole
    with one world and shared out with several. None when the kernel does not let us read it (PID 1 of a world is not
    dumpable, which only root may ignore).
    """
    one = _machinery(1, tier)
    return None if one is None else (one, (_machinery(count, tier) or 0.0) / count)


def _machinery(count: int, tier: str) -> float | None:
    worlds = [World(tier=tier).start() for _ in range(count)]
    try:
        total = 0
        spawners = set()
        for world in worlds:
            world.run(["/bin/true"])
            supervisor = world._supervisor_pid
            for pid in (supervisor, *_children(supervisor)):
                total += _pss(pid)
            spawners.add(_parent(supervisor))
        return (total + sum(_pss(pid) for pid in spawners if pid != os.getpid())) / 1024
    except PermissionError:
        return None
    finally:
        for world in worlds:
            world.close()


def _children(pid: int) -> list[int]:
    found = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


# --- the report --------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """Everything one run found."""

    machine: dict[str, str]
    rounds: int
    tiers: list[str]
    times: Sequence[Sequence[str]]
    opens: Sequence[Sequence[str]]
    bars: list[Bar]
    notes: list[str]


def _machine() -> dict[str, str]:
    model = "unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{os.cpu_count()} × {model}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "user": "root" if os.geteuid() == 0 else "ordinary user",
    }


def measure(rounds: int, tiers: Sequence[str]) -> Report:
    """Run every measurement. Raises ``Failed``, or EnvironmentProblem when no world can be made here."""
    machine = _machine()
    load_before = os.getloadavg()[0]
    rivals, absent = present_rivals()
    _say(f"mixed task, {rounds} rounds: native, world ({', '.join(tiers)}), {', '.join([*rivals, 'one-shot'])}")
    task, event_bytes = measure_task(rounds, tiers, rivals)
    _say("one open")
    opens = measure_opens(max(3, rounds // 3), tiers, "strace" in rivals)
    _say("short worlds, memory")
    throughput = {t: statistics.median(measure_throughput(20, t) for _ in range(3)) for t in tiers}
    memory = {t: measure_memory(8, t) for t in tiers}
    machine["load"] = f"{load_before:.2f} before, {os.getloadavg()[0]:.2f} after (one-minute average)"

    bars: list[Bar] = []
    for tier in tiers:
        label = f"tier {tier}"
        bars.append(
            Bar(f"mixed task traced ÷ native, {label}", task.ratio(f"inside {tier}", "native")[0], MIXED_RATIO, "×")
        )
        bars.append(Bar(f"fixed start, {label}", task.median(f"start {tier}"), START_MS, " ms"))
        for rival in ("strace", "sandlock"):
            value = task.ratio(f"inside {tier}", rival)[0] if rival in rivals else None
            bars.append(Bar(f"mixed task traced ÷ {rival}, {label}", value, 1.0, "×", note=absent.get(rival, "")))
        bars.append(
            Bar(f"short worlds with two threads, {label}", throughput[tier], WORLDS_PER_SECOND, "/s", at_least=True)
        )
        one = memory[tier]
        bars.append(
            Bar(
                f"memory of one world, {label}",
                one[0] if one else None,
                MEMORY_MIB,
                " MiB",
                note="only root can read the memory of a world's PID 1",
            )
        )
    bars.append(Bar("event log, bytes an event", event_bytes, EVENT_BYTES))

    names = {"native": "native", "one-shot": "`aboveboard trace` from the shell", "sandlock": "sandlock"}
    names["strace"] = "`strace -f --seccomp-bpf`, the same calls"
    for tier in tiers:
        names[f"inside {tier}"] = f"in a live world, tier {tier}"
        names[f"whole {tier}"] = f"whole world (start, run, seal), tier {tier}"
    times = []
    for name, shown in names.items():
        if name in task.of:
            middle, low, high = task.ratio(name, "native")
            times.append((shown, f"{task.median(name):.0f}", f"{middle:.2f}", f"{low:.2f}–{high:.2f}"))
    open_rows = [
        (names[name], f"{statistics.median(values):.1f}", f"{statistics.median(values) - opens.median('native'):.1f}")
        for name, values in opens.of.items()
    ]
    notes = [f"{name}: {reason}" for name, reason in absent.items()]
    notes += [
        f"memory, tier {tier}: {both[0]:.1f} MiB for one world, {both[1]:.1f} MiB each for eight at once"
        for tier, both in memory.items()
        if both is not None
    ]
    return Report(machine, rounds, list(tiers), times, open_rows, bars, notes)


def _say(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def as_markdown(report: Report) -> str:
    """The measured part of the page, also what is printed."""
    m = report.machine
    head = f"{m['date']}, {m['processor']}, Linux {m['kernel']}, Python {m['python']}, {m['user']}; "
    head += f"load {m['load']}; {report.rounds} rounds."
    parts = [
        head,
        _markdown(("bar", "required", "measured", ""), [b.row() for b in report.bars]),
        "The mixed task, medians; the ratio is taken within a round, its quartiles in the last column:",
        _markdown(("", "ms", "÷ native", "quartiles"), report.times),
        "One `open` and `close` in a loop, medians:",
        _markdown(("", "µs", "added"), report.opens),
    ]
    parts += [f"- {note}" for note in report.notes]
    return "\n\n".join(parts) + "\n"


def write_page(text: str, page: Path = PAGE) -> None:
    """Put the measured part between its markers. Raises ``Failed`` when they are not there."""
    old = page.read_text(encoding="utf-8")
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Failed(f"{page} has no {BEGIN} … {END}: put the markers back, the figures go between them")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure speed, size and false alarms beside named rivals.")
    parser.add_argument("--rounds", type=int, default=21, help="rounds of the mixed task (default 21)")
    parser.add_argument("--tiers", default="", help="comma-separated; default: U, and R for root")
    parser.add_argument("--only", choices=["speed", "false-alarms"], help="one of the two parts")
    parser.add_argument("--write", action="store_true", help=f"write the figures into {PAGE.relative_to(HERE.parent)}")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(argv)
    if options.rounds < 2:
        parser.error("--rounds must be at least 2: a median of one is no median")
    tiers = [t for t in options.tiers.split(",") if t] or (["U", "R"] if os.geteuid() == 0 else ["U"])
    status = 0
    if options.only != "false-alarms":
        try:
            report = measure(options.rounds, tiers)
            text = as_markdown(report)
            print(text)
            if options.write:
                write_page(text)
            if options.json:
                options.json.write_text(json.dumps(asdict(report), indent=1), encoding="utf-8")
        except (Failed, AboveboardError, subprocess.SubprocessError, OSError) as e:
            print(f"could not measure: {e}", file=sys.stderr)
            return 2
        status = 0 if all(bar.held is not False for bar in report.bars) else 1
    if options.only != "speed":
        _say("false alarms")
        status = max(status, subprocess.run([sys.executable, HERE / "benign.py"], check=False).returncode)
    return status


if __name__ == "__main__":
    sys.exit(main())
