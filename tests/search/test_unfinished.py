"""What a search has when it is stopped before its end."""

from tts.search import Fate, Stop, Thought
from tts.search.tree import Tree, completions_so_far


def test_a_completed_chain_from_which_another_goes_on_is_no_end():
    tree = Tree()
    for path, stop in (((0,), Stop.STEP), ((0, 0), Stop.END)):
        node = tree.add(path)
        node.thought, node.score = Thought((1,), "a", stop), 0.5
    tree[(0,)].fate = Fate.COMPLETED
    completions = completions_so_far(tree)
    assert [done.node for done in completions] == [(0, 0)]
    assert tree[(0,)].fate is Fate.EXPANDED
