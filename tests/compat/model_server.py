"""A scripted OpenAI-compatible chat endpoint: one shell tool call, then a last word. Streams, as real ones do."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMAND = "echo made by the tool > made.txt; cat made.txt"
LAST_WORD = "The file is there."


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        deltas = _answer(request)
        events = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
        reason = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        events.append({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}})
        common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
        body = "".join(f"data: {json.dumps(common | e)}\n\n" for e in events) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing: the requests are kept."""


def _answer(request: dict[str, Any]) -> list[dict[str, Any]]:
    if not request.get("tools"):
        return [{"role": "assistant", "content": "A title"}]
    if any(message["role"] == "tool" for message in request["messages"]):
        return [{"role": "assistant", "content": LAST_WORD}]
    arguments = json.dumps({"command": COMMAND, "description": "make a file"})
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "bash", "arguments": arguments}}
    return [{"role": "assistant", "content": None}, {"tool_calls": [call]}]


class ModelServer(ThreadingHTTPServer):
    """Serves on a free port of 127.0.0.1 until left; ``requests`` are the bodies received."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
