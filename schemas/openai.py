"""What of a request is checked before it comes near an engine: OpenAI's APIs, Anthropic's, and vLLM's own.

The structs are the rules: a field has a type and a range, null means absent, unknown fields pass (vLLM has many).
Anything a struct refuses becomes one 400 that names the field. The bounds protect the engine that all programs share;
the model's own limits (context, vocabulary) are the engine's to check.
"""

import re
from math import isfinite
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from autellix.schemas.base import ErrorBody

MAX_N = 16
MAX_STOPS = 16
MAX_PROMPTS = 128
"""Prompts in one completion call: each is a request of its own in the engine."""

PASSED_OVER = {
    "guided_json": "structured_outputs",
    "guided_regex": "structured_outputs",
    "guided_choice": "structured_outputs",
    "guided_grammar": "structured_outputs",
    "guided_decoding_backend": "structured_outputs",
    "guided_whitespace_pattern": "structured_outputs",
    "functions": "tools",
    "best_of": "n",
}
"""Fields that vLLM passes over, so that an answer would not be what was asked for, and what took their place."""
RESERVED = frozenset({"kv_transfer_params", "ec_transfer_params"})
"""Names in `vllm_xargs` that vLLM reads as objects."""

Text = Annotated[str, Meta(max_length=256)]
Unit = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Stop = Annotated[str, Meta(min_length=1, max_length=1024)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Scalar = str | int | float | list[str | int | float]


Model = Annotated[str, Meta(min_length=1, max_length=256)]


class ApiRequest(Struct, kw_only=True):
    """The fields that every API has. Without a model it is for whichever engine there is."""

    model: Model | None = None
    stream: bool | None = None


class StructuredOutputs(Struct, kw_only=True):
    """vLLM's grammars: those that are compiled where all calls pass have a bound."""

    regex: Annotated[str, Meta(max_length=4096)] | None = None
    choice: Annotated[list[Annotated[str, Meta(max_length=4096)]], Meta(min_length=1, max_length=1024)] | None = None
    grammar: Annotated[str, Meta(max_length=65_536)] | None = None


class Sampling(ApiRequest, kw_only=True):
    """The fields that every generating API shares."""

    model: Model
    n: Annotated[int, Meta(ge=1, le=MAX_N)] | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Unit | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=256)] | None = None
    logit_bias: Annotated[dict[str, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=1024)] | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    user: Text | None = None
    session_id: Text | None = None
    vllm_xargs: dict[str, Scalar] | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    use_beam_search: Literal[False] | None = None
    """vLLM makes requests of its own for it, which belong to no call: they could not be charged."""
    structured_outputs: StructuredOutputs | None = None


class ChatMessage(Struct, kw_only=True):
    """One turn: its role must be a known one, the rest is the chat template's."""

    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    content: str | list[Any] | None = None


class ChatRequest(Sampling, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=16384)]
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=1024)] | None = None


Prompt = Annotated[str, Meta(min_length=1)]
TokenIds = Annotated[list[TokenId], Meta(min_length=1, max_length=2**20)]


class TextBatch(Struct):
    """Several prompts as text."""

    prompt: Annotated[list[Prompt], Meta(max_length=MAX_PROMPTS)]


class TokenPrompt(Struct):
    """One prompt as token ids."""

    prompt: TokenIds


class TokenBatch(Struct):
    """Several prompts as token ids."""

    prompt: Annotated[list[TokenIds], Meta(max_length=MAX_PROMPTS)]


PROMPT_LISTS: dict[type, type[Struct]] = {str: TextBatch, int: TokenPrompt, list: TokenBatch}
"""What a list of prompts is, by the type of its first element."""


class CompletionRequest(Sampling, kw_only=True):
    """`POST /v1/completions`."""

    prompt: Prompt | Annotated[list[Any], Meta(min_length=1)]
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_N)] | None = None


class ResponsesRequest(Sampling, kw_only=True):
    """`POST /v1/responses`."""

    input: Annotated[str, Meta(min_length=1)] | Annotated[list[Any], Meta(min_length=1, max_length=16384)]
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=1024)] | None = None
    background: Literal[False] | None = None
    """A response that outlives its request belongs to no call."""


class MessagesRequest(Sampling, kw_only=True):
    """`POST /v1/messages`, as Anthropic defines it."""

    max_tokens: Tokens
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=16384)]
    system: str | list[Any] | None = None
    stop_sequences: Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=1024)] | None = None


