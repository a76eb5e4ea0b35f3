"""A worker that says what it is told; "hang", "fill" and "die" are orders."""

import os

from tts.build.worker_process import serve


def answer(content):
    while content == "hang":
        pass
    if content == "fill":
        raise MemoryError
    if content == "die":
        os._exit(1)
    return content


if __name__ == "__main__":
    serve(lambda: answer)
