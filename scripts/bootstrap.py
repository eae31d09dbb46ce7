"""Makes .venv from a lock with hashes: ``python3 scripts/bootstrap.py GROUP…``; the Makefile calls it.

Needs nothing but Python 3.11 and a package index. uv is used when it is there and works. Debian splits ensurepip off
into python3-venv; without it pip itself is fetched from the index, held to the digest in the lock. This file is parsed
by whatever ``python3`` is, so that an old one gets a sentence and no syntax error: no syntax younger than Python 3.6.
"""

import configparser
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from urllib.parse import urljoin

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
MINIMUM = (3, 11)
GROUPS = ("core", "dev", "docs", "fuzz", "bench")
DEFAULT_INDEX = "https://pypi.org/simple"
TIMEOUT_SECONDS = 60
MAX_PAGE_BYTES = 32 << 20
# Set by an outer virtual environment, test run or pip; they would redirect what is installed here.
FOREIGN = ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV", "VIRTUAL_ENV")


class Problem(Exception):
    """What is wrong and what to do next."""


def main(groups):
    """Brings .venv up to date with the locks of ``groups`` and marks each done with a stamp file."""
    unknown = [group for group in groups if group not in GROUPS]
    if unknown or not groups:
        raise Problem("Name one or more groups: {}.".format(" ".join(GROUPS)))
    if sys.version_info < MINIMUM:
        raise Problem(
            "Aboveboard needs Python {}.{} or later; {} is {}.{}. Install python3.11 (apt install python3.11), "
            "or name another one: make PYTHON=/path/to/python3.12 …".format(*MINIMUM, sys.executable, *sys.version_info)
        )
    for name in FOREIGN:
        os.environ.pop(name, None)
    with only_one():
        uv = find_uv()
        if not is_current():
            say("creating .venv with Python {}.{}.{}".format(*sys.version_info))
            create(uv)
        for group in groups:
            install(group, uv)
        for group in groups:
            with open(os.path.join(VENV, ".aboveboard-" + group), "w") as stamp:
                stamp.write(group + "\n")


