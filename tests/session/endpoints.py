"""Endpoints that do what a test wants."""

import asyncio
import threading


class Hanging:
    """A generator that never answers; `asked` is set by its first call."""

    def __init__(self):
        self.asked = threading.Event()
        self.in_flight = 0
        self.cancelled = 0

    async def generate(self, call):
        self.in_flight += 1
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1


class HangingFrom:
    """A generator that answers `answered` calls and no more."""

    def __init__(self, inner, answered):
        self.inner, self.left = inner, answered
        self.hanging = Hanging()

    async def generate(self, call):
        self.left -= 1
        answering = self.inner if self.left >= 0 else self.hanging
        return await answering.generate(call)


class Failing:
    """A generator that fails from its n-th call on."""

    def __init__(self, inner, answered, error):
        self.inner, self.left, self.error = inner, answered, error

    async def generate(self, call):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return await self.inner.generate(call)
