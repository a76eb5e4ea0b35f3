#!/usr/bin/env python
"""Stands in for an engine that is started: its command line, its key, and ways to fail.

It answers as `StandIn` does. How a start goes is the next line of the file `starts` beside it;
an empty one is a good start. Its words and environment are added to the file `calls`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
NO_ROOM = (
    "(EngineCore pid=9) ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine."
)
TAKEN = "OSError: [Errno 98] Address already in use"


def next_start() -> str:
    file = HERE / "starts"
    first, _, rest = (file.read_text() if file.exists() else "").partition("\n")
    file.write_text(rest)
    return first


def serve(port: int, key: str) -> None:
    from aiohttp import web
    from tests.endpoints.openai.stand_in import StandIn

    @web.middleware
    async def with_key(request, handler):
        wanted = f"Bearer {key}" if key and request.path.startswith("/v1") else None
        if wanted and request.headers.get("Authorization") != wanted:
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    async def healthy(request):
        return web.Response()

    async def run():
        stand_in, app = StandIn("vllm"), web.Application(middlewares=[with_key])
        app.router.add_post("/v1/completions", stand_in._sample)
        for path in ("/v1/models", "/version"):
            app.router.add_get(path, stand_in._fact)
        app.router.add_get("/health", healthy)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        print("INFO:     Application startup complete.", flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


def main() -> None:
    words, how = sys.argv[1:], next_start()
    with (HERE / "calls").open("a") as calls:
        calls.write(json.dumps({"words": words, "env": dict(os.environ)}) + "\n")
    print("Loading safetensors checkpoint shards:  50% Completed | 1/2", flush=True)
    if how in ("no room", "port taken"):
        sys.exit(NO_ROOM if how == "no room" else TAKEN)
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stuck":
        time.sleep(600)
    # a worker, which knows no better than to live on
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "worker"])
    serve(int(words[words.index("--port") + 1]), os.environ.get("VLLM_API_KEY", ""))


if __name__ == "__main__":
    main()
