"""Texts of grammars, drawn and recognised."""

from tts.constraints.grammar import ROOT
from tts.constraints.regular import Chars, Choice, Ref, Seq


class Grammar:
    """The language of some rules."""

    def __init__(self, rules):
        self.rules = rules
        self._ranks = {}
        while True:
            found = {name: self._rank(node) for name, node in rules.items()}
            found = {name: rank for name, rank in found.items() if rank is not None}
            if found.keys() == self._ranks.keys():
                break
            for name, rank in found.items():
                self._ranks.setdefault(name, rank)

    def _rank(self, node):
        """How deep the shallowest text of a node is; None while none is known."""
        if isinstance(node, Ref):
            known = self._ranks.get(node.name)
            return None if known is None else known + 1
        if isinstance(node, Seq):
            ranks = [self._rank(part) for part in node.parts]
            return None if None in ranks else max(ranks, default=0)
        if isinstance(node, Choice):
            return min((r for r in map(self._rank, node.options) if r is not None), default=None)
        return 0 if isinstance(node, Chars) or not node.least else self._rank(node.node)

    def drawn(self, choice, node=None, depth=0):
        """A text; where it is deep already, the shallowest options are taken."""
        node = self.rules[ROOT] if node is None else node
        deep = depth > 12
        if isinstance(node, Chars):
            low, high = choice.choice(node.ranges)
            return chr(choice.randint(low, min(high, low + 100)))
        if isinstance(node, Ref):
            return self.drawn(choice, self.rules[node.name], depth + 1)
        if isinstance(node, Seq):
            return "".join(self.drawn(choice, part, depth) for part in node.parts)
        if isinstance(node, Choice):
            ranked = [(self._rank(option), option) for option in node.options]
            least = min(rank for rank, _ in ranked if rank is not None)
            options = [o for rank, o in ranked if rank is not None and (not deep or rank == least)]
            return self.drawn(choice, choice.choice(options), depth)
        most = node.least + 2 if node.most is None else min(node.most, node.least + 2)
        times = node.least if deep else choice.randint(node.least, most)
        return "".join(self.drawn(choice, node.node, depth) for _ in range(times))

    def accepts(self, text):
        """Whether the language holds exactly this text."""
        known = {}

        def ends(node, start):
            key = id(node), start
            if key not in known:
                known[key] = frozenset()
                known[key] = frozenset(found(node, start))
            return known[key]

        def found(node, start):
            if isinstance(node, Chars):
                return {start + 1} if start < len(text) and text[start] in node else set()
            if isinstance(node, Ref):
                return ends(self.rules[node.name], start)
            if isinstance(node, Seq):
                places = {start}
                for part in node.parts:
                    places = {end for place in places for end in ends(part, place)}
                return places
            if isinstance(node, Choice):
                return {end for option in node.options for end in ends(option, start)}
            places, reached = {start}, {start} if not node.least else set()
            times = 0
            while places and (node.most is None or times < node.most):
                places = {end for place in places for end in ends(node.node, place)}
                times += 1
                if times >= node.least:
                    if places <= reached:
                        break
                    reached |= places
            return reached

        return len(text) in ends(self.rules[ROOT], 0)
