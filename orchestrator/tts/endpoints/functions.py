"""Python functions instead of an engine: text in, text out, and the checks of their results.

A generator is `(prompt, ...) -> str`: it gets the prompt as the model reads it, and those of
OPTIONS that it has a parameter for. A verifier is `(question, steps) -> float`, the score of the
last step, or a list with one for each step; with one parameter it takes a batch of such pairs. A
method `generate` whose first parameter is `prompt`, and a method `score` of two parameters, are
functions, too. Functions that are not async run in a worker thread, one call at a time.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import queue
import symtable
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tts.base.errors import ConfigError, FunctionError, RequestRefused, TtsError, did_you_mean
from tts.base.input_files import Unreadable, read_text
from tts.build.tokenizer import Tokenizer

from .base import GenerateCall, Generator, ScoreCall, Verifier, VerifierResult
from .shaping import FieldRefused, shaped
from .streaming import NewTokens, StreamingGenerator

ChainToScore = tuple[str, list[str]]
"""A question and the steps of a chain."""
Scores = float | Sequence[float]
"""The score of a chain's last step within [0, 1], or one for each step."""
RewardFunction = (
    Callable[[str, list[str]], Scores | Awaitable[Scores]]
    | Callable[[list[ChainToScore]], Sequence[Scores] | Awaitable[Sequence[Scores]]]
)
"""A verifier: one chain at a time, or a batch of them."""
TextFunction = Callable[..., str | Awaitable[str]]
"""A generator: the prompt and some of OPTIONS to the text that follows."""
OPTIONS = ("max_tokens", "temperature", "top_p", "stop", "seed")
"""The arguments that a generator may take, by the names of its parameters."""

