import pytest
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
        self.uncompiled = set()
        self.running = set()

    @rule(
        tokens=st.sampled_from([1, 32, 33]) | st.integers(1, BLOCKS * BLOCK_SIZE),
        held_back=st.booleans(),
    )
    def arrive(self, tokens, held_back):
        ticket = len(self.sizes)
        self.sizes[ticket] = -(-tokens // BLOCK_SIZE)
        self.books.enqueue(ticket, tokens, held_back=held_back)
        self.uncompiled.add(ticket) if held_back else self.queue.append(ticket)

    @precondition(lambda self: self.uncompiled)
    @rule(data=st.data(), leaves=st.booleans())
    def compile(self, data, leaves):
        ticket = data.draw(st.sampled_from(sorted(self.uncompiled)))
        self.uncompiled.remove(ticket)
        if leaves:
            self.books.release(ticket)
        else:  # at its place among the others
            self.books.let_in(ticket)
            self.queue = sorted([*self.queue, ticket])

    @rule(held_back=st.just(set()) | st.sets(st.integers(0, 20)))
    def admit(self, held_back):
        asked = []

        def may_enter(ticket):
            asked.append(ticket)
            return ticket not in held_back

        admitted = list(self.books.admit(may_enter))
        assert asked == self.queue[: len(asked)]  # in order, so nobody is overtaken
        assert admitted == [ticket for ticket in asked if ticket not in held_back]
        self.running.update(admitted)
        if left := self.queue[len(asked) :]:  # the next one waits only because it does not fit
            full = len(self.running) == MAX_ACTIVE
            assert full or self.books.reserved + self.sizes[left[0]] > BLOCKS
        self.queue = [ticket for ticket in self.queue if ticket not in admitted]

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
        assert self.books.waiting == len(self.queue) + len(self.uncompiled)


TestBooks = Books.TestCase


@pytest.mark.parametrize(("ticket", "tokens", "why"), [(1, 65, "3 blocks"), (0, 1, "already")])
def test_what_can_never_start_or_is_queued_already_is_refused(ticket, tokens, why):
    books = BlockAdmission(blocks=2, block_size=32, max_active=1)
    books.enqueue(0, 64)
    for _ in range(2):
        with pytest.raises(ValueError, match=why):
            books.enqueue(ticket, tokens)
        assert list(books.admit()) in ([0], [])
