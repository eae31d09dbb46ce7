#!/usr/bin/env bash
# The tests as the ordinary user aboveboard-ci, in a copy of the checkout in that user's home. Needs root.
# The copy's environment is kept, so that the next run is fast. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"
user=aboveboard-ci

fail() {
    echo "test-as-user: $*" >&2
    exit 2
}

[ "$(id -u)" -eq 0 ] || fail "needs root, to become another user; 'make test' runs the tests as yourself."
for tool in useradd runuser flock tar; do
    command -v "$tool" >/dev/null || fail "$tool is missing. Install it: apt install passwd util-linux tar."
done
id "$user" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$user"
home=$(getent passwd "$user" | cut -d: -f6)
[ -d "$home" ] || fail "the user $user has no home folder. Remove the user (userdel $user), try again."

# Two runs at once would overwrite each other's copy.
exec 9<"$home"
flock 9

# Where to get packages from is this machine's business, the rest of root's environment is not the user's.
environment=(HOME="$home" USER="$user" LOGNAME="$user" LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin)
while IFS= read -r -d '' variable; do
    case $variable in
        PIP_* | UV_* | SSL_CERT_FILE=* | SSL_CERT_DIR=* | *_proxy=* | *_PROXY=* | CI=* | ABOVEBOARD_* | NODE_EXTRA_CA_CERTS=*)
            environment+=("$variable")
            ;;
    esac
done < <(env -0)

as_user() {
    runuser -u "$user" -- env -i -C "$home" "${environment[@]}" "$@" 9<&-
}

# Root's own interpreter may lie in a folder that nobody else can enter.
python=
for candidate in ${USER_PYTHON:-} /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
    if python=$(as_user "$candidate" -c 'import sys; sys.version_info < (3, 11) and sys.exit(1); print(sys.executable)' 2>/dev/null); then
        break
    fi
done
[ -n "$python" ] || fail "no Python 3.11 or later that $user can run. Install one (apt install python3 python3-venv) or name it: USER_PYTHON=…"

# The user unpacks, so that root never writes where a user may have laid a link.
as_user mkdir -p checkout
as_user find checkout -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} +
tar -c --exclude=./.git --exclude=./.venv --exclude=./site --exclude=__pycache__ --exclude='./.*_cache' --exclude=./.hypothesis . |
    as_user tar -x --no-same-owner -C checkout

arguments=
for argument in "$@"; do
    arguments+=" $(printf '%q' "$argument")"
done
as_user make --no-print-directory -C checkout PYTHON="$python" test ARGS="$arguments"
