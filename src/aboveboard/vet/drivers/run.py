# Runs inside a world, under the candidate's interpreter: standard library only, nothing imported before it is needed.
# It is ordinary, readable code on purpose: the candidate can see it and gains nothing by recognising it.
import json
import os
import sys


def mark(name):
    try:
        os.close(os.open(spec["mark"] + name, os.O_RDONLY))
    except OSError:
        pass


def shift_clock(seconds):
    import datetime
    import time

    now, now_ns, local, gm, text = time.time, time.time_ns, time.localtime, time.gmtime, time.strftime
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1_000_000_000)
    time.localtime = lambda when=None: local(time.time() if when is None else when)
    time.gmtime = lambda when=None: gm(time.time() if when is None else when)
    time.strftime = lambda form, when=None: text(form, time.localtime() if when is None else when)
    real_date, real_datetime = datetime.date, datetime.datetime

    class _Instance(type):
        def __instancecheck__(cls, value):
            return isinstance(value, cls.__mro__[1])

    class date(real_date, metaclass=_Instance):
        @classmethod
        def today(cls):
            return real_date.fromtimestamp(time.time())

    class datetime_(real_datetime, metaclass=_Instance):
        @classmethod
        def now(cls, tz=None):
            return real_datetime.fromtimestamp(time.time(), tz)

        @classmethod
        def today(cls):
            return real_datetime.fromtimestamp(time.time())

        @classmethod
        def utcnow(cls):
            return real_datetime.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)

    datetime_.__name__ = datetime_.__qualname__ = "datetime"
    datetime.date, datetime.datetime = date, datetime_


def resolve(entry):
    import importlib

    module, _, attribute = entry.partition(":")
    value = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        value = getattr(value, part)
    return value


def save(result, path):
    if result is None or os.path.exists(path) or isinstance(result, int):
        return
    if isinstance(result, str):
        result = result.encode("utf-8", "surrogateescape")
    elif not isinstance(result, (bytes, bytearray)):
        result = json.dumps(result, indent=2, sort_keys=True, default=str).encode()
    with open(path, "wb") as stream:
        stream.write(result)


def load_adapter(path):
    import importlib.util

    found = importlib.util.spec_from_file_location("adapter", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def argument(way, path):
    if way == "paths":
        return path
    with open(path, "rb") as stream:
        raw = stream.read()
    if way == "bytes":
        return raw
    text = raw.decode("utf-8")
    return json.loads(text) if way == "json" else text


def imports():
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


def call():
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
        sys.exit("%s is not callable" % spec["entry"])
    mark("call")
    if spec["argv"] is not None:
        sys.argv = [spec["entry"].partition(":")[0].rpartition(".")[2], *spec["argv"]]
        try:
            status = function()
        finally:
            mark("exit")
        return status if isinstance(status, int) else 0
    if spec["pass"] == "paths":
        result = function(source, target)
    else:
        result = function(argument(spec["pass"], source))
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
