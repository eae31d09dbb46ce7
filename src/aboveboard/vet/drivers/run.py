# Runs inside a world, under the candidate's interpreter: standard library only, nothing imported before it is needed.
# It is ordinary, readable code on purpose: the candidate can see it and gains nothing by recognising it.
from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

spec: dict[str, Any]


def mark(name: str) -> None:
    try:
        os.close(os.open(spec["mark"] + name, os.O_RDONLY))
    except OSError:
        pass


def shift_clock(seconds: float) -> None:
    import datetime  # noqa: ICN001
    import time

    clock, clock_ns, local, gm, text = time.time, time.time_ns, time.localtime, time.gmtime, time.strftime
    time.time = lambda: clock() + seconds
    time.time_ns = lambda: clock_ns() + int(seconds * 1_000_000_000)
    time.localtime = lambda when=None: local(time.time() if when is None else when)
    time.gmtime = lambda when=None: gm(time.time() if when is None else when)
    time.strftime = lambda form, *when: text(form, *(when or (time.localtime(),)))
    real_date, real_datetime = datetime.date, datetime.datetime

    class Instance(type):
        # An object made by C code is still a date to whoever asks.
        def __instancecheck__(cls, value: object) -> bool:
            real = originals.get(cls)
            return type.__instancecheck__(cls, value) if real is None else isinstance(value, real)

    def date_today(_: object) -> object:
        return real_date.fromtimestamp(time.time())

    def datetime_now(_: object, tz: Any = None) -> object:
        return real_datetime.fromtimestamp(time.time(), tz)

    def datetime_utcnow(_: object) -> object:
        return real_datetime.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)  # noqa: UP017

    now: Any = classmethod(datetime_now)
    later = {"now": now, "today": now, "utcnow": classmethod(datetime_utcnow)}
    changed: Any = datetime
    changed.date = Instance("date", (real_date,), {"today": classmethod(date_today)})
    changed.datetime = Instance("datetime", (real_datetime,), later)
    originals: dict[type, type] = {changed.date: real_date, changed.datetime: real_datetime}


def resolve(entry: str) -> Any:
    import importlib

    module, _, attribute = entry.partition(":")
    value: Any = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        value = getattr(value, part)
    return value


def save(result: object, path: str) -> None:
    if result is None or os.path.exists(path) or isinstance(result, int):
        return
    if isinstance(result, str):
        result = result.encode("utf-8", "surrogateescape")
    elif not isinstance(result, (bytes, bytearray)):
        result = json.dumps(result, indent=2, sort_keys=True, default=str).encode()
    with open(path, "wb") as stream:
        stream.write(result)


def load_adapter(path: str) -> Any:
    import importlib.util

    found = importlib.util.spec_from_file_location("adapter", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def argument(way: str, path: str) -> object:
    if way == "paths":
        return path
    with open(path, "rb") as stream:
        raw = stream.read()
    if way == "bytes":
        return raw
    text = raw.decode("utf-8")
    return json.loads(text) if way == "json" else text


def imports() -> int:
    import importlib
    import traceback

    failed = 0
    for name in spec["modules"]:
        try:
            importlib.import_module(name)
        except Exception:
            failed += 1
            traceback.print_exc()
    mark("exit")
    return 1 if spec["modules"] and failed == len(spec["modules"]) else 0


def call() -> int:
    if spec.get("script"):
        import runpy

        sys.argv = [spec["script"], *spec["argv"]]
        sys.path.insert(0, os.path.dirname(spec["script"]))
        mark("call")
        runpy.run_path(spec["script"], run_name="__main__")
        mark("exit")
        return 0
    source, target = spec["input"], spec["output"]
    if spec.get("adapter"):
        import importlib

        module = importlib.import_module(spec["modules"][0]) if spec["modules"] else None
        adapter = load_adapter(spec["adapter"])
        mark("call")
        save(adapter.run(module, source, target), target)
        mark("exit")
        return 0
    function = resolve(spec["entry"])
    if not callable(function):
        sys.exit(f"{spec['entry']} is not callable")
    mark("call")
    if spec["argv"] is not None:
        sys.argv = [spec["entry"].partition(":")[0].rpartition(".")[2], *spec["argv"]]
        try:
            status = function()
        finally:
            mark("exit")
        return status if isinstance(status, int) else 0
    way = spec["pass"]
    result = function(source, target) if way == "paths" else function(argument(way, source))
    save(result, target)
    mark("exit")
    return 0


if __name__ == "__main__":
    spec = json.loads(sys.argv.pop(1))
    del sys.path[0]
    sys.path[:0] = spec.get("path", [])
    if spec.get("shift"):
        shift_clock(spec["shift"])
    mark("import")
    sys.exit(imports() if spec["mode"] == "import" else call())
