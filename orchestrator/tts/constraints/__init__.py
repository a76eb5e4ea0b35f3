r"""The form of an answer, and the grammar that holds a generator to it. Pure.

    regex.py ──┐
               ├──► regular.py (one kind of tree) ──► answer.py (may it stand in a box?)
    schema.py ─┘                                  └─► step_grammar.py (EBNF of a step's text)

    schema ──► json_grammar.py (number_ranges.py) ──► grammar.py (EBNF of a whole output)
    counts.py: wide repetitions, for both kinds of grammar

A regular expression, or a JSON schema without recursion, describes a regular language. It holds for
what stands in `\boxed{...}`; the text around a box is free. `answer` also puts the
parts together. An output that is nothing but the JSON text follows a grammar, whose rules may refer
to themselves.
"""

from .answer import AnswerConstraint, answer_constraint

__all__ = ["AnswerConstraint", "answer_constraint"]
