"""A service in one event loop: several questions at once, priorities, deadlines, cancellation.

    pip install '.[cpu]' && tts build-engines demo
    python examples/async_service.py

All searches share both engines. A question that a user withdraws is cancelled by cancelling its
task: its requests leave the engines, and the others go on.
"""

from __future__ import annotations

import asyncio

from tts import AsyncSession, Result, Session
from tts.base.errors import DeadlineExceeded

QUESTIONS = ("Compute 12 + 30 - 5.", "Compute 50 - 8.", "Compute 6 * 7 + 9.", "Compute 81 / 9 * 4.")


async def answer(session: AsyncSession, question: str) -> str:
    """What the service sends back to a user, limits included."""
    try:
        result: Result = await session.solve(question, n=8, deadline_s=60)
    except DeadlineExceeded:
        return "no answer within a minute"
    spent = f"{result.usage.generated_tokens} tokens"
    return f"{result.answer} ({spent}{', cut off' if result.limit else ''})"


async def main() -> None:
    """Answer four questions at once, one of them first, and cancel a fifth."""
    async with Session.open_async("demo", server="embedded") as session:
        long = asyncio.create_task(session.solve("Compute (3 + 4) * 5 - 2.", n=512))
        urgent = session.solve("Compute 2 + 2.", n=4, priority=1)
        answers = [answer(session, question) for question in QUESTIONS]

        print(f"urgent: Compute 2 + 2.  ->  {(await urgent).answer}")
        long.cancel()  # the user has closed the page
        for question, text in zip(QUESTIONS, await asyncio.gather(*answers), strict=True):
            print(f"{question:24}  ->  {text}")
        try:
            await long
        except asyncio.CancelledError:
            print("Compute (3 + 4) * 5 - 2.  ->  cancelled")

        print("\nas they are solved:")
        async for result in session.solve_many(QUESTIONS, n=4, in_flight=2):
            print(f"  {result.problem.question:24}  ->  {result.answer}")


if __name__ == "__main__":
    asyncio.run(main())
