"""A server of a kind, without a model: it answers in the words of a recording.

Processes that start do little else than import this: it knows nothing of its clients.
"""

import asyncio
import copy
import json
import random
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from aiohttp import web

from tts.build.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[3]
TOKENIZER = Tokenizer(ROOT / "engines" / "checkpoints" / "demo-generator")
END = TOKENIZER.eos_ids[0]
RECORDINGS = Path(__file__).with_name("recordings")
CONTEXT = 200


def recording(kind):
    """What a real server answered, by the name of the request."""
    return json.loads((RECORDINGS / f"{kind}.json").read_text(encoding="utf-8"))


def drawn(ids, seed, count):
    """The tokens of a sample: they depend on the prompt and the seed."""
    choice = random.Random(repr((list(ids), seed)))
    return [choice.randrange(20, TOKENIZER.vocab_size) for _ in range(count)]


def log_prob(ids, token):
    """The log-probability of a token after others."""
    return -random.Random(repr((list(ids), token))).random() * 10


COMPLETION_FIELDS = """
model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n
presence_penalty seed stop stream stream_options suffix temperature top_p user
lora_request prompt_ignore_length use_beam_search top_k top_p_min min_p
repetition_penalty length_penalty early_stopping stop_token_ids
include_stop_str_in_output ignore_eos min_tokens skip_special_tokens
spaces_between_special_tokens truncate_prompt_tokens return_context_logits detokenize
thinking_token_budget add_special_tokens response_format disaggregated_params priority
conversation_params
"""


