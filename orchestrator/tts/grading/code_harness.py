"""Runs tests and the answer that they test in two processes: of the tests, the answer sees calls.

Run as `python -I -c SOURCE`, with JSON on its standard input: `program` (texts that are executed
in turn: what stands before the answer, the answer, its set-up), `imports` and `tests` (texts), and
the `names` that the tests take from the program. It ends with status 0 if the tests pass.

Arguments are pickled on their way to the answer. What comes back is a value of a built-in type,
whatever it was derived from, so that the comparison is not the answer's; or a `Remote`, an object
that stays there and is used from afar. Tests whose arguments cannot be pickled, and tests that are
to run `together`, run in the answer's process, within reach of code that deceives them.
"""

from __future__ import annotations

import builtins
import collections
import ctypes
import datetime
import decimal
import fractions
import io
import json
import numbers
import operator
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, BinaryIO, NoReturn

_DUMPABLE = 4  # PR_SET_DUMPABLE of linux/prctl.h
_EXACT = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, range),
    *(list, tuple, dict, set, frozenset, collections.deque),
    *(decimal.Decimal, fractions.Fraction),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta),
)
"""Types whose values cross as they are."""
_KINDS: tuple[tuple[type, type], ...] = (
    *((kind, kind) for kind in (str, bytes, list, tuple, int, float, complex)),
    *((numbers.Integral, int), (numbers.Real, float), (Mapping, dict)),
    *((frozenset, frozenset), (Set, set)),
)
"""Other kinds of values, and the type that they cross as."""
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "__call__": lambda function, *words, **options: function(*words, **options),
    "__getattr__": getattr,
    "__setattr__": setattr,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__contains__": operator.contains,
    "__iter__": iter,
    "__next__": next,
    "__len__": len,
    "__bool__": bool,
    "__str__": str,
    "__repr__": repr,
}


def main() -> NoReturn:
    """Fork the answer's process before a test is read, and run the tests."""
    their_input, requests = os.pipe()
    replies, their_output = os.pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    if os.fork() == 0:
        os.close(requests)
        os.close(replies)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        Answer(os.fdopen(their_input, "rb"), os.fdopen(their_output, "wb")).serve()
        os._exit(0)
    os.close(their_input)
    os.close(their_output)
    ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)  # the answer cannot trace this process
    try:
        job = json.load(sys.stdin)
        os.dup2(nothing, 1)
        _test(job, Channel(os.fdopen(requests, "wb"), os.fdopen(replies, "rb")))
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}".encode(errors="replace"))
    os._exit(1)


def _test(job: dict[str, Any], channel: Channel) -> None:
    channel.ask("run", job["program"])
    tests = [*job["imports"], *job["tests"]]
    if job["together"]:
        channel.ask("run", tests)
        return
    space: dict[str, Any] = {"__name__": "tests"}
    try:
        _run(job["imports"], space)
        space.update(channel.ask("names", job["names"]))
        _run(job["tests"], space)
    except CannotCrossError:
        channel.ask("run", tests)


def _run(texts: Iterable[str], space: dict[str, Any]) -> None:
    for text in texts:
        exec(compile(text, f"{space['__name__']}.py", "exec", dont_inherit=True), space)


class CannotCrossError(BaseException):
    """An argument of a test has no form in which it could reach the answer's process."""


class Channel:
    """The way of the tests to the answer's process."""

    def __init__(self, requests: BinaryIO, replies: BinaryIO) -> None:
        self._requests = requests
        self._replies = replies

    def ask(self, verb: str, *words: Any, **options: Any) -> Any:
        """What comes of a request; raises what it raised there, as a built-in exception."""
        request = io.BytesIO()
        try:
            _RequestPickler(request).dump((verb, words, options))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise CannotCrossError from error
        self._requests.write(request.getvalue())
        self._requests.flush()
        raised, content, *after = _ReplyUnpickler(self._replies, self).load()
        if raised:
            raise _built_in(raised)(content)
        for mine, theirs in zip((*words, *options.values()), after, strict=False):
            if isinstance(mine, list | bytearray | collections.deque):  # it may have been changed
                mine.clear()
                mine.extend(theirs)
            elif isinstance(mine, dict | set):
                mine.clear()
                mine.update(theirs)
        return content


