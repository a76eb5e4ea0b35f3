import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tts.engines.admission import BlockAdmission

BLOCKS, BLOCK_SIZE, MAX_ACTIVE = 10, 32, 4


class Books(RuleBasedStateMachine):
    """Any interleaving of arrivals, withdrawals and releases, against a list as the model."""

    def __init__(self):
        super().__init__()
        self.books = BlockAdmission(blocks=BLOCKS, block_size=BLOCK_SIZE, max_active=MAX_ACTIVE)
        self.sizes = {}
        self.queue = []
        self.running = set()

    @rule(tokens=st.integers(1, BLOCKS * BLOCK_SIZE))
    def arrive(self, tokens):
        ticket = len(self.sizes)
        self.sizes[ticket] = -(-tokens // BLOCK_SIZE)
        self.books.enqueue(ticket, tokens)
        self.queue.append(ticket)

    @rule()
    def admit(self):
        admitted = self.books.admit()
        assert admitted == self.queue[: len(admitted)]  # in order, so nobody is overtaken
        self.queue = self.queue[len(admitted) :]
        self.running.update(admitted)
        if self.queue:  # the head waits only because it does not fit
            full = len(self.running) == MAX_ACTIVE
            assert full or self.books.reserved + self.sizes[self.queue[0]] > BLOCKS

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def release(self, data):
        ticket = data.draw(st.sampled_from(sorted(self.running)))
        self.books.release(ticket)
        self.running.remove(ticket)
        with pytest.raises(KeyError):
            self.books.release(ticket)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def withdraw(self, data):
        ticket = data.draw(st.sampled_from(self.queue))
        self.books.release(ticket)
        self.queue.remove(ticket)

    @invariant()
    def never_over_the_pool(self):
        assert self.books.reserved == sum(self.sizes[ticket] for ticket in self.running)
        assert self.books.reserved <= BLOCKS
        assert self.books.active == len(self.running) <= MAX_ACTIVE
        assert self.books.waiting == len(self.queue)


TestBooks = Books.TestCase


@given(st.lists(st.integers(1, BLOCKS * BLOCK_SIZE), min_size=1, max_size=40))
def test_every_request_runs_in_order_of_arrival(sizes):
    books = BlockAdmission(blocks=BLOCKS, block_size=BLOCK_SIZE, max_active=MAX_ACTIVE)
    for ticket, tokens in enumerate(sizes):
        books.enqueue(ticket, tokens)
    order = []
    while books.waiting:
        admitted = books.admit()
        assert admitted  # with nothing running, the head always fits
        order += admitted
        for ticket in admitted:
            books.release(ticket)
    assert order == list(range(len(sizes)))
    assert books.reserved == 0


def test_a_request_larger_than_the_pool_is_refused():
    books = BlockAdmission(blocks=2, block_size=32, max_active=1)
    with pytest.raises(ValueError, match="3 blocks"):
        books.enqueue(0, 65)


def test_a_ticket_is_used_once():
    books = BlockAdmission(blocks=2, block_size=32, max_active=1)
    books.enqueue(0, 1)
    with pytest.raises(ValueError, match="already"):
        books.enqueue(0, 1)