@contextlib.contextmanager
def only_one():
    """Two makes at once must not install into the same place."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def find_uv():
    """The path of uv, or None when it is missing or not wanted (ABOVEBOARD_NO_UV)."""
    return None if os.environ.get("ABOVEBOARD_NO_UV") else shutil.which("uv")


def is_current():
    """Whether .venv works, was made by this interpreter, and has a pip that can fill it."""
    code = "import sys, importlib.util as u; print(sys.base_prefix, sys.version_info[:3], bool(u.find_spec('pip')))"
    try:
        found = subprocess.check_output([VENV_PYTHON, "-I", "-c", code], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return False
    return found.decode(errors="replace").strip() == f"{sys.base_prefix} {sys.version_info[:3]} True"


def create(uv):
    """A new .venv with pip in it."""
    try:
        import venv
    except ImportError:
        raise Problem(
            f"{sys.executable} has no venv module. Install python3-venv, or name another Python: PYTHON=…"
        ) from None
    # A builder that has to work without ensurepip is the same with it: pip comes from the lock in either case.
    try:
        venv.EnvBuilder(clear=True, symlinks=True, with_pip=False).create(VENV)
    except OSError as problem:
        raise Problem(f"{VENV} cannot be created: {problem}. Check who owns the checkout.") from None
    lock = os.path.join(ROOT, "requirements", "core.lock")
    version, digests = pinned("pip", lock)
    if uv and run([uv, "pip", "install", "--quiet", "--python", VENV_PYTHON, "--require-hashes", "-r", lock]):
        return
    if run([VENV_PYTHON, "-Im", "ensurepip", "--default-pip"], quiet=True):
        # Before Python 3.12 ensurepip brings setuptools too, which no lock lists and whose .pth file slows every start.
        run([VENV_PYTHON, "-Im", "pip", "uninstall", "--yes", "setuptools"], quiet=True)
        return
    say(f"this Python has no ensurepip: fetching pip {version} from the index")
    wheel = fetch_wheel("pip", version, digests)
    if not run([VENV_PYTHON, os.path.join(wheel, "pip"), "install", "--quiet", "--no-index", "--no-deps", wheel]):
        raise Problem(
            "pip could not be installed into .venv. Install python3-venv (apt install python3-venv), try again."
        )
    shutil.rmtree(os.path.dirname(wheel))


def install(group, uv):
    """What requirements/GROUP.lock lists, every file held to its digest, and the checkout itself."""
    lock = os.path.join("requirements", group + ".lock")
    say(f"installing {lock}")
    files = ["--quiet", "--require-hashes", "-r", lock]
    project = ["--quiet", "--no-deps", "--no-build-isolation", "--editable", "."]
    if uv:
        base = [uv, "pip", "install", "--python", VENV_PYTHON]
        if run([*base, *files]) and run([*base, *project]):
            return
        say("uv did not manage; trying pip")
    # Twice quiet: pip's warnings (about a mirror, about its cache) have no bearing on what a digest vouches for.
    base = [VENV_PYTHON, "-Im", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install"]
    if not run([*base, *files]) or not run([*base, *project]):
        raise Problem(
            f"{lock} could not be installed; the reason stands above. Check the network and pip's configuration "
            "(pip config list), then try again: what is installed already is kept."
        )


def run(command, quiet=False):
    """Whether ``command`` succeeded; its messages go to stderr, or nowhere."""
    environment = dict(os.environ, PIP_ROOT_USER_ACTION="ignore")
    sink = subprocess.DEVNULL if quiet else 2
    return not subprocess.call(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)


def pinned(name, lock):
    """(version, digests) of ``name`` in a lock."""
    with open(lock) as file:
        text = file.read()
    found = re.search(rf"^{re.escape(name)}==(\S+)((?:.*\\\n)(?:\s+--hash=.*\n?)+)", text, re.MULTILINE)
    if not found:
        raise Problem(f"{lock} does not pin {name}. Write it again: make lock.")
    return found.group(1), set(re.findall(r"--hash=sha256:([0-9a-f]{64})", found.group(2)))


def fetch_wheel(name, version, digests):
    """Path of the wheel of a pure Python project, downloaded and checked, in a new temporary folder."""
    import tempfile

    wanted = f"{name}-{version}-py3-none-any.whl"
    reasons = []
    for index in indexes():
        try:
            page = "{}/{}/".format(index.rstrip("/"), name)
            link = next((link for link in links(*get(page)) if link.split("/")[-1].partition("#")[0] == wanted), None)
            if link is None:
                reasons.append("an index has no " + wanted)
                continue
            body = get(link.partition("#")[0])[0]
        except (OSError, ValueError) as problem:
            reasons.append(str(problem))
            continue
        if hashlib.sha256(body).hexdigest() not in digests:
            reasons.append(f"{wanted} has not the digest in the lock")
            continue
        path = os.path.join(tempfile.mkdtemp(prefix="aboveboard-"), wanted)
        with open(path, "wb") as file:
            file.write(body)
        return path
    raise Problem(
        "{} could not be fetched ({}). Check the network, or install it: apt install python3-venv.".format(
            wanted, "; ".join(reasons)
        )
    )


def get(url):
    """(body, content type, final URL)."""
    request = urllib.request.Request(url, headers={"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.1"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        body = answer.read(MAX_PAGE_BYTES + 1)
        if len(body) > MAX_PAGE_BYTES:
            raise ValueError(f"the index sent more than {MAX_PAGE_BYTES:,} bytes")
        return body, answer.headers.get("Content-Type", ""), answer.geturl()


def links(body, kind, base):
    """The files that a project page of an index names, in JSON (PEP 691) or HTML (PEP 503)."""
    if "json" in kind:
        return [urljoin(base, str(item["url"])) for item in json.loads(body.decode())["files"]]
    return [urljoin(base, link) for link in re.findall(r'href="([^"]+)"', body.decode(errors="replace"))]


def indexes():
    """Index URLs as pip would use them: environment, configuration files (the user's last), then pip's own default."""
    home = os.path.expanduser("~")
    places = [
        os.path.join(folder, "pip", "pip.conf") for folder in os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
    ]
    places += [
        "/etc/pip.conf",
        os.path.join(home, ".pip", "pip.conf"),
        os.path.join(home, ".config", "pip", "pip.conf"),
    ]
    places.append(os.environ.get("PIP_CONFIG_FILE", ""))
    settings = configparser.RawConfigParser(strict=False)
    for place in places:
        with contextlib.suppress(configparser.Error, OSError, UnicodeDecodeError):
            settings.read(place)
    configured = {}
    for section in ("global", "install"):
        if settings.has_section(section):
            configured.update(settings.items(section))
    main_index = os.environ.get("PIP_INDEX_URL") or configured.get("index-url") or DEFAULT_INDEX
    extra = os.environ.get("PIP_EXTRA_INDEX_URL") or configured.get("extra-index-url") or ""
    return [main_index.strip(), *extra.split()]


def say(text):
    sys.stderr.write(f"aboveboard: {text}\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Problem as problem:
        say(f"error: {problem}")
        sys.exit(2)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
