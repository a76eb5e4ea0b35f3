"""Where an output ends: stop words of one token and of several. Pure."""

from __future__ import annotations

from .generate_request import GenerateRequest


def single_stops(request: GenerateRequest) -> set[int]:
    """Tokens that end the output by themselves: the end id and the stop words of one token."""
    stops = {word[0] for word in request.stop_words if len(word) == 1}
    return stops if request.end_id is None else stops | {request.end_id}


class StopWords:
    """Token sequences that end an output. Only generated tokens count, not the prompt's."""

    def __init__(self, words: tuple[tuple[int, ...], ...]) -> None:
        # by last token: almost every generated token then costs one look-up
        self._by_last: dict[int, list[list[int]]] = {}
        for word in words:
            self._by_last.setdefault(word[-1], []).append(list(word))

    def end(self, tokens: list[int], start: int) -> int | None:
        """Length of `tokens` up to the first stop word that ends at or after index `start`."""
        for end in range(start + 1, len(tokens) + 1):
            for word in self._by_last.get(tokens[end - 1], ()):
                if tokens[max(0, end - len(word)) : end] == word:
                    return end
        return None