_Outcome = Future[tuple[Any, BaseException | None]]
"""The result of a call, or what it raised."""
_CONTEXT = 64
"""Tokens in front of an output that decide how its text is encoded."""
_OURS = Path(__file__).resolve().parents[1]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def name_of(function: object) -> str:
    """A function as an error names it: module and qualified name."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}.{name}"


@contextmanager
def users_code(name: str) -> Iterator[None]:
    """A call of the user's code: what it raises is the cause of a FunctionError."""
    try:
        yield
    except (TtsError, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task and task.cancelling():  # and not the function's own idea
                raise
        raise failed(name, error) from error


def failed(name: str, error: BaseException) -> FunctionError:
    """The error for code that raised, whose own traceback ends with a note and begins with it."""
    error.add_note(f"tts called {name}: docs/reference/python.md says what it takes and returns.")
    frames = error.__traceback__
    while frames and Path(frames.tb_frame.f_code.co_filename).is_relative_to(_OURS):
        frames = frames.tb_next
    if frames:  # none where it was called wrongly
        error.__traceback__ = frames
    kind, text = type(error).__name__, described(error, str)
    return FunctionError(f"{name} raised {f'{kind}: {text}' if text else kind}.")


def described(value: object, write: Callable[[object], str] = repr) -> str:
    """The beginning of a value of the user's as a message has it, though its own method fails."""
    try:
        return write(value)[:200]
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"


class Caller:
    """Calls a user's function: an async one here, another one in a worker thread, in turn."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = name_of(function)
        self._function = function
        call = getattr(function, "__call__", None)  # noqa: B004 - of an object: may be async def
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        self._calls = queue.SimpleQueue[tuple[Callable[[], Any], _Outcome] | None]()
        self._thread: threading.Thread | None = None

    async def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the function; its exceptions become FunctionError."""
        call = functools.partial(self._function, *arguments, **options)
        with users_code(self.name):
            value = call() if self._is_async else await self._in_thread(call)
            return await value if inspect.isawaitable(value) else value

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        if self._thread is None:
            # unlike an executor's, a daemon does not keep a program from ending while it blocks
            self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
            self._thread.start()
        outcome = _Outcome()
        self._calls.put((call, outcome))
        value, error = await asyncio.wrap_future(outcome)
        if error is not None:  # of whatever kind: nobody interrupts or cancels that thread
            raise failed(self.name, error) from error
        return value

    def _work(self) -> None:
        while job := self._calls.get():
            call, outcome = job
            if outcome.set_running_or_notify_cancel():
                try:
                    outcome.set_result((call(), None))
                except BaseException as error:  # a future refuses some, such as StopIteration
                    outcome.set_result((None, error))

    def close(self) -> None:
        """End the worker thread; a call that has begun is not waited for."""
        with suppress(queue.Empty):
            while True:
                self._calls.get_nowait()
        self._calls.put(None)


class FunctionVerifier:
    """A reward function as a verifier: text in, a number within [0, 1] out."""

    def __init__(self, function: RewardFunction) -> None:
        """Raises ConfigError for a function whose parameters are others."""
        self._call = Caller(function)
        names = _required(function, "(question, steps), or (chains) for a batch")
        if len(names) not in (1, 2):
            raise _wrong_parameters(self._call.name, "(question, steps), or (chains) for a batch")
        self._batches = Batches(self._score_batch) if len(names) == 1 else None

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier; raises FunctionError naming the function and what it gave."""
        chain = call.question, list(call.steps)
        scores = await (self._batches(chain) if self._batches else self._call(*chain))
        return VerifierResult(self._checked(scores, chain))

    def close(self) -> None:
        """End the worker thread."""
        if self._batches:
            self._batches.close()
        self._call.close()

    async def _score_batch(self, chains: list[ChainToScore]) -> Sequence[Any]:
        scores = _plain(await self._call(list(chains)))
        if not isinstance(scores, list | tuple) or len(scores) != len(chains):
            raise FunctionError(
                f"{self._call.name} gave {described(scores)} for a batch of {len(chains)} chains; "
                "it takes one parameter, so it must return a list with a score for each of them.",
                hint="A function of one chain has two parameters: (question, steps). One with a "
                "default is not counted.",
            )
        return scores

    def _checked(self, scores: Any, chain: ChainToScore) -> float:
        """The score of the last step."""
        question, steps = chain
        score = _plain(scores)
        if isinstance(score, list | tuple) and len(score) == len(steps) > 0:
            score = score[-1]
        number = _number(score)
        if not 0.0 <= number <= 1.0:
            raise FunctionError(
                f"{self._call.name} gave {described(scores)} for a chain of {len(steps)} steps of "
                f"{question!r:.80}; a score must be a number within [0, 1], or a list with one for "
                "each step.",
                hint="For rewards on another scale, return for instance 1 / (1 + exp(-reward)).",
            )
        return number


class Batches:
    """Gathers calls that arrive while a batch is answered into the next batch."""

    def __init__(self, answer: Callable[[list[Any]], Coroutine[Any, Any, Sequence[Any]]]) -> None:
        self._answer = answer
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, item: Any) -> Any:
        """The answer to an item; raises what its batch raised."""
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(self._run())
        return await answer

    def close(self) -> None:
        """Answer nothing more."""
        if self._running:
            self._running.cancel()

    async def _run(self) -> None:
        await asyncio.sleep(0)  # what is sent together comes together
        while self._waiting:
            # of those that are cancelled nothing is asked
            batch = [(item, answer) for item, answer in self._waiting if not answer.done()]
            self._waiting = []
            if not batch:
                continue
            try:
                answers = await self._answer([item for item, _ in batch])
            except FunctionError as error:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), each in zip(batch, answers, strict=True):
                if not answer.done():
                    answer.set_result(each)


class FunctionGenerator:
    """A text function as a generator; a text without the step delimiter ends the chain."""

    def __init__(
        self,
        function: TextFunction,
        tokenizer: Tokenizer,
        *,
        end_ids: Sequence[int],
        step_delimiter: str,
    ) -> None:
        """Raises ConfigError for a function that has other parameters."""
        self._call = Caller(function)
        self._tokenizer = tokenizer
        self._end_ids = frozenset(end_ids)
        self._delimiter = step_delimiter
        signature = f"(prompt, ...) with any of {', '.join(OPTIONS)}"
        first, *others = _required(function, signature) or [""]
        if not first or set(others) - set(OPTIONS):
            raise _wrong_parameters(self._call.name, signature)
        kinds = {each.kind for each in _parameters(function).values()}
        takes_all = inspect.Parameter.VAR_KEYWORD in kinds
        self._options = OPTIONS if takes_all else [*OPTIONS & _parameters(function).keys()]

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator; raises FunctionError naming the function and what it gave."""
        if call.guide is not None:
            raise RequestRefused(
                f"{self._call.name} cannot hold an output to a grammar: it is a text function.",
                hint="Leave answer_regex and answer_schema out.",
            )
        shaped(call.shaping, (), self._call.name)
        if call.top_k:
            raise FieldRefused("top_k", self._call.name)
        prompt_ids: list[int] = call.input_ids.tolist()
        stop = [self._delimiter] if call.stop_at_step and self._delimiter else []
        options = {
            "max_tokens": call.max_new_tokens,
            "temperature": call.temperature,
            "top_p": call.top_p,
            "stop": stop + [self._tokenizer.decode(word) for word in call.stop_words],
            "seed": call.seed,
        }
        prompt = self._tokenizer.spelled(prompt_ids)
        text = await self._call(prompt, **{name: options[name] for name in self._options})
        if not isinstance(text, str):
            raise FunctionError(
                f"{self._call.name} gave {described(text)} for a prompt of {len(prompt_ids)} "
                "tokens; a generator must return the new text, a str.",
                hint="Return what follows the prompt, without the prompt.",
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise FunctionError(
                f"{self._call.name} gave {described(text)}, which is no Unicode text: it holds "
                "half of a surrogate pair."
            ) from error
        before = self._tokenizer.decode(prompt_ids[-_CONTEXT:])
        ids = self._tokenizer.encode_after(before, text)
        end = next((at for at, token in enumerate(ids) if token in self._end_ids), len(ids))
        return ids[: min(end, call.max_new_tokens)]

    def close(self) -> None:
        """End the worker thread."""
        self._call.close()


class CheckedGenerator(StreamingGenerator):
    """A program's own generator of token ids, streaming or not; each answer is checked."""

    def __init__(self, generator: Generator, vocabulary: int) -> None:
        """`vocabulary`: one more than the highest id."""
        self._inner = generator
        self._name = f"{name_of(type(generator))}.generate"
        self._vocabulary = vocabulary

    async def generate(self, call: GenerateCall) -> list[int]:
        """See endpoints.Generator; raises FunctionError for anything but a list of ids."""
        takes = "(call) of tts.endpoints.base.Generator", "prompt"
        ids = await _answer_of(self._name, self._inner.generate(call), *takes)
        return self._checked(ids, self._name)

    async def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        """See endpoints.StreamingGenerator; in one piece if it does not stream."""
        if not isinstance(self._inner, StreamingGenerator):
            yield NewTokens(await self.generate(call), final=True)
            return
        name = f"{name_of(type(self._inner))}.stream"
        async with aclosing(self._inner.stream(call)) as stream:
            async for new in stream:
                if not isinstance(new, NewTokens):
                    raise FunctionError(f"{name} gave {described(new)}; it must give NewTokens.")
                self._checked(new.ids, name)
                yield new

    def _checked(self, output: Any, name: str) -> list[int]:
        ids = _plain(output)
        if not isinstance(ids, list | tuple) or not all(_is_id(token) for token in ids):
            raise FunctionError(
                f"{name} gave {described(output)}; it must return a list of new token ids, or be a "
                "function of the prompt's text: its first parameter is then named prompt.",
                hint="docs/reference/python.md describes both.",
            )
        for token in ids:
            if not 0 <= token < self._vocabulary:
                raise FunctionError(
                    f"{name} gave token {token}; the tokenizer has ids from 0 to "
                    f"{self._vocabulary - 1}.",
                    hint="The deployment's tokenizer must be that of the model which answers.",
                )
        return list(ids)


class CheckedVerifier:
    """A program's own verifier; each answer is checked."""

    def __init__(self, verifier: Verifier) -> None:
        self._inner = verifier
        self._name = f"{name_of(type(verifier))}.score"

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier; raises FunctionError for anything but a score."""
        takes = "(call) of tts.endpoints.base.Verifier", "question, steps"
        result = await _answer_of(self._name, self._inner.score(call), *takes)
        number = _number(getattr(result, "score", None))
        counts = [getattr(result, name, 0) for name in ("tokens", "no_verdict")]
        if not 0.0 <= number <= 1.0 or any(not _is_id(count) or count < 0 for count in counts):
            raise FunctionError(
                f"{self._name} gave {described(result)}; it must return a VerifierResult whose "
                "score is a number within [0, 1], and whose counts are whole numbers.",
                hint="A method score(question, steps) may return the number itself.",
            )
        tokens, missing = map(int, counts)
        return VerifierResult(number, tokens, missing, str(getattr(result, "critique", "")))


def text_function(generator: object) -> TextFunction | None:
    """The text function that a generator is or has; None for one of token ids."""
    return _function_of(generator, "generate", lambda each: [*_parameters(each)][:1] == ["prompt"])


def reward_function(verifier: object) -> RewardFunction | None:
    """The reward function that a verifier is or has; None for one that takes a ScoreCall."""
    return _function_of(verifier, "score", lambda method: len(_required(method)) == 2)


def _function_of(
    endpoint: object, name: str, takes_text: Callable[[Any], bool]
) -> Callable[..., Any] | None:
    """The method of this name if it takes text; where there is none, a function itself."""
    method = getattr(endpoint, name, None)
    if method is None:
        return endpoint if callable(endpoint) else None
    return method if callable(method) and takes_text(method) else None


def require_endpoints(generator: object, verifier: object) -> None:
    """Raise ConfigError for what can be neither an endpoint nor a function."""
    for role, endpoint, method, like in (
        ("generator", generator, "generate", "(prompt, ...) -> str"),
        ("verifier", verifier, "score", "(question, steps) -> float"),
    ):
        fits = callable(endpoint) or callable(getattr(endpoint, method, None))
        if endpoint is not None and (isinstance(endpoint, type) or not fits):
            raise ConfigError(
                f"{role} is {described(endpoint)}; it must be a function {like}, or an object with "
                f"a method {method}."
            )


def require_defined(file: Path, name: str) -> None:
    """Raise ConfigError for a Python file that defines no such name; nothing is executed."""
    try:
        source = read_text(file)
        symbols = symtable.symtable(source, str(file), "exec").get_symbols()
    except (OSError, Unreadable, SyntaxError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from error
    top, _, _ = name.partition(".")
    bound = {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}
    if top not in bound and "import *" not in source:
        offered = [each.get_name() for each in symbols if each.is_namespace()]
        raise ConfigError(
            f"{file} has no {top}.",
            hint=f"{did_you_mean(top, offered)}Names in it: {', '.join(offered) or 'none'}.",
        )


def _plain(value: Any) -> Any:
    """Python's own numbers and lists instead of those of an array or a tensor."""
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) and not isinstance(value, type) else value


def _number(value: Any) -> float:
    """A number, NaN for anything else."""
    try:
        return math.nan if isinstance(value, str | bytes) else float(value)
    except Exception:  # whatever the object in its place does
        return math.nan


def _is_id(token: object) -> bool:
    return hasattr(token, "__index__") and not isinstance(token, bool)


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some of C have none
        return {}


def _required(function: Callable[..., Any], signature: str | None = None) -> list[str]:
    """Names of required positional parameters; ConfigError for required keywords but OPTIONS."""
    required = [p for p in _parameters(function).values() if p.default is inspect.Parameter.empty]
    keywords = [p.name for p in required if p.kind is inspect.Parameter.KEYWORD_ONLY]
    if signature and set(keywords) - set(OPTIONS):
        raise _wrong_parameters(name_of(function), signature)
    return [parameter.name for parameter in required if parameter.kind in _POSITIONAL]


def _wrong_parameters(name: str, signature: str) -> ConfigError:
    return ConfigError(f"The parameters of {name} must be {signature}.")


async def _answer_of(name: str, answer: Any, takes: str, text: str) -> Any:
    """The answer of a method that must be async; raises FunctionError for one that is not."""
    if not inspect.isawaitable(answer):
        raise FunctionError(
            f"{name} gave {described(answer)} at once; a method {takes} is async.",
            hint=f"Write `async def`; or take text: parameters ({text}), which need not be async.",
        )
    return await answer
