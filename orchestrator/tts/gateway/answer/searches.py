"""A search as the answer to a call: begun or joined, told while it goes on, then whole.

call ──► SearchRequest ──► RunningSearches: the same is run once ──► SearchAnswer ──► respond
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from ..call import Call
from ..openai.answers import Encoder
from ..openai.messages import ChatMessage
from ..openai.requests import Request
from ..output.running_searches import begin_search
from .closing import ClosingAnswer
from .joining import respond_by_search
from .prompts import form_read, search_prompt
from .search_answer import SearchAnswer
from .search_request import read_search_request
from .structured import OutputForm


async def answer_by_search(
    call: Call[Request],
    encoder: Encoder,
    messages: Sequence[ChatMessage],
    form: OutputForm | None,
    variables: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Search for an answer to a conversation, or join the search that does, and respond.

    `form` is the form of the answer, `variables` are those of the chat template.
    """
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
    room = service.generator.room(prompt, request.limit)
    if thinking and request.limit:  # which bounds the answer; the thinking has its budget
        budget = search.config.parameters.get("thinking_budget") or thinking.budget
        room = min(service.generator.room(prompt, None), room + (budget or room))
    most = search.config.limits.budget_tokens or search.n * room
    call.admit(len(prompt) + most, search=True)
    call.record.prompt_tokens = len(prompt)
    # 3. The search, which others may have asked for, too, and the response.
    closing = None
    if form:
        until = time.monotonic() + search.deadline_s
        closing = ClosingAnswer(call, prompt, form, until, thinking)
    answer = SearchAnswer(call, search, closing, thinking)
    start = partial(begin_search, service.session, search.plan)
    await respond_by_search(call, encoder, start, answer.of, answer.progress)