class StandIn:
    """Speaks as vLLM or llama.cpp; `kind` names the recording."""

    def __init__(self, kind="vllm", output=None):
        """`output` is what every sample is, where it is given."""
        self.kind, self.output = kind, output
        self.said = recording(kind)
        self.asked = []
        """Bodies of requests for samples, in order."""
        self.headers = []
        self.given_up = 0
        self.hold = asyncio.Event()
        """Samples are answered while it is set."""
        self.hold.set()
        self.repeats = True
        """Whether a seed gives the same tokens beside other requests, too."""
        self._in_flight = 0
        self.within_characters = set()
        """Places of tokens that llama.cpp's streams leave out: they end within a character."""
        self.stops_after = None
        """llama.cpp's streams, and several samples' or prompts', break off after so many events."""
        self.seed_step = 1
        """By how much the seeds of several samples of one request differ."""
        self.failures = []
        """Answers of the next requests for samples: functions of nothing that give one."""
        self.port = 0
        self._runner = None

    async def start(self):
        app = web.Application()
        path = "/v1/completions" if self.kind == "vllm" else "/completion"
        app.router.add_post(path, self._sample)
        for name in ("/v1/models", "/version", "/props", "/get_server_info"):
            app.router.add_get(name, self._fact)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return f"http://127.0.0.1:{self.port}"

    async def stop(self):
        await self._runner.cleanup()

    async def __aenter__(self):
        return await self.start()

    async def __aexit__(self, *_):
        await self.stop()

    def _error(self, name):
        said = self.said[name]
        return web.json_response(said["answer"], status=said["status"])

    async def _fact(self, request):
        return self._error(request.path)

    async def _sample(self, request):
        body = await request.json()
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        if self.failures:
            return self.failures.pop(0)()
        self._in_flight += 1
        try:
            await asyncio.sleep(0 if self.repeats else 0.05)
            await self.hold.wait()
            if self._in_flight > 1 and not self.repeats:
                body["seed"] += self._in_flight
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        finally:
            self._in_flight -= 1
        if not 0 <= body.get("repeat_last_n", 0) <= 2**31 - 1:
            words = "Field 'repeat_last_n': Value must be between 0 <= value <= 2147483647"
            error = {"code": 400, "message": words, "type": "invalid_request_error"}
            return web.json_response({"error": error}, status=400)
        ids = body["prompt"]
        if isinstance(ids[0], list):
            return self._each(body)
        if len(ids) >= CONTEXT:
            return self._error("refused")
        if max(ids) >= TOKENIZER.vocab_size:
            return self._error("unknown_id")
        if self.kind == "vllm" and body["model"] != "smollm2":
            return self._error("unknown_model")
        answer = (self._vllm if self.kind == "vllm" else self._llama)(ids, body)
        return await answer if asyncio.iscoroutine(answer) else web.json_response(answer)

    def _tokens(self, ids, body, most):
        """What is written, and why it ends: a stop text, the end of the sequence, the limit."""
        seed = body["seed"] if body["temperature"] else None
        guided = body.get("structured_outputs") or body.get("grammar")
        wanted = [29, 29] if guided else self.output or drawn(ids, seed, most)
        tokens, stops = [], body.get("stop", [])
        for token in wanted[:most]:
            tokens.append(token)
            text = TOKENIZER.decode(tokens)
            if found := next((stop for stop in stops if stop in text), None):
                return tokens, found
            if token in body.get("stop_token_ids", []) or (token == END and not body["ignore_eos"]):
                return tokens, None
        return tokens, "length"

    def _vllm(self, ids, body):
        body = {"ignore_eos": False, **body}
        if "prompt_logprobs" in body:
            answer = copy.deepcopy(self.said["prompt"]["answer"])
            entry = answer["choices"][0]["prompt_logprobs"][1].popitem()[1]
            most = {"0": entry | {"logprob": -0.001}} if body["prompt_logprobs"] else {}
            probs = [
                most | {str(t): entry | {"logprob": log_prob(ids[:at], t)}}
                for at, t in enumerate(ids)
            ]
            answer["choices"][0]["prompt_logprobs"] = [None, *probs[1:]]
            return answer
        if "logprob_token_ids" in body:
            answer = copy.deepcopy(self.said["labels"]["answer"])
            top = {f"token_id:{t}": log_prob(ids, t) for t in body["logprob_token_ids"]}
            answer["choices"][0]["logprobs"]["top_logprobs"] = [top]
            return answer
        if "n" in body:
            return self._several(ids, body)
        tokens, why = self._tokens(ids, body, body["max_tokens"])
        if body.get("stream"):
            return self._stream(ids, tokens, why, body)
        name = "log_probs" if body.get("logprobs") else "sample"
        answer = copy.deepcopy(self.said[name]["answer"])
        answer["choices"][0] |= self._choice(ids, tokens, why, body)
        return answer

    def _choice(self, ids, tokens, why, body, before=()):
        choice = {
            "text": TOKENIZER.decode(tokens),
            "token_ids": tokens,
            "finish_reason": why if why == "length" else "stop",
            "stop_reason": None if why == "length" else why,
        }
        if body.get("logprobs"):
            named = [TOKENIZER.decode([each]) for each in tokens]
            probs = [log_prob([*ids, *before], each) for each in tokens]
            if body.get("return_tokens_as_token_ids"):
                named = [f"token_id:{each}" for each in tokens]
            others = {f"token_id:{n}": -20.0 - n for n in range(body["logprobs"] - 1)}
            top = [others | {name: prob} for name, prob in zip(named, probs, strict=True)]
            choice["logprobs"] = {
                "text_offset": [0] * len(tokens),
                "token_logprobs": probs,
                "tokens": named,
                "top_logprobs": top,
            }
        return choice

    async def _several(self, ids, body):
        """Of each sample its first token, then, the shortest sample first, the rest of each."""
        first, rest = [], []
        for index in range(body["n"]):
            seeded = {**body, "seed": body["seed"] + index * self.seed_step}
            tokens, why = self._tokens(ids, seeded, body["max_tokens"])
            goes_on = {"finish_reason": None, "stop_reason": None}
            first.append(self._choice(ids, tokens[:1], why, body) | {"index": index} | goes_on)
            rest.append(self._choice(ids, tokens[1:], why, body) | {"index": index})
        rest.sort(key=lambda choice: len(choice["token_ids"]))
        return self._events([*first, *rest])

    def _each(self, body):
        """Of each prompt its labels, the last prompt first."""
        answers = [self._vllm(ids, body)["choices"][0] for ids in body["prompt"]]
        return self._events([each | {"index": at} for at, each in enumerate(answers)][::-1])

    def _events(self, choices):
        events = [{"choices": [choice]} for choice in choices]
        events = [*events, {"choices": [], "usage": {}}][: self.stops_after]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        return web.Response(text="".join([*lines, "data: [DONE]\n\n"]))

    async def _stream(self, ids, tokens, why, body):
        events = [
            json.loads(line.removeprefix("data: "))
            for line in self.said["stream"]["answer"].splitlines()
            if line.startswith("data: {")
        ]
        lines = []
        for at, token in enumerate(tokens):
            event = copy.deepcopy(events[0])
            event["choices"][0] |= self._choice(ids, [token], why, body, tokens[:at])
            if at + 1 < len(tokens):
                event["choices"][0] |= {"finish_reason": None, "stop_reason": None}
            lines.append(f"data: {json.dumps(event)}\n\n")
        return web.Response(text="".join([": ping\n\n", *lines, "data: [DONE]\n\n"]))

    def _llama(self, ids, body):
        if "post_sampling_probs" in body:
            answer = copy.deepcopy(self.said["labels"]["answer"])
            labels = [each[0] for each in body["logit_bias"]]
            probs = np.exp([log_prob(ids, label) for label in labels])
            row = answer["completion_probabilities"][0]
            pairs = zip(labels, probs / probs.sum(), strict=True)
            row["top_probs"] = [row["top_probs"][0] | {"id": i, "prob": float(p)} for i, p in pairs]
            return answer
        tokens, why = self._tokens(ids, body, body["n_predict"])
        name = "log_probs" if body.get("n_probs") else "sample"
        answer = copy.deepcopy(self.said[name]["answer"])
        answer["tokens"] = tokens
        answer["content"] = TOKENIZER.decode(tokens)
        answer["stop_type"] = {"length": "limit", None: "eos"}.get(why, "word")
        if name == "log_probs":
            row = answer["completion_probabilities"][0]
            answer["completion_probabilities"] = [
                row | {"id": each, "logprob": log_prob(ids, each)} for each in tokens
            ]
        answer["tokens_predicted"] = len(tokens)
        return self._llama_stream(answer) if body.get("stream") else answer

    async def _llama_stream(self, answer):
        """An event for each token, and a last one without any."""
        tokens, probs = answer["tokens"], answer.pop("completion_probabilities", [])
        events = []
        for at, token in enumerate(tokens):
            event = {"index": 0, "stop": False, "tokens": [token], "tokens_predicted": at + 1}
            event["content"] = TOKENIZER.decode([token])
            if probs:
                event["completion_probabilities"] = [probs[at]]
            if at not in self.within_characters:
                events.append(event)
        events.append(answer | {"tokens": [], "content": ""})
        events = events[: self.stops_after]
        return web.Response(text="".join(f"data: {json.dumps(event)}\n\n" for event in events))


