"""Answers of a given form: a regular expression, or a JSON schema.

    pip install '.[cpu]' && tts build-engines demo
    python examples/constrained_answers.py

The form holds for the text inside the box of the answer; the reasoning around it stays free. A form
guarantees the syntax only: the demo pair has never seen JSON, so its objects are valid and their
values are arbitrary. A deployment allows forms by `guided_decoding: true` of its generator.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from typing import Any

from tts import Session

SCHEMA = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "unit": {"enum": ["m", "km"]}},
    "required": ["value", "unit"],
}
FORMS: dict[str, dict[str, Any]] = {
    "any form": {},
    r"regular expression \d{2}": {"answer_regex": r"\d{2}"},
    "JSON schema": {"answer_schema": json.dumps(SCHEMA)},
}


def main() -> None:
    """Sample answers under each form, and print how often each one was given."""
    parser = argparse.ArgumentParser(description="Answers that are held to a form.")
    parser.add_argument("question", nargs="?", default="Compute 12 + 30 - 5.")
    parser.add_argument("--n", type=int, default=16)
    given = parser.parse_args()
    with Session.open("demo", server="embedded") as session:
        for name, form in FORMS.items():
            result = session.solve(
                given.question,
                strategy="weighted-best-of-n",
                n=given.n,
                temperature=1.2,
                max_tokens=120,
                **form,
            )
            answers = [done.answer for done in result.completions if done.answer is not None]
            print(f"{name}: {len(answers)} of {given.n} completions have an answer")
            for answer, count in Counter(answers).most_common(4):
                print(f"  {count:3} x {answer}")
            if "answer_regex" in form:
                assert all(re.fullmatch(form["answer_regex"], answer) for answer in answers)
            if "answer_schema" in form:
                assert all(json.loads(answer)["unit"] in ("m", "km") for answer in answers)


if __name__ == "__main__":
    main()
