"""The session of an ordinary program: calls that block, in scripts and in notebooks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self, Unpack

from tts.build.spec import Deployment
from tts.build.tokenizer import Message
from tts.search import Aggregation

from .arguments import OpenOptions, SampleOptions, SolveOptions, check_arguments
from .async_session import AsyncSession
from .event_loop import Inbox, LoopThread, enough_files
from .questions import Question, require_several
from .result import Result
from .scoring import Candidate


class Session:
    """Both engines of a deployment, until `close` or the end of the `with` block.

    Its searches run on an event loop in a thread of their own, so it works where a loop runs
    already. Callbacks are called in the thread that called the session. Ctrl-C there cancels what
    runs on the engines, waits for that, and goes on as KeyboardInterrupt.
    """

    def __init__(self, session: AsyncSession, loop: LoopThread) -> None:
        """Made by `open`."""
        self._session = session
        self._loop = loop
        self._closed = False

    @classmethod
    def open(
        cls,
        deployment: str | Path | Deployment,
        **options: Unpack[OpenOptions],
    ) -> Session:
        """Open a deployment.

        A running server is used, or waited for while another process starts it; if there is none,
        one is started. It ends with the last program that uses it; a server of `tts serve` ends
        with that command.

        Args:
            deployment: A bundled name, a file, or a Deployment.
            generator: Replaces the server's generator: a function `(prompt, ...) -> str`, or an
                object with the methods of `tts.endpoints.base`.
            verifier: Replaces the deployment's verifier: a function `(question, steps) -> float`,
                or `(chains)` for a batch (`tts.endpoints.functions`), or an object as above. A
                function that is not async runs in a worker thread, one call at a time. With both
                generator and verifier there is no server, and neither engines nor a GPU are needed.
            endpoints: Servers to use, each as HOST:PORT or unix:PATH. Each problem is solved on one
                of them, and moves to another if that one dies. By default those of the deployment's
                `endpoints`, or of this machine.
            server: "triton", or "embedded": both engines in processes of this program, without
                Triton, while the session is open. By default the deployment's `server.kind`.
            say: Called with a line for each stage of a start.

        Raises a TtsError: ConfigError, BuildError, CheckpointError, ServerError, SessionError.
        """
        say = options.get("say")
        with enough_files():
            check_arguments(say=say)
            loop = LoopThread()
            inbox = Inbox()
            if say:
                options["say"] = inbox.posting(say)
            try:
                session = cls.open_async(deployment, **options)
                loop.run(session.__aenter__(), inbox)
            except BaseException:
                loop.stop()
                raise
            return cls(session, loop)

    @staticmethod
    def open_async(
        deployment: str | Path | Deployment,
        **options: Unpack[OpenOptions],
    ) -> AsyncSession:
        """A session for a program with an event loop: `async with Session.open_async(...)`."""
        session = AsyncSession(deployment, **options)
        session.load_verifier()
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what still runs, stop the server that was started; may be repeated.

        In a fork of the process that opened it this does nothing: all of it is the parent's.
        """
        if self._closed or not self._loop.owner.is_here:
            return
        self._closed = True
        try:
            if not self._loop.is_held:  # else its engines end with this process
                self._loop.run(self._session.__aexit__(None, None, None), finish=True)
        finally:
            self._loop.stop()

    def solve(
        self, question: Question, *, priority: int = 0, **options: Unpack[SolveOptions]
    ) -> Result:
        """Solve one problem.

        The tree depends on the deployment, the problem (its id included), the strategy and `seed`,
        not on other work. A search that reaches a limit gives its best answer so far, and the
        result's `limit` names the limit.

        Args:
            question: A text; a conversation: chat messages with `role` and `content`, the last one
                the user's; a tuple of either and the reference answer; or a Problem. The system
                message of a conversation replaces the deployment's system prompt; the verifier
                reads the earlier turns as text in front of the question.
            priority: Among searches at the same time, higher ones go first.
            strategy: A name, by default beam-search, with its parameters beside it (`n=8,
                beam_width=2`; those of an installed strategy in `parameters={...}`); a config
                object such as BeamSearchConfig(n=16); or a function `(problem, seed) -> Search`,
                where `seed` gives the seed of each node. Parameters have the defaults of the
                deployment's `strategies` block, else those of the strategy (n=16 for searches).
            seed: The seed of the run, by default 0.
            schedule: The order of work: decoupled (the default), batched, alternating or lockstep.
                The tree is the same.
            speculation: Whether idle slots of the generator run expansions ahead of need: always,
                off, or auto (the default): while it pays. The tree is the same.
            on_step: Called with a Step when one is written, and again when it is scored.
            out: A folder for the run's log and report; without it nothing is kept on disk.
            budget_tokens: The most generated tokens in the tree, with those that the verifier
                writes about it. A search that needs more is cut off, perhaps before any answer: n
                should be small enough. A request is held to what is left when it is sent; what
                does not fit is in no tree. With auto, the mean of a run.
            deadline_s: Seconds from this call, waiting included. Without any completion by then,
                DeadlineExceeded is raised; with `out`, the result has no answer.
            answer_of: `answer_of(text)` replaces the extraction of a completion's answer.
            equal: `equal(answer, other)` replaces the comparison of two answers.

        Raises a TtsError: ConfigError, DatasetError, FunctionError, DeadlineExceeded,
        EndpointError, ServerError, RunError.
        """
        inbox = Inbox()
        solving = self._session.solve(question, priority=priority, **_told(options, inbox))
        return self._loop.run(solving, inbox)

    def solve_many(
        self,
        problems: Iterable[Question],
        *,
        in_flight: int | None = None,
        resume: bool = False,
        repair: bool = False,
        skip_overlong: bool = False,
        **options: Unpack[SolveOptions],
    ) -> Iterator[Result]:
        """Solve many problems; yields each result as soon as it is ready, in no fixed order.

        The problems of a list are all checked before anything starts. Those of a generator, which
        may be endless, are taken as they are needed, in the calling thread: at most 256 that have
        not been started. With `out` all are taken first, because the folder names them. The
        searches continue while the loop's body runs, until 256 results wait. Leaving the loop early
        cancels the rest. The first problem that fails ends the run with its error.

        Args:
            problems: Questions as for `solve`. Those that are not a Problem are named 1, 2, ... by
                their place.
            in_flight: Problems that run at a time at most; None: as many as keep the engines busy.
            resume: Continue the interrupted run in `out`. Results in its log come first, without
                their trees, and nothing is generated twice.
            repair: With `resume`: cut the log off where damage begins, keeping a copy, and compute
                again what followed.
            skip_overlong: Give a question that is too long for the engines a result without an
                answer, whose `error` says why. Otherwise it is an error.
            options: As for `solve`. Limits are those of each problem; `deadline_s` counts from the
                start of its search, and a problem without any completion by then has a result
                without an answer. With `out`, the folder is a run with log, resume and report, like
                one of `tts bench`; no other process may work in it meanwhile.
        """
        inbox = Inbox()
        source: Iterable[Question] | AsyncIterable[Question] = problems
        require_several(problems)
        if not isinstance(problems, Sequence) and options.get("out") is None:
            source = inbox.taking(problems)
        results = self._session.solve_many(
            source,
            in_flight=in_flight,
            resume=resume,
            repair=repair,
            skip_overlong=skip_overlong,
            **_told(options, inbox),
        )
        return self._each(results, inbox)

    def generate(
        self, prompt: str | Sequence[Message], **options: Unpack[SampleOptions]
    ) -> list[str]:
        """Texts that the generator writes: n samples, without any search.

        `prompt` is what a user says, or a list of chat messages with `role` and `content`. Options
        are n (1), max_tokens (256), temperature (0.8; 0 is greedy), top_p (1) and seed (0).
        """
        return self._loop.run(self._session.generate(prompt, **options))

    def score(
        self,
        question: Question,
        candidates: Sequence[Candidate],
        *,
        agg_strategy: Aggregation = "last",
    ) -> Result:
        """Rank answers that exist already by the verifier's scores; nothing is generated.

        Args:
            question: As for `solve`; a reference answer says which candidates are right.
            candidates: Answers, each a text, whose steps end where the deployment's end, or a list
                of steps.
            agg_strategy: How the scores of steps become the candidate's: last, min, prod or mean.

        The result's `completions` are the candidates, best first, with the score of each step; the
        `node` of each is its place in `candidates`. `answers` has what best, weighted and majority
        vote say. Raises a TtsError: DatasetError, EndpointError, FunctionError, ServerError.
        """
        scoring = self._session.score(question, candidates, agg_strategy=agg_strategy)
        return self._loop.run(scoring)

    def _each(self, results: AsyncGenerator[Result, None], inbox: Inbox) -> Iterator[Result]:
        async def following() -> Result | None:
            return await anext(results, None)

        try:
            while (result := self._loop.run(following(), inbox)) is not None:
                yield result
        finally:
            if not self._closed and self._loop.owner.is_here:
                self._loop.run(results.aclose(), finish=True)


def _told(options: SolveOptions, inbox: Inbox) -> SolveOptions:
    """The options of a call whose `on_step` is called in the thread that waits at `inbox`."""
    on_step = options.get("on_step")
    check_arguments(on_step=on_step)
    return {**options, "on_step": inbox.posting(on_step)} if on_step else options
