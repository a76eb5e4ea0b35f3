"""Limits of worker processes, which a test changes."""

from tts.base.worker_process import WorkerProcess


def let_take(cpu_s: float, *workers: WorkerProcess) -> None:
    """Let workers that start from now on take this much processor time for a request."""
    for worker in workers:
        worker._command[-1] = str(cpu_s)
