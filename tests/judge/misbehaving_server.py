"""An OpenAI-compatible chat server that misbehaves on purpose; run it as a script, it prints its port and serves.

The behaviour is the first part of the path (base_url http://127.0.0.1:PORT/cut-middle/v1), or `BEHAVE:name` in a message.
Names in `FLEETING` fail for the first two tries of each prompt and then answer; `always-NAME` never answers. Names
that begin with `slow` take 0.1 seconds. The default reply is the rest of a line that contains `REPLY:`, or else a judge's
verdict; `paraphrases` replies like a model that paraphrases and compares questions, `secrets` like one that names key tokens.
GET /stats returns how often each behaviour was requested, when, and how many requests were in flight at once; GET /log/NAME
returns its requests in order.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERDICT = '{"verdict": "YES", "reason": "stated"}'
FLEETING = {
    "rate-limit",
    "rate-limit-mute",
    "error-500",
    "error-503",
    "timeout",
    "malformed",
    "cut-middle",
}
ERRORS = {
    "unauthorized": (401, "Incorrect API key provided: {header}"),
    "forbidden": (403, "No access with {header}"),
    "flagged": (403, "Your input was flagged by moderation"),
    "unknown-model": (404, "The model `tiny` does not exist."),
    "bad-request": (400, "the prompt is too long; got {header}"),
    "broken": (500, "Internal Server Error"),
    "long": (400, "the text about temperature and seed is too long"),
}
FAILURES_FIRST = 2

lock = threading.Lock()
seen: Counter[str] = Counter()
tries: Counter[tuple[str, str]] = Counter()
running: Counter[str] = Counter()
most: Counter[str] = Counter()
arrivals: dict[str, list[float]] = defaultdict(list)
log: dict[str, list[Any]] = defaultdict(list)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionResetError):  # clients are killed
            super().handle()

    def do_GET(self) -> None:
        with lock:
            stats = {"counts": seen, "max_concurrency": most, "arrivals": arrivals}
            asked = log[self.path.removeprefix("/log/")] if self.path.startswith("/log/") else stats
            self.send(200, json.loads(json.dumps(asked)))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = "\n".join(str(message["content"]) for message in body["messages"])
        first = self.path.split("/")[1]
        marked = re.search(r"BEHAVE:(\S+)", text)
        name = marked[1] if marked else "default" if first == "v1" else first
        with lock:
            seen[name] += 1
            tries[name, text] += 1
            number = tries[name, text]
            running[name] += 1
            most[name] = max(most[name], running[name])
            arrivals[name].append(time.monotonic())
            log[name].append(body)
        try:
            self.answer(name, number, text, body)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            with lock:
                running[name] -= 1

    def answer(self, name: str, number: int, text: str, body: dict[str, Any]) -> None:
        always = name.startswith("always-")
        kind = name.removeprefix("always-")
        if kind in FLEETING:
            if always or number <= FAILURES_FIRST:
                self.fail(kind)
            else:
                self.reply(text)
            return
        header = self.headers.get("Authorization", "")
        if kind in ERRORS:
            status, message = ERRORS[kind]
            self.error(status, message.format(header=header))
            return
        match kind:
            case "rate-limit-once":
                if seen[name] == 1:
                    self.error(429, "slow down", headers={"Retry-After": "0.5"})
                else:
                    time.sleep(0.02)
                    self.reply(text)
            case "redirect":
                self.send(307, {}, headers={"Location": "/target/v1/chat/completions?key=abcdef"})
            case "no-system":
                if body["messages"][0]["role"] == "system":
                    self.error(400, "System role not supported")
                else:
                    self.reply(text)
            case "stuck":
                time.sleep(30)
                self.reply(text)
            case "cut-billed":
                self.send(
                    200, completion("", finish="length") | {"usage": {"prompt_tokens": 100, "completion_tokens": 20}}
                )
            case "new-parameters":
                hints = {"response_format": "", "max_tokens": "Use 'max_completion_tokens' instead.", "temperature": ""}
                for parameter, instead in hints.items():
                    if parameter in body:
                        self.error(
                            400, f"Unsupported parameter: '{parameter}' is not supported with this model. {instead}"
                        )
                        return
                if "seed" in body:
                    self.send(422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"]}]})
                    return
                self.reply(json.dumps(body), literal=True)
            case "raw":
                self.send(200, json.loads(text.partition("RAW:")[2]))
            case "web-page":
                self.begin(200, 6, {"Content-Type": "text/html"})
                self.wfile.write(b"<html>")
            case "echo":  # path and header backwards, since keys are removed from replies
                backwards = {"path": self.path[::-1], "authorization": header[::-1]}
                self.reply(json.dumps({**backwards, "body": body}), literal=True)
            case "length-without-text":
                self.send(200, completion("", finish="length"))
            case "content-filter":
                self.send(200, completion(None, finish="content_filter"))
            case "paraphrases":
                self.reply(json.dumps(reworded(text)), literal=True)
            case "secrets":
                self.reply(json.dumps(named(text)), literal=True)
            case _:
                time.sleep(0.1 if kind.startswith("slow") else 0)
                self.reply(text)

    def fail(self, kind: str) -> None:
        match kind:
            case "rate-limit":
                self.error(429, "slow down", headers={"Retry-After": "0.05"})
            case "timeout":
                time.sleep(0.6)
                self.cut()
            case "malformed":
                self.send(200, b'{"choices": [{"message": {"content": "YE')
            case "cut-middle":
                whole = json.dumps(completion(VERDICT)).encode()
                self.begin(200, len(whole), {})
                self.wfile.write(whole[: len(whole) // 2])
                self.cut()
            case "rate-limit-mute":
                self.error(429, "slow down")
            case _:
                self.error(
                    int(kind.removeprefix("error-")),
                    f"out of order, sorry; {self.headers['Authorization'].split()[-1]}",
                )

    def reply(self, text: str, *, literal: bool = False) -> None:
        asked = re.search(r"REPLY:(.*)", text)
        content = text if literal else asked[1].strip() if asked else VERDICT
        sizes = {"prompt_tokens": len(text.split()), "completion_tokens": len(content.split())}
        self.send(200, completion(content) | {"usage": sizes})

    def error(self, status: int, message: str, *, headers: dict[str, str] | None = None) -> None:
        self.send(status, {"error": {"message": message, "type": "error", "code": None}}, headers=headers)

    def send(self, status: int, body: Any, *, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.begin(status, len(data), {"Content-Type": "application/json"} | (headers or {}))
        self.wfile.write(data)

    def begin(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def cut(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


def completion(content: Any, *, finish: str = "stop", refusal: str | None = None) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": refusal}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "chat-1", "object": "chat.completion", "created": 0, "model": "tiny", "choices": [choice]}


def reworded(text: str) -> dict[str, Any]:
    """Return paraphrases of a question, the first being the question itself; or whether two questions have the same meaning."""
    compared = re.search(r"<second-question-.*\n(.*)", text)
    if compared:
        return {"same": "NO" if compared[1].startswith("Unlike that") else "YES"}
    asked = re.search(r"<question-.*\n(.*)", text)
    question = asked[1] if asked else ""
    return {"paraphrases": [f"{lead}{question}" for lead in ("", "Please tell me: ", "Unlike that, ", "I ask you: ")]}


def named(text: str) -> dict[str, Any]:
    """Return the last word of the answer, and a word that it does not contain."""
    answer = re.search(r"<answer-.*\n(.*)", text)
    return {"secrets": [answer[1].split()[-1].strip(".") if answer else "", "Atlantis"]}


def leave_with_parent() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=leave_with_parent, daemon=True).start()
    print(server.server_address[1], flush=True)
    server.serve_forever()
