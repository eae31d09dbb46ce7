#!/usr/bin/env bash
# The tests as whoever calls; root has them run once more as an ordinary user, since both must work. Arguments go to pytest.
set -uo pipefail
cd "$(dirname "$0")/.."

first=0
# One worker a processor; a file stays with one worker, whose worlds and fixtures it shares.
.venv/bin/python -m pytest -q -n auto --dist loadfile "$@" || first=$?
[ "$(id -u)" -eq 0 ] || exit "$first"

echo
echo "once more, as an ordinary user:"
second=0
scripts/test-as-user.sh "$@" || second=$?
if [ "$first" -ne 0 ]; then
    echo "the run as root failed (exit code $first), see above" >&2
    exit "$first"
fi
exit "$second"
