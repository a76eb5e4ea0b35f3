r"""The form of an answer, and the grammar that holds a generator to it. Pure.

    regex.py ──┐
               ├──► regular.py (one kind of tree) ──► step_grammar.py (may it stand in a box?
    schema.py ─┘                                                       EBNF of a step's text)

    schema_check.py: schemas of whole outputs, before schema.py or an engine reads them

A regular expression, or a JSON schema without recursion, describes a regular language. It holds for
what stands in `\boxed{...}`; the text around a box is free.
"""

from .step_grammar import AnswerConstraint, answer_constraint

__all__ = ["AnswerConstraint", "answer_constraint"]
