"""A whole agent harness in a world, headless: it reaches the declared model, its tools leave their traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aboveboard.world import Mount, Service, World

from . import programs
from .model_server import COMMAND, LAST_WORD, ModelServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("world_available"), pytest.mark.timeout(600)]

CONFIG = {
    "$schema": "https://opencode.ai/config.json",
    "provider": {
        "local": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "http://model.test:8080/v1", "apiKey": "none"},
            "models": {"scripted": {"tool_call": True, "limit": {"context": 32000, "output": 4000}}},
        }
    },
    "permission": "allow",
    "autoupdate": False,
    "share": "disabled",
}


def test_opencode_runs_a_tool_for_a_model_that_is_a_declared_service(tmp_path: Path) -> None:
    try:
        folder = programs.npm_packages(("opencode-ai@1.18.33",))
    except programs.Missing as reason:
        pytest.skip(str(reason))
    workspace = tmp_path / "work"
    workspace.mkdir()
    with ModelServer() as server:
        service = Service("model", "model.test", 8080, f"tcp:127.0.0.1:{server.server_address[1]}")
        with World(workspace=workspace, services=[service], mounts=[Mount(folder, folder, "ro")]) as world:
            world.put("/home/dev/.config/opencode/opencode.json", json.dumps(CONFIG).encode())
            done = world.run(
                [
                    *(f"{folder}/node_modules/opencode-linux-x64/bin/opencode", "--model", "local/scripted"),
                    *("run", "--format", "json", "Make a file."),
                ],
                env={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
                timeout=120,
            )
            made = world.get("made.txt")
        evidence = world.close()

    assert done.returncode == 0, done.stderr
    assert LAST_WORD in done.stdout.decode()
    assert made == b"made by the tool\n"
    assert not (workspace / "made.txt").exists()
    told = [m["content"] for r in server.requests for m in r["messages"] if m["role"] == "tool"]
    assert any("made by the tool" in str(content) for content in told)
    events = list(evidence.events())
    assert any(e.type == "exec" and COMMAND in list(e.data.get("argv", ())) for e in events)
    assert any(e.type == "flow" and e.text("service") == "model" for e in events)
