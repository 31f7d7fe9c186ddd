"""Receive Supabase's database webhooks over HTTP, and answer with the ids of the subscriptions that want them.

    WEBHOOK_SECRET=… python examples/webhook_receiver.py 127.0.0.1 8000 subscriptions.jsonl

The webhook is set up with the header `Authorization: Bearer …` and the same secret.
"""

from __future__ import annotations

import hmac
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from streamer import Engine, EventError

#: Bytes of an event; nobody sends larger ones in earnest.
LARGEST = 1 << 20


def server(engine: Engine, host: str, port: int, secret: str) -> ThreadingHTTPServer:
    """Make a server that matches what is posted to it by who knows the secret."""

    class Receiver(BaseHTTPRequestHandler):
        timeout = 10  # seconds that a sender may be silent

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            given = self.headers.get("Authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {secret}".encode()):
                self.reply(401, {"error": "the secret is missing or wrong"})
            elif not length.isdecimal():
                self.reply(411, {"error": "Content-Length is missing"})
            elif int(length) > LARGEST:
                self.reply(413, {"error": f"an event has at most {LARGEST} bytes"})
            else:
                try:
                    self.reply(200, engine.match_ids(self.rfile.read(int(length))))
                except EventError as error:
                    self.reply(400, {"error": str(error)})

        def reply(self, status: int, told: object) -> None:
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as http.server names it
            """Say nothing of each request."""

    return ThreadingHTTPServer((host, port), Receiver)


def main(host: str, port: str, subscriptions: str) -> None:
    engine = Engine(format="supabase")
    engine.add_jsonl(subscriptions)
    with server(engine, host, int(port), os.environ["WEBHOOK_SECRET"]) as listening:
        listening.serve_forever()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
