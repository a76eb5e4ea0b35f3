"""A worker that says what it is told; "hang", "fill", "die" and others are orders."""

import os
import signal

from tts.base.worker_process import serve


def answer(content):
    while content == "hang":
        pass
    if content == "fill":
        raise MemoryError
    if content == "abort":
        os.abort()
    if content == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if content == "die":
        os._exit(1)
    return content


if __name__ == "__main__":
    serve(lambda: answer)
