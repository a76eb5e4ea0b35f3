"""A budget of generated tokens for any search, those of both models, exact under every schedule.

    engines ──results in any order──► BudgetedSearch ──in the order asked──► the search
                                       counts tokens

The search receives every result in the order in which it asked, so its next requests depend on the
answers alone and not on which came first. Tokens are counted in that order: those of thoughts, and
those that a verifier writes, once for all thoughts that share a score. The first expansion that
exceeds the budget ends the generation: neither it nor anything asked for later is part of the tree.
Thoughts generated before that are still scored; then the search stops with its best answer so far.
Where an expansion would not fit together with the critiques that are due, by the mean of those told
so far, these are told first; what is written about the last thoughts may go beyond the budget. So
the tree is a function of the seeds and the budget, and a search that stays within its
budget grows the same tree without one.

Requests whose answers would not be part of the tree are not made, as far as one can tell:
`FIRST` go out at once, then, once a thought shows what it costs, and its score where the verifier
writes, as many as fit into what is left at that cost. So the engines generate what the budget says,
and at most `FIRST` or what differs from that mean beyond it. An expansion's place in the order is
that of going out. It goes out with what is left then, which depends on the order alone, and ends
one token beyond it: by that it does not fit, as it would not have fitted whole.

The cost is less overlap within one problem: an answer waits for those that were asked for before
it. Speculative tokens that were never asked for do not count, because their number depends on
timing; a search whose budget is a limit is not speculated on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from .ahead import Guess, Hints
from .protocol import Search, SearchResult
from .thought import Expand, Generated, NodePath, Score, Scored, Thought, Work

FIRST = 4
"""Expansions that go out before the length of any is known."""

_Key = tuple[bool, NodePath]
"""Whether it is a score, and of which node."""


class BudgetedSearch(Search):
    """A search whose tree holds `tokens` generated tokens at most, with the critiques before the
    last.
    """

    hints: BudgetedHints

    def __init__(
        self, inner: Search, tokens: int, *, guesses: bool = True, writes: bool = False
    ) -> None:
        """`inner` must not have been asked or told anything yet; `tokens` is 1 or more.

        `guesses`: whether expansions may be sent before `inner` asks for them, beyond the budget.
        `writes`: whether the verifier writes, so that the first score is waited for: it shows what
        scores cost.
        """
        self.tree = inner.tree
        self._inner = inner
        self._budget = self._left = tokens
        self._writes = writes
        self._expansions = 0
        """Expansions that are part of the tree."""
        self._tree_tokens = 0
        """Tokens of the expansions that are part of the tree."""
        self._score_requests = 0
        """Scores that were asked for."""
        self._scores = 0
        """Scores that were told."""
        self._critiques = Critiques()
        """What the verifier wrote for the scores."""
        self._in_flight = 0
        """Expansions that have gone out and have not been told."""
        self._waiting: deque[Expand] = deque()
        """Expansions that were asked for and have not gone out, oldest first."""
        self._asks: list[Work] = []
        self._lost_tokens = 0
        """Tokens of answers that did not become part of the tree."""
        self._late: set[NodePath] = set()
        """Expansions that had gone out, unanswered, when the budget was spent."""
        self._unanswered: dict[_Key, None] = {}
        """Requests that the search waits for, in the order of asking."""
        self.hints = BudgetedHints(inner, self._unanswered, guesses=guesses)
        self._answers: dict[_Key, Generated | Scored] = {}
        """Answers that wait for those asked for before them."""
        self._result: SearchResult | None = None
        self._take_asks()

    def ask(self) -> list[Work]:
        """The work wanted now and not asked before."""
        asks, self._asks = self._asks, []
        return asks

    def tell(self, result: Generated | Scored) -> None:
        """Take in one result; late, unknown and duplicate ones are ignored."""
        key = isinstance(result, Scored), result.node
        if self._result is None and key in self._unanswered:
            self._answers.setdefault(key, result)
            self._tell_in_order()
        elif isinstance(result, Generated) and result.node in self._late:
            self._late.discard(result.node)
            self._lost_tokens += _tokens(result)

    def result(self) -> SearchResult | None:
        """The search's own result, or its result so far when the budget was spent."""
        return self._result

    def stop(self) -> SearchResult:
        """See Search."""
        waiting = (_tokens(each) for each in self._answers.values() if isinstance(each, Generated))
        self._result = self._result or replace(
            self._inner.stop(), lost_tokens=self._lost_tokens + sum(waiting)
        )
        self._asks.clear()
        return self._result

    def _tell_in_order(self) -> None:
        """Tell the search all that is due, and end it when that was the last."""
        while self._result is None and (key := self._next()) in self._answers:
            assert key is not None
            del self._unanswered[key]
            result = self._answers.pop(key)
            if isinstance(result, Scored):
                self._scores += 1
                self._spend(self._critiques.add(result))
            elif not self._pay(result):
                continue
            self._inner.tell(result)
            self._take_asks()
        if self._result is None and not self._left and not self._unanswered:
            self._result = replace(
                self._inner.stop(), limit="tokens", lost_tokens=self._lost_tokens
            )

    def _next(self) -> _Key | None:
        """The request to tell next: the oldest, but scores before what may not fit beside them."""
        key = next(iter(self._unanswered), None)
        if key and isinstance(result := self._answers.get(key), Generated):
            tokens = _tokens(result)
            if self._left - self._set_aside < tokens <= self._left:
                return next(other for other in self._unanswered if other[0])
        return key

    def _pay(self, result: Generated) -> bool:
        """Take an expansion's tokens from the budget; False if they do not fit."""
        tokens = _tokens(result)
        fits = tokens <= self._left
        self._in_flight -= 1
        if fits:
            self._expansions += 1
            self._tree_tokens += tokens
            self._spend(tokens)
        else:
            self._lost_tokens += tokens
            self._spend(self._left)
        return fits

    def _spend(self, tokens: int) -> None:
        """Take tokens from the budget; where none are left, nothing more is generated."""
        self._left = max(0, self._left - tokens)
        if self._left:
            return
        self.hints.is_spent = True
        self._waiting.clear()
        for key in [key for key in self._unanswered if not key[0]]:
            if isinstance(answer := self._answers.get(key), Generated):
                self._lost_tokens += _tokens(answer)
            else:
                self._late.add(key[1])
            self._withdraw(key)

    @property
    def _critique(self) -> int:
        """The mean tokens that a score took."""
        return self._critiques.tokens // self._scores if self._scores else 0

    @property
    def _set_aside(self) -> int:
        """Tokens that the scores will take that have been asked for and not told."""
        return self._critique * sum(scores for scores, _ in self._unanswered)

    def _release(self) -> None:
        """Let those expansions go out that are expected to fit into what is left; one at least."""
        cost = self._tree_tokens + self._critique * self._score_requests
        unknown = self._writes and not self._scores and self._score_requests
        if not cost:
            fitting = FIRST
        elif unknown:  # what a score costs
            fitting = FIRST - self._expansions
        else:
            fitting = (self._left - self._set_aside) * self._expansions // cost
        waits = any(scores for scores, _ in self._unanswered) and (self._critique or unknown)
        while self._waiting and self._in_flight < max(0 if waits else 1, fitting):
            work = replace(self._waiting.popleft(), most=self._left)
            self._unanswered[False, work.node] = None
            self._asks.append(work)
            self._in_flight += 1

    def _take_asks(self) -> None:
        """Collect what the search wants after what it was told last, in its order."""
        self._result = self._inner.result()
        self.tree = self._inner.tree
        for node, needed in self._inner.hints.needs().items():
            self.hints.latest[node] = needed
            if not needed:
                self._withdraw((True, node))
        for work in self._inner.ask():
            if isinstance(work, Expand) and not self._left:
                continue
            if isinstance(work, Expand):
                self._waiting.append(work)
            else:
                self._score_requests += 1
                self._unanswered[True, work.node] = None
                self._asks.append(work)
        self._release()
        if self._result:
            self._asks.clear()

    def _withdraw(self, key: _Key) -> None:
        """Forget what was asked for: no answer to it will be told."""
        self._unanswered.pop(key, None)
        self._answers.pop(key, None)
        self._asks = [work for work in self._asks if (isinstance(work, Score), work.node) != key]


