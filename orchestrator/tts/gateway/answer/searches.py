"""A search as the answer to a call: begun or joined, told while it goes on, then whole.

call ──► SearchRequest ──► RunningSearches: the same is run once ──► SearchAnswer ──► respond

Where a box can hold every answer of the form that was asked for, the search holds its boxes to it,
and the answer is what stands in the box. Otherwise, and where the chosen completion has no box, the
generator goes on from the completion and writes the answer under the form's grammar.
"""

from __future__ import annotations

import time
from asyncio import timeout
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from tts.build.thinking import Thinking
from tts.endpoints.base import GenerateCall
from tts.grading.extract import boxed_answer
from tts.prompting.chat import takes_system
from tts.runs.records import CompletionRecord
from tts.search import NodePath, Tree, significant
from tts.session import Result, Step
from tts.session.outcome import doubts

from ..call import Call
from ..draining import cut_off
from ..openai.answers import AnswerEnd, AnswerPart, Encoder, SearchUsage, TokenUsage, usage_of
from ..openai.errors import NO_RETRY, ApiError, too_late
from ..openai.messages import ChatMessage
from ..openai.requests import Request
from ..output.running_searches import RunningSearch, StepNote, begin_search
from ..output.sample_text import StopStrings
from .prompts import form_read, search_prompt
from .respond import respond_by_search
from .search_request import SearchRequest, read_search_request
from .structured import OutputForm

LEAD = "\n\n\\boxed{"
"""Text between a completion and the answer that is added to it."""
LEAST_ROOM = 16
"""Tokens that must be left for an answer, or it is written without the completion before it."""


