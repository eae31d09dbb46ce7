#!/usr/bin/env bash
# Writes requirements/*.lock from pyproject.toml, with hashes, for every platform and Python we support.
# Needs uv. Each later lock is held to the versions of dev.lock, so that one environment can have them all.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_CUSTOM_COMPILE_COMMAND="make lock"

compile() {
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
        --no-annotate "$@"
}

compile pyproject.toml --group dev --output-file requirements/dev.lock
for group in docs fuzz bench; do
    compile pyproject.toml --group build --group "$group" --constraint requirements/dev.lock \
        --output-file "requirements/$group.lock"
done
compile pyproject.toml --group build --constraint requirements/dev.lock --output-file requirements/core.lock
