"""What a search need not define has a harmless default."""

import pytest

from tts.search import Search, SearchConfig, SearchResult, Tree

NOTHING = SearchResult((), Tree())


class Least(Search):
    """A search of the three methods that every search has; it is done when it is told anything."""

    told = None

    def ask(self):
        return []

    def tell(self, result):
        self.told = result

    def result(self):
        return NOTHING if self.told else None


def test_ask_tell_and_result_are_all_that_a_search_needs():
    search = Least()
    assert (search.done, search.tree) == (False, None)
    assert search.hints.needs() == {}
    assert list(search.hints.guess({})) == []
    assert (0,) not in search.hints.expandable()
    search.tell("anything")
    assert search.done


@pytest.mark.parametrize("missing", ["ask", "tell", "result"])
def test_a_search_without_one_of_them_cannot_be_made(missing):
    methods = {name: getattr(Least, name) for name in ("ask", "tell", "result") if name != missing}
    with pytest.raises(TypeError, match=missing):
        type("Lacking", (Search,), methods)()


def test_parameters_that_do_not_make_a_search_cannot_be_made():
    with pytest.raises(TypeError, match="new_search"):
        SearchConfig(n=2)