class CountTokensRequest(ApiRequest, kw_only=True):
    """`POST /v1/messages/count_tokens`."""

    model: Model
    stream: Literal[False] | None = None
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=16384)]


class TokenizeRequest(ApiRequest, kw_only=True):
    """`POST /tokenize`."""

    stream: Literal[False] | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=16384)] | None = None


class DetokenizeRequest(ApiRequest, kw_only=True):
    """`POST /detokenize`."""

    stream: Literal[False] | None = None
    tokens: Annotated[list[TokenId], Meta(max_length=2**20)]


MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
RESPONSES = "/v1/responses"

APIS: dict[str, type[ApiRequest]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
    RESPONSES: ResponsesRequest,
    MESSAGES: MessagesRequest,
    COUNT_TOKENS: CountTokensRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}


def generates(api: str) -> bool:
    """Tell whether an engine computes for this API; else it only answers."""
    return issubclass(APIS[api], Sampling)


class InvalidRequestError(ValueError):
    """The request is refused; `status` and `body` are the answer."""

    def __init__(self, status: int, body: ErrorBody) -> None:
        super().__init__(body.message)
        self.status = status
        self.body = body


def invalid(
    message: str, *, param: str | None = None, code: str | None = None, status: int = 400
) -> InvalidRequestError:
    """Return the error that refuses a request in the OpenAI shape."""
    kind = {404: "not_found_error", 429: "rate_limit_error", 503: "server_error"}.get(status, "invalid_request_error")
    return InvalidRequestError(status, ErrorBody(message=message, type=kind, param=param, code=code))


def check(api: str, body: dict[str, Any]) -> tuple[ApiRequest, bytes]:
    """Return the request's checked fields and its JSON text.

    Null means absent: such fields are left out, since engines refuse null in some.

    Raises:
        InvalidRequestError: 404 for an unknown API, 400 for a body that breaks a rule or has no JSON form.
    """
    rules = APIS.get(api)
    if rules is None:
        raise invalid(f"Unknown API: {api[:80]!r}. Known: {', '.join(APIS)}.", code="unknown_api", status=404)
    try:
        text = msgspec.json.encode({name: value for name, value in body.items() if value is not None})
        request = msgspec.json.decode(text, type=rules)
        _check_finite(body)
        _check_prompt(request)
        _check_names(request, body)
    except msgspec.ValidationError as error:
        raise invalid(str(error), param=_param(str(error))) from error
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise invalid(f"The body has no JSON form: {error}") from error
    return request, text


def _check_finite(body: dict[str, Any]) -> None:
    """Refuse NaN and infinity, which MessagePack carries and JSON text turns into null."""
    for name, value in body.items():
        if isinstance(value, float) and not isfinite(value):
            raise msgspec.ValidationError(f"Expected a finite number - at `$.{name}`")


def _check_prompt(request: ApiRequest) -> None:
    """Refuse a list that is no prompt and no batch of them, or an empty prompt inside a batch."""
    if isinstance(request, CompletionRequest) and isinstance(request.prompt, list):
        first = request.prompt[0]
        if type(first) not in PROMPT_LISTS:
            raise msgspec.ValidationError("Expected texts or token ids - at `$.prompt[0]`")
        msgspec.convert({"prompt": request.prompt}, PROMPT_LISTS[type(first)])
        prompts = 1 if type(first) is int else len(request.prompt)
        if prompts * (request.n or 1) > MAX_PROMPTS:
            raise msgspec.ValidationError(f"Expected at most {MAX_PROMPTS} answers to all prompts - at `$.n`")


def _check_names(request: ApiRequest, body: dict[str, Any]) -> None:
    """Refuse what vLLM would pass over, and extra arguments of names that are not a client's to use."""
    if not isinstance(request, Sampling):
        return
    if RESERVED & (request.vllm_xargs or {}).keys():
        raise msgspec.ValidationError("Expected other names - at `$.vllm_xargs`")
    for name in PASSED_OVER.keys() & body.keys():
        if body[name] is not None and (name, body[name]) != ("best_of", 1):
            raise msgspec.ValidationError(f"Not understood by engines: use `{PASSED_OVER[name]}` - at `$.{name}`")


def _param(text: str) -> str | None:
    """Return the outermost field that a msgspec error names: `messages` for ``at `$.messages[0].role` ``."""
    missing = re.search(r"missing required field `(\w+)`$", text)
    found = missing or re.search(r"at `\$\.(\w+)", text)
    return found[1] if found else None
