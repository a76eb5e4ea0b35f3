"""The table of presets for verifiers that write: how published ones are asked, and one plain judge.

Each is plain data: its prompt word by word, as the model was trained on it, where its verdict
stands, and how its authors sample it. {question} is the problem, {steps} all steps but the last,
{step} the last one and {number} its number. To add one, add its data here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """How one verifier that writes is asked, and where its verdict stands."""

    meaning: str
    """One line for the documentation."""
    user: str
    """The user's turn, or the first one where each step has a turn."""
    verdict: Mapping[str, Any]
    """The fields of section `verifier.critique.verdict`."""
    max_tokens: int
    temperature: float
    top_p: float
    system: str = ""
    """The system's turn; empty: none."""
    step_form: str = "{step}"
    """How one step is written."""
    between: str = "\n"
    """What stands between two of {steps}."""
    no_steps: str = ""
    """What {steps} is for the first step."""
    later: str = ""
    """The user's turn of a step behind the first; empty: all steps are in one turn."""
    reply: str = ""
    """The verifier's turn behind each step but the last."""
    opening: str = ""
    """What the critique begins with, in the prompt."""
    answers: bool = True
    """Whether the template opens the verifier's turn, in which it may think; else the critique
    follows the user's text."""
    then: str = ""
    """With a verdict by probability: what is written behind `after`, up to the label."""
    otherwise: str = ""
    """What is written where `after` is missing; empty: a new line with it."""
    source: str = field(default="", kw_only=True)
    """Where the facts are from."""


def _yes_or_no(after: str, yes: str, no: str) -> Mapping[str, Any]:
    return {"after": after, "probability": True, "labels": {yes: 1.0, no: 0.0}}


_R_PRM = (
    "You are an excellent math teacher. Please verify the correctness of the Now Step.\n"
    "\n"
    "You first need to analyze the Now Step and the Previous Steps and then summarize based "
    "on your analysis.\n"
    "Analysis:\n"
    "You need to analyze the following aspects.\n"
    "**Previous Steps Analysis**: You need to analyze the Previous Steps step by step. For "
    "each step, you need to first explain what the current step is doing, then you try to "
    "find any error in the current step.\n"
    "**Now Step Analysis**: You first need to explain what the Now Step is doing, and then "
    "point out which part of the Question it is trying to solve or which part of the "
    "information it states.\n"
    "**Data Source Analysis**: First you need to find out what data are used in the Now "
    "Step, and then you need to determine whether the source of the data is reasonable and "
    "correct. When you judge whether the source of a data is reasonable and correct, you "
    "need to specify the specific source of this data: such as which part of the question, "
    "or which content of the previous step; and then determine the source and current use is "
    "consistent, the Now Step is used correctly.\n"
    "**Consistency Analysis**: You need to check that the Now Step is consistent with the "
    "contents of the Previous Steps, and then you need to check that all the information "
    "inside the Now Step is consistent.\n"
    "**Calculation Analysis**: If the Now Step involves any calculations, such as addition, "
    "subtraction, multiplication, division, equations, modulo operations, etc., you will "
    "first need to perform a check on the calculation, such as a reverse operation, to see "
    "if the calculation was done correctly, and then analyze the results of your check to "
    "see if there was an error in the calculation.\n"
    "Conclusion: \n"
    "Please verify the correctness of the Now Step based on your analysis, if there is any "
    "error in the Now Step then the Now Step is wrong and vice versa the Now Step is "
    "correct. At the end of the Conclusion, when you give your final answer, write it in the "
    'form "Verification: Is the step correct (Yes/No)? X", where X is either Yes or No.\n'
    "\n"
    "Question: {question}\n"
    "Previous Steps: {steps}\n"
    "Now Step: {step}\n"
    "Please carefully analyze the correctness of the Now Step.\n"
    "Reply: "
)
PRESETS: Mapping[str, Preset] = {
    "judge": Preset(
        "any instruct model, which checks the last step in a few sentences",
        "Check one step of the solution of a problem.\n\nProblem:\n{question}\n\n"
        "Earlier steps:\n{steps}\n\nStep to check:\n{step}\n\n"
        "In a few sentences, check what this step claims and every calculation in it. It is wrong "
        "if it has a mistake or builds on one. Then end with one line, which is either\n"
        "Verdict: right\nor\nVerdict: wrong",
        {"after": "Verdict", "labels": {"right": 1.0, "wrong": 0.0}},
        max_tokens=1024,
        temperature=0.6,
        top_p=0.95,
        between="\n\n",
        no_steps="(none)",
    ),
    "thinkprm": Preset(
        "ThinkPRM-1.5B, 7B and 14B: checks step by step in its thinking, then answers whether the "
        "solution is correct so far",
        "You are given a math problem and a proposed step-by-step solution:\n\n"
        "[Math Problem]\n\n{question}\n\n[Solution]\n\n{steps}\n\n"
        "Review and critique each step in the proposed solution to determine whether each step is "
        "correct. If the solution is incomplete, only verify the provided steps.",
        _yes_or_no("Is the solution correct?", " Yes", " No"),
        max_tokens=4096,
        temperature=0.0,
        top_p=1.0,
        step_form="Step {number}: {step}",
        source="https://github.com/mukhal/ThinkPRM: utils/helper.py "
        "(format_verification_cot_for_thinkprm), prm/thinkprm.py (ThinkPRM), "
        "prm/thinkprm_api.py; models: Apache-2.0",
    ),
    "genprm": Preset(
        "GenPRM-1.5B, 7B and 32B: analyses the last paragraph, without code, then judges it",
        "Question: {question}\n\n{step}",
        _yes_or_no("</analyze>", "Yes", "No"),
        max_tokens=2048,
        temperature=0.6,
        top_p=0.95,
        system="You are a math teacher. Your task is to review and critique the paragraphs in "
        "solution step by step.",
        later="{step}",
        reply="<output>\n**Judgement**: $\\boxed{Yes}$\n</output>\n",
        opening="<analyze>\nLet's analyze the Paragraph {number} step by step: ",
        answers=False,
        then="\n<output>\n**Judgement**: $\\boxed{",
        otherwise="</analyze>",
        source="https://github.com/RyanLiu112/GenPRM: src/prm_evaluation/genprm_inference.py, "
        "src/utils/util.py (build_prompt), src/prm_evaluation/prm_evaluate.py, README.md; MIT",
    ),
    "r-prm": Preset(
        "R-PRM-7B: analyses the last step by aspects, then verifies it",
        _R_PRM,
        _yes_or_no("Is the step correct (Yes/No)?", " Yes", " No"),
        max_tokens=3072,
        temperature=0.95,
        top_p=0.95,
        system="You are a helpful assistant.",
        step_form="Step {number}: {step}",
        no_steps="Since the Now Step is the first step, there are no Previous Steps.",
        otherwise="\nBased on your analysis. Is the step correct (Yes/No)?",
        source="https://github.com/NJUNLP/R-PRM: src/prompts/GenPRM/GenPRM-evaluate-new3-qwen.txt, "
        "src/evaluate/GenPRM/evaluate-PRM-CoT.py, "
        "src/reward-guide-search/code/GenPRM-Greedy-Seach-Zero-Shot.py (model card: Apache-2.0)",
    ),
}
"""The presets by their names."""
