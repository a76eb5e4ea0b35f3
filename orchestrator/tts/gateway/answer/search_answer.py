"""The answer of a search as one client of it is told: steps while it goes on, then the whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tts.build.thinking import Thinking
from tts.prompting.chat import takes_system
from tts.runs.records import CompletionRecord
from tts.search import NodePath, Tree, significant
from tts.session import Result, Step
from tts.session.doubts import doubts

from ..call import Call
from ..openai.answers import AnswerEnd, AnswerPart, SearchUsage, TokenUsage, usage_of
from ..openai.errors import NO_RETRY, ApiError
from ..openai.requests import Request
from ..output.running_searches import RunningSearch, StepNote
from ..output.sample_text import StopStrings
from .closing import ClosingAnswer
from .search_request import SearchRequest


class SearchAnswer:
    """The answer to one call by a search, which others may share."""

    def __init__(
        self,
        call: Call[Request],
        search: SearchRequest,
        closing: ClosingAnswer | None,
        thinking: Thinking | None,
    ) -> None:
        """`closing` gives the answer the form that was asked for."""
        self._call = call
        self._search = search
        self._closing = closing
        self._thinking = thinking
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
        record.search_tokens = result.usage.tokens  # also if there will be no answer
        if not result.completions:
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
        if self._closing:
            reasoning = "\n\n".join(filter(None, (reasoning, self._filtered(completion.text))))
            text, finish = await self._closing.write(completion.text, _ids(result))
        stops = StopStrings(request.stops, include=request.include_stop_str_in_output)
        text = self._filtered(stops.push(text) + stops.finish())
        if self._call.service.recorder.keeps_prompts:
            problem = self._search.problem
            turns = [*(turn.content for turn in problem.history), problem.question]
            record.prompt = "\n\n".join(turns)
            record.answer = "\n\n".join(filter(None, (reasoning, text)))
        end = AnswerEnd(self._usage(result))
        if not request.return_response_only:
            end.metadata = _metadata(result, self._search.config.strategy)
        return AnswerPart(
            text=text,
            reasoning=reasoning,
            finish=finish if stops.stopped is None else "stop",
            tts=self._outcome(result),
            end=end,
        )

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
        """A text as the filters let it pass; raises ContentBlocked."""
        stream = self._call.service.filters.output()
        return stream.feed(text) + stream.end()

    def _usage(self, result: Result) -> TokenUsage:
        """True counts: all generated tokens, the answer's and the others'."""
        usage, record = result.usage, self._call.record
        in_answer = len(_ids(result, thinking=False))
        others = max(0, usage.tokens - in_answer)
        in_answer += self._closing.tokens if self._closing else 0
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
        """The field `tts` of the answer."""
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
    """The completion that the answer stands in, of a result with completions."""
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