def _built_in(names: list[str]) -> type[BaseException]:
    """The first built-in exception of an order of resolution that one text makes."""
    kinds = [getattr(builtins, name, None) for name in names]
    return next(
        kind
        for kind in kinds
        if isinstance(kind, type)
        and issubclass(kind, BaseException)
        and not issubclass(kind, UnicodeError)
    )


class Remote:
    """An object of the answer's process that has no built-in type."""

    _remote_number: int
    _remote_channel: Channel

    def __init__(self, number: int, channel: Channel) -> None:
        self.__dict__.update(_remote_number=number, _remote_channel=channel)

    def __eq__(self, other: object) -> bool:
        """Equal to what is there too, if it says so; to no value of the tests."""
        return isinstance(other, Remote) and bool(self._remote_channel.ask("__eq__", self, other))

    def __hash__(self) -> int:
        return hash(self._remote_number)


def _from_afar(name: str) -> Callable[..., Any]:
    return lambda self, *words, **options: self._remote_channel.ask(name, self, *words, **options)


for _name in _OPERATIONS:
    setattr(Remote, _name, _from_afar(_name))


class _RequestPickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> int | None:
        return value._remote_number if type(value) is Remote else None


class _ReplyUnpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, channel: Channel) -> None:
        super().__init__(file)
        self._channel = channel

    def persistent_load(self, number: int) -> Remote:
        return Remote(number, self._channel)

    def find_class(self, module: str, name: str) -> Any:
        for kind in _EXACT:
            if (kind.__module__, kind.__name__) == (module, name):
                return kind
        raise pickle.UnpicklingError(f"{module}.{name} is no value")


class Answer:
    """The process of the answer: does what the tests ask for, one request after the other."""

    def __init__(self, requests: BinaryIO, replies: BinaryIO) -> None:
        self._requests = requests
        self._replies = replies
        self._objects: list[Any] = []
        self._module = sys.modules["candidate"] = types.ModuleType("candidate")
        self._operations: dict[str, Callable[..., Any]] = {
            **_OPERATIONS,
            "__eq__": lambda one, other: bool(one == other),
            "run": lambda texts: _run(texts, self._module.__dict__),
            "names": self._names,
        }

    def serve(self) -> None:
        """Answer requests until there are no more."""
        while True:
            try:
                verb, words, options = _RequestUnpickler(self._requests, self._objects).load()
            except EOFError:
                return
            try:
                content = self._operations[verb](*words, **options)
                reply = self._packed(("", content, *words, *options.values()))
            except BaseException as error:
                kinds = [kind.__name__ for kind in type(error).__mro__]
                reply = self._packed((kinds, f"{error}"))
            self._replies.write(reply)
            self._replies.flush()

    def _names(self, names: list[str]) -> dict[str, Any]:
        return {name: vars(self._module)[name] for name in names if name in vars(self._module)}

    def _packed(self, reply: tuple[Any, ...]) -> bytes:
        packed = io.BytesIO()
        _ReplyPickler(packed, self._objects).dump(reply)
        return packed.getvalue()


class _RequestUnpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, objects: list[Any]) -> None:
        super().__init__(file)
        self._objects = objects

    def persistent_load(self, number: int) -> Any:
        return self._objects[number]


class _ReplyPickler(pickle.Pickler):
    def __init__(self, file: BinaryIO, objects: list[Any]) -> None:
        super().__init__(file)
        self._objects = objects

    def persistent_id(self, value: Any) -> int | None:
        if any(value is kind for kind in _EXACT) or _kind_of(value):
            return None
        number = next((n for n, each in enumerate(self._objects) if each is value), None)
        if number is None:
            number = len(self._objects)
            self._objects.append(value)
        return number

    def reducer_override(self, value: Any) -> Any:
        kind = _kind_of(value)
        if kind is None or type(value) is kind:
            return NotImplemented
        return kind, (kind(value),)


def _kind_of(value: Any) -> type | None:
    """The type that a value crosses as; None for what stays where it is."""
    if any(type(value) is kind for kind in _EXACT):
        return type(value)
    if type(value).__module__ == "numpy" and type(value).__name__ in {"bool", "bool_"}:
        return bool
    return next((kind for base, kind in _KINDS if isinstance(value, base)), None)


if __name__ == "__main__":
    main()