async def answer_by_search(
    call: Call[Request],
    encoder: Encoder,
    messages: Sequence[ChatMessage],
    form: OutputForm | None,
    variables: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Search for an answer of `form` to a conversation, or join that search, and respond."""
    service, request = call.service, call.request
    # 1. The question, as the filters let it pass, and the search that is to answer it.
    models = service.session.models.asked_with(variables)
    problem, prompt = await search_prompt(call, models, messages, variables)
    read = partial(read_search_request, call, problem, form)
    parameters = request.tts.parameters if request.tts else {}
    reads_form = form or parameters.keys() & {"answer_regex", "answer_schema"}
    search = await form_read(read) if reads_form else read()
    # 2. What it may take, charged to the key.
    thinking = models.thinking_about(problem)
    room = service.generator.room(len(prompt), request.limit)
    if thinking and request.limit:  # which bounds the answer; the thinking has its budget
        budget = search.config.parameters.get("thinking_budget") or thinking.budget
        room = min(service.generator.room(len(prompt), None), room + (budget or room))
    most = search.config.limits.budget_tokens or search.n * room
    call.admit(len(prompt) + most, search=True)
    call.record.prompt_tokens = len(prompt)
    # 3. The search, which others may have asked for, too, and the response.
    answer = SearchAnswer(call, search, prompt, form, thinking)
    start = partial(begin_search, service.session, search.plan)
    await respond_by_search(call, encoder, start, answer.of, answer.progress)


class SearchAnswer:
    """The answer to one call by a search, which others may share."""

    def __init__(
        self,
        call: Call[Request],
        search: SearchRequest,
        prompt: list[int],
        form: OutputForm | None,
        thinking: Thinking | None,
    ) -> None:
        """`form` is that of the answer, `thinking` that which the prompt ends inside."""
        self._call = call
        self._search = search
        self._prompt = prompt
        self._form = form
        self._thinking = thinking
        self._until = time.monotonic() + search.deadline_s
        self._closing_tokens = 0
        """Tokens that were generated for the form."""
        self._told_nodes = set[NodePath]()
        """Nodes of thinking that a stream has told, each before the steps below it."""
        self._shows_texts = not call.service.filters.of_output
        """Where answers are filtered, no text is told that has not been through the filters."""

    def progress(self, search: RunningSearch[Result], steps: list[Step]) -> AnswerPart:
        """The part of a stream that tells of new steps."""
        options = self._call.request.tts
        how = (options.progress if options else None) or "steps"
        if how == "reasoning" and self._shows_texts:
            scored = [step for step in steps if step.score is not None]
            pairs = [(self._thought(step.tree, step.node), str(step)) for step in scored]
            lines = [f"{line}\n" for pair in pairs for line in pair if line]
            return AnswerPart(reasoning="".join(lines))
        if how == "steps" and steps:
            notes = [
                StepNote(step.node, None, significant(step.score))
                if step.score is not None
                else StepNote(step.node, step.text if self._shows_texts else None)
                for step in steps
            ]
            best = search.best if self._shows_texts else None
            return AnswerPart(tts={"steps": notes, "best": best})
        return AnswerPart()

    async def of(self, search: RunningSearch[Result], result: Result) -> AnswerPart:
        """The answer, and before it the text that leads to it, if that stands apart."""
        record, request = self._call.record, self._call.request
        # also if there will be no answer
        record.search_tokens, record.verifier_tokens = search.tokens, result.usage.verifier_tokens
        if not result.completions:
            if self._call.service.drain.over:
                raise cut_off()
            raise ApiError(
                504,
                "The search has ended without any completion. Give it more tokens "
                "(tts.budget_tokens) or more time (tts.deadline_s), or a smaller n.",
                code="no_completion",
                headers=NO_RETRY,
            )
        completion = _chosen(result)
        text, finish = completion.text, "length" if result.limit else "stop"
        thought = self._thought(result.tree, completion.node)
        if result.tree is None:
            thought = self._without_mark(completion.thinking)
        reasoning = self._filtered(thought)
        if self._form:
            reasoning = "\n\n".join(filter(None, (reasoning, self._filtered(completion.text))))
            text, finish = await self._in_form(self._form, completion.text, _ids(result))
        stops = StopStrings(request.stops, include=request.include_stop_str_in_output)
        text = self._filtered(stops.push(text) + stops.finish())
        if self._call.service.recorder.keeps_prompts:
            problem = self._search.problem
            turns = [*(turn.content for turn in problem.history), problem.question]
            record.prompt = "\n\n".join(turns)
            record.answer = "\n\n".join(filter(None, (reasoning, text)))
        end = AnswerEnd(self._usage(result, search.tokens))
        if not request.return_response_only:
            end.metadata = _metadata(result, self._search.config.strategy)
        return AnswerPart(
            text=text,
            reasoning=reasoning,
            finish=finish if stops.stopped is None else "stop",
            tts=self._outcome(result),
            end=end,
        )

    async def _in_form(self, form: OutputForm, text: str, ids: list[int]) -> tuple[str, str]:
        """The answer of a completion, given as text and as token ids, and why it ends."""
        if form.in_box and (answer := boxed_answer(text)) is not None:
            return answer, "stop"
        request, record = self._call.request, self._call.record
        generator = self._call.service.generator
        lead = generator.models.generator.encode(LEAD)
        closing = self._thinking.closing_ids if self._thinking else ()
        closed = self._thinking is None or self._thinking.end(ids) is not None
        prompt = [*self._prompt, *ids, *(() if closed else closing), *lead]
        if generator.context - len(prompt) < LEAST_ROOM:
            prompt = [*self._prompt, *closing, *lead]
        generate_call = GenerateCall(
            np.asarray(prompt, dtype=np.int32),
            generator.room(len(prompt), request.limit),
            0,
            0.0,
            1.0,
            stop_at_step=False,
            guide=form.guide,
        )
        sample = generator.sample(0, generate_call, request)
        answer = ""
        try:
            async with timeout(max(0.0, self._until - time.monotonic())):
                async with aclosing(generator.deltas(generate_call, sample, record, "")) as deltas:
                    async for delta in deltas:
                        answer += delta.text
        except TimeoutError:
            raise too_late("The answer was not complete within the deadline.") from None
        finally:  # also of an answer that is not complete
            self._closing_tokens = record.answer_tokens = sample.tokens
        return answer, sample.finish or "stop"

    def _thought(self, tree: Tree | None, node: NodePath) -> str:
        """The thinking of a chain, as far as it has not been told."""
        if tree is None or tree.get(node) is None:
            return ""
        thoughts = {each.path: each.thought for each in tree.chain(node)}
        new = {path: each.text for path, each in thoughts.items() if each and each.thinking}
        text = "".join(text for path, text in new.items() if path not in self._told_nodes)
        self._told_nodes.update(new)
        return self._without_mark(text)

    def _without_mark(self, thought: str) -> str:
        """Thinking as it is told: without the mark that closes it, and what stands behind that."""
        if self._thinking is None:
            return thought
        for mark in map(self._thinking.tokenizer.decode, self._thinking.stop_words):
            thought = thought.partition(mark)[0] if mark else thought
        return thought.strip()

    def _filtered(self, text: str) -> str:
        return self._call.service.filters.output().whole(text)

    def _usage(self, result: Result, tokens: int) -> TokenUsage:
        """True counts of all `tokens` that were generated: the answer's and the others'."""
        usage, record = result.usage, self._call.record
        in_answer = len(_ids(result, thinking=False))
        others = max(0, tokens - in_answer)
        in_answer += self._closing_tokens
        record.answer_tokens, record.search_tokens = in_answer, others
        record.verifier_tokens = usage.verifier_tokens
        search = SearchUsage(
            usage.verifier_tokens,
            usage.generator_calls,
            usage.verifier_calls,
            round(usage.seconds, 6),
        )
        return usage_of(record.prompt_tokens, in_answer, others, search)

    def _outcome(self, result: Result) -> dict[str, Any]:
        completion = _chosen(result)
        score = completion.score
        return {
            "strategy": self._search.config.strategy,
            "n": self._search.n,
            "seed": self._search.config.seed,
            "answer": result.answer if self._shows_texts else None,
            "answers": result.answers if self._shows_texts else None,
            "node": list(completion.node),
            "vote": result.vote,
            "score": None if score is None else significant(score),
            "completions": len(result.completions),
            "limit": result.limit,
            "tree_digest": result.tree_digest,
            "gateway_ms": self._call.record.gateway_ms(),
            "warnings": self._warnings(completion),
        }

    def _warnings(self, completion: CompletionRecord) -> list[str]:
        service, problem = self._call.service, self._search.problem
        warnings = doubts(
            service.deployment, problem.question, completion.judged, completion.probability
        )
        system = any(turn.role == "system" for turn in problem.history)
        if system and not takes_system(service.generator.models.generator):
            warnings.append(
                "The model's chat template has no system role: what the system says stood in front "
                "of the question."
            )
        config = self._search.plan.strategy.config
        if config and config.n > 1 and config.temperature == 0:
            warnings.append("The temperature is 0: all chains of this search are equal.")
        return warnings


def _chosen(result: Result) -> CompletionRecord:
    assert result.chosen is not None
    return result.chosen


def _ids(result: Result, *, thinking: bool = True) -> list[int]:
    """The tokens of the chosen completion, with its thinking or without."""
    nodes = result.tree.chain(_chosen(result).node) if result.tree else []
    thoughts = (node.thought for node in nodes if node.thought)
    return [token for each in thoughts if thinking or not each.thinking for token in each.token_ids]


def _metadata(result: Result, strategy: str) -> dict[str, Any]:
    """The candidates of the answer, as its_hub's server describes them."""
    return {
        "algorithm": strategy,
        "all_responses": [
            {"role": "assistant", "content": each.text} for each in result.completions
        ],
        "response_counts": Counter(
            each.answer for each in result.completions if each.answer is not None
        ),
        "selected_index": result.completions.index(_chosen(result)),
    }