class TrtllmServe(StandIn):
    """Speaks as trtllm-serve by its sources (openai_protocol.py, postprocess_handlers.py of 2026).

    Not recorded: what a real one answers was never seen.
    """

    FIELDS = frozenset(COMPLETION_FIELDS.split())
    """Of a CompletionRequest, which forbids all others."""

    def __init__(self, output=None):
        super().__init__("vllm", output)
        card = {"id": "smollm2", "object": "model", "created": 0, "owned_by": "tensorrt_llm"}
        self.said |= {
            "/v1/models": {"answer": {"object": "list", "data": [card]}, "status": 200},
            "/version": {"answer": {"version": "1.3.0rc25"}, "status": 200},
        }

    async def _sample(self, request):
        if unknown := sorted((await request.json()).keys() - self.FIELDS):
            words = f"Extra inputs are not permitted: {', '.join(unknown)}"
            error = {"object": "error", "message": words, "type": "BadRequestError", "code": 400}
            return web.json_response(error, status=400)
        return await super()._sample(request)

    def _vllm(self, ids, body):
        if "logit_bias" in body:
            labels = [int(token) for token in body["logit_bias"]]
            logits = np.asarray([log_prob(ids, label) for label in labels])
            probs = logits - np.log(np.exp(logits).sum())
            top = dict(zip(map(TOKENIZER.token_texts.__getitem__, labels), probs, strict=True))
            if body["logprobs"] > len(labels):  # another token that reads as a label
                top[TOKENIZER.token_texts[labels[0]]] = -100.0
            token = labels[int(np.argmax(probs))]
            choice = self._choice(ids, [token], "length", {**body, "logprobs": 0})
            choice["logprobs"] = {
                "text_offset": [0],
                "token_logprobs": [float(probs.max())],
                "tokens": [TOKENIZER.token_texts[token]],
                "top_logprobs": [{name: float(prob) for name, prob in top.items()}],
            }
            return self._answer([choice])
        tokens, why = self._tokens(ids, body, body["max_tokens"])
        if body.get("stream"):
            return self._stream(ids, tokens, why, body)
        return self._answer([self._choice(ids, tokens, why, body)])

    def _tokens(self, ids, body, most):
        """Stop texts are looked for as the tokens that spell them, not in the text."""
        seed = body["seed"] if body["temperature"] else None
        wanted = self.output or drawn(ids, seed, most)
        if body.get("response_format"):
            wanted = [29, 29]
        words = [TOKENIZER.encode(text) for text in body.get("stop", [])]
        words += [[token] for token in body.get("stop_token_ids", [])]
        tokens = []
        for token in wanted[:most]:
            tokens.append(token)
            if token == END and not body.get("ignore_eos"):
                return tokens, None
            if any(tokens[-len(word) :] == word for word in words):
                return tokens, None
        return tokens, "length"

    def _choice(self, ids, tokens, why, body, before=()):
        choice = super()._choice(ids, tokens, why, body, before)
        plain = body.get("detokenize", True)
        shown = {"text": choice["text"], "token_ids": None} if plain else {"text": ""}
        return {"index": 0, "logprobs": None} | choice | shown | {"stop_reason": None}

    def _answer(self, choices):
        return {
            "id": "cmpl-0",
            "object": "text_completion",
            "created": 0,
            "model": "smollm2",
            "choices": choices,
            "usage": {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0},
        }

    async def _stream(self, ids, tokens, why, body):
        lines = []
        for at, token in enumerate(tokens):
            choice = self._choice(ids, [token], why, body, tokens[:at])
            if at + 1 < len(tokens):
                choice |= {"finish_reason": None, "stop_reason": None}
            lines.append(f"data: {json.dumps(self._answer([choice]))}\n\n")
        return web.Response(text="".join([*lines, "data: [DONE]\n\n"]))


@contextmanager
def answering(server):
    """The URL of a stand-in that answers in a thread of its own while the block lasts."""
    loop = asyncio.new_event_loop()
    url = loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(server.stop())
        loop.close()