class BudgetedHints(Hints):
    """The hints of the search behind a budget; it expands nothing once the budget is spent."""

    def __init__(self, inner: Search, requests: Container[_Key], *, guesses: bool) -> None:
        """`requests` are those without an answer; `guesses`: whether to hand on guesses at all."""
        self._inner, self._requests, self._guesses = inner, requests, guesses
        self.latest: dict[NodePath, bool] = {}
        """The needs of the search behind it that nobody has fetched."""
        self.is_spent = False
        """Whether nothing is left of the budget."""

    def needs(self) -> dict[NodePath, bool]:
        """See Hints."""
        needs, self.latest = self.latest, {}
        return {n: need for n, need in needs.items() if not need or (True, n) in self._requests}

    def guess(self, answered: Mapping[NodePath, tuple[Thought, ...]]) -> Iterator[Guess]:
        """See Hints."""
        hands_on = self._guesses and not self.is_spent
        return self._inner.hints.guess(answered) if hands_on else iter(())

    def expandable(self) -> Container[NodePath]:
        """See Hints."""
        return () if self.is_spent else self._inner.hints.expandable()


class Critiques:
    """Counts what a verifier writes, once for all nodes whose score is that of one request."""

    def __init__(self) -> None:
        self.tokens = 0
        self._counted: set[bytes | NodePath] = set()

    def add(self, scored: Scored) -> int:
        """Count the tokens of a score; returns how many are new."""
        key = scored.request or scored.node
        if key in self._counted:
            return 0
        self._counted.add(key)
        self.tokens += scored.tokens
        return scored.tokens


def _tokens(result: Generated) -> int:
    return sum(len(thought.token_ids) for thought in result.thoughts)
