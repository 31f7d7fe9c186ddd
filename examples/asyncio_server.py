"""A server that is sent events, a line each, and answers with a line of the ids that match.

    python examples/asyncio_server.py 127.0.0.1 4000 examples/subscriptions.jsonl
    nc 127.0.0.1 4000 < examples/events.jsonl

It matches in the event loop: a match is over before a thread could have begun it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import aclosing
from functools import partial

from streamer import Engine, EventError

#: Bytes of a line, its end included.
LARGEST = 1 << 20


async def answer(engine: Engine, reader: StreamReader, writer: StreamWriter) -> None:
    """Answer each line of one connection, in order."""
    try:
        # Lines that came together are matched together. No line waits for the next one.
        async with aclosing(engine.match_stream(reader)) as results:
            async for result in results:
                await say(writer, {"error": result.reason} if isinstance(result, EventError) else result.ids())
    except ValueError:
        await say(writer, {"error": f"a line is longer than {LARGEST} bytes"})
    finally:
        writer.close()


async def say(writer: StreamWriter, told: object) -> None:
    writer.write(json.dumps(told).encode() + b"\n")
    await writer.drain()


async def serve(engine: Engine, host: str, port: int) -> asyncio.Server:
    return await asyncio.start_server(partial(answer, engine), host, port, limit=LARGEST)


async def main(host: str, port: str, subscriptions: str) -> None:
    engine = Engine()
    engine.add_jsonl(subscriptions)
    async with await serve(engine, host, int(port)) as server:
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        pass
