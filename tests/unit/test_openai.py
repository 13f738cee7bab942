"""What of an OpenAI request is refused before it comes near an engine, and what legal oddities pass."""

import json
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.schemas.openai import MAX_N, MAX_PROMPTS, InvalidRequestError, check, invalid

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> dict[str, Any]:
    """Return a good chat request with these fields in addition, or instead."""
    return {"model": "m", "messages": MESSAGES, **fields}


def completion(**fields: Any) -> dict[str, Any]:
    """Return a good completion request with these fields in addition, or instead."""
    return {"model": "m", "prompt": "hi", **fields}


def refused(api: str, body: Any) -> InvalidRequestError:
    """Return the refusal of this request."""
    with pytest.raises(InvalidRequestError) as caught:
        check(api, body)
    return caught.value


BAD_FIELDS: list[tuple[str, Any]] = [
    ("model", ""),
    ("model", None),
    ("model", 7),
    ("model", "m" * 257),
    ("stream", "yes"),
    ("stream", 1),
    ("n", 0),
    ("n", 17),
    ("n", 100_000),
    ("n", True),
    ("n", "2"),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 2**31),
    ("max_tokens", True),
    ("max_completion_tokens", 0),
    ("min_tokens", -1),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", nan),
    ("temperature", inf),
    ("temperature", "0.5"),
    ("temperature", [0.5]),
    ("top_p", 0),
    ("top_p", 1.1),
    ("top_p", nan),
    ("top_k", -2),
    ("top_k", 2**31),
    ("min_p", -inf),
    ("presence_penalty", 2.5),
    ("frequency_penalty", -2.5),
    ("repetition_penalty", 0),
    ("seed", 2**63),
    ("seed", 2**64),
    ("seed", 1.5),
    ("stop", ""),
    ("stop", [""]),
    ("stop", ["a"] * 17),
    ("stop", "x" * 5000),
    ("stop", 7),
    ("stop", [None]),
    ("structured_outputs", {"regex": "a" * 4097}),
    ("structured_outputs", {"choice": ["a"] * 1025}),
    ("structured_outputs", {"choice": []}),
    ("guided_json", {}),
    ("guided_regex", "a"),
    ("guided_choice", ["a"]),
    ("guided_grammar", "root ::= x"),
    ("vllm_xargs", {"kv_transfer_params": "x"}),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [2**31]),
    ("stop_token_ids", list(range(257))),
    ("logit_bias", {"5": nan}),
    ("logit_bias", {"5": 101}),
    ("logit_bias", [5]),
    ("logit_bias", {str(number): 1 for number in range(1025)}),
    ("prompt_logprobs", -1),
    ("prompt_logprobs", 21),
    ("priority", 2**31),
    ("use_beam_search", True),
    ("user", "x" * 257),
    ("session_id", 7),
    ("vllm_xargs", {"x": {}}),
    ("vllm_xargs", {"x": nan}),
    ("some_field_of_the_future", inf),
]


@pytest.mark.parametrize(("name", "value"), BAD_FIELDS)
@pytest.mark.parametrize(("api", "body"), [(CHAT, chat()), (COMPLETIONS, completion())])
def test_bad_field(api: str, body: dict[str, Any], name: str, value: Any) -> None:
    """A value of the wrong type or range is a 400 that names its field."""
    error = refused(api, {**body, name: value})

    assert error.status == 400
    assert error.body.param == name
    assert error.body.type == "invalid_request_error"
    assert error.body.message


@pytest.mark.parametrize(
    "messages",
    [[], "x", 123, None, {}, [None], [{}], ["x"], [[]], [{"role": ""}], [{"role": 7}], [{"role": "zzz"}],
     [{"role": "user", "content": 7}], [{"role": "user", "content": {"text": "x"}}], [*MESSAGES, None]],
)  # fmt: skip
def test_bad_messages(messages: Any) -> None:
    """Messages that are no conversation are a 400 that names them."""
    error = refused(CHAT, chat(messages=messages))

    assert (error.status, error.body.param) == (400, "messages")


@pytest.mark.parametrize(("name", "value"), [("top_logprobs", 21), ("logprobs", 5), ("tools", [None]), ("tools", "x")])
def test_bad_chat_field(name: str, value: Any) -> None:
    """The fields that only chat has are checked there."""
    assert refused(CHAT, chat(**{name: value})).body.param == name


def test_functions() -> None:
    """OpenAI's form before tools, which an engine would pass over, is refused, and the text says what to use."""
    error = refused(CHAT, chat(functions=[]))

    assert error.body.param == "functions"
    assert "use `tools`" in error.body.message


@pytest.mark.parametrize(
    "prompt",
    ["", None, 5, {}, [], [""], ["hello", ""], [None], [{}], [1.5], [True], [[]], [[1], []], [-1], [2**31], [[1], [-1]],
     [[True]], [[1, "a"]], ["a", 1], [1, "a"], [[["x"]]], ["a"] * (MAX_PROMPTS + 1), [[1]] * (MAX_PROMPTS + 1)],
)  # fmt: skip
def test_bad_prompt(prompt: Any) -> None:
    """A prompt that is empty, of mixed kinds, or a batch without bound is a 400 that names it, also inside a batch."""
    error = refused(COMPLETIONS, completion(prompt=prompt))

    assert (error.status, error.body.param) == (400, "prompt")


@pytest.mark.parametrize(("name", "value"), [("best_of", 1000), ("best_of", 0), ("logprobs", 21), ("logprobs", -1)])
def test_bad_completion_field(name: str, value: Any) -> None:
    """The fields that only completions have are checked there."""
    assert refused(COMPLETIONS, completion(**{name: value})).body.param == name


@pytest.mark.parametrize(
    ("api", "body", "name"),
    [
        (CHAT, {}, "model"),
        (CHAT, {"messages": MESSAGES}, "model"),
        (CHAT, {"model": "m"}, "messages"),
        (COMPLETIONS, {"model": "m"}, "prompt"),
    ],
)
def test_missing_field(api: str, body: dict[str, Any], name: str) -> None:
    """A field that must be there and is not is named."""
    assert refused(api, body).body.param == name


@pytest.mark.parametrize(
    "prompt", ["x", ["x"], ["x", "y"], [1, 2, 0], [[1], [2, 3]], ["a"] * MAX_PROMPTS, list(range(5000))]
)
def test_good_prompts(prompt: Any) -> None:
    """Text, token ids and batches of either pass."""
    _, text = check(COMPLETIONS, completion(prompt=prompt))

    assert json.loads(text)["prompt"] == prompt


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, {"role": "tool", "content": "x"}],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        [*MESSAGES, *MESSAGES],
        [*MESSAGES, {"role": "system", "content": "be kind"}],
        [{"role": "assistant", "content": "hello"}, *MESSAGES],
        [{"role": "user", "name": "x", "content": "hi"}],
        [{"role": "assistant"}, *MESSAGES],
    ],
)
def test_histories_of_agents(messages: list[Any]) -> None:
    """Conversations as agent frameworks replay them pass as they are."""
    _, text = check(CHAT, chat(messages=messages))

    assert json.loads(text)["messages"] == messages


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": []},
        {"stop": None, "n": None, "temperature": None, "stream": None},
        {"temperature": 0, "top_p": 1, "top_k": -1},
        {"parallel_tool_calls": True, "store": False, "metadata": {"a": "b"}, "service_tier": "auto"},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}], "tool_choice": "required"},
        {"logprobs": True, "top_logprobs": 20},
        {"vllm_xargs": {"a": 1, "b": "x", "c": [1.5]}},
        {"field_of_the_future": {"deep": [1, None]}},
    ],
)
def test_fields_of_stock_clients(fields: dict[str, Any]) -> None:
    """Null means absent, and what the rules do not name is the engine's to judge."""
    sampling, text = check(CHAT, chat(**fields))

    assert sampling.model == "m"
    assert json.loads(text) == {name: value for name, value in chat(**fields).items() if value is not None}


@pytest.mark.parametrize("prompt", [["a"] * MAX_PROMPTS, [[1]] * (MAX_PROMPTS // MAX_N + 1)])
def test_answers_of_a_batch(prompt: list[Any]) -> None:
    """Prompts times answers is what an engine gets: together they have the bound of a batch."""
    n = MAX_N if len(prompt) < MAX_PROMPTS else 2
    error = refused(COMPLETIONS, completion(prompt=prompt, n=n))

    assert (error.status, error.body.param) == (400, "n")
    assert check(COMPLETIONS, completion(prompt=prompt, n=1))
    assert check(COMPLETIONS, completion(prompt=list(range(5000)), n=MAX_N))


def test_stream_is_read() -> None:
    """What the pipeline needs of a request is in the checked fields."""
    assert check(CHAT, chat(stream=True))[0].stream is True
    assert check(COMPLETIONS, completion())[0].stream is None


def nested(depth: int) -> list[Any]:
    """Return lists in lists."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", ["\ud800", object(), nested(100_000)], ids=["surrogate", "object", "deep"])
def test_no_json_form(value: Any) -> None:
    """A body that cannot be written as JSON is a 400, not a failure later on."""
    assert refused(CHAT, chat(x=value)).status == 400


@pytest.mark.parametrize("api", ["/v1/embeddings", "", "/v1/chat/completions/", "x" * 100_000])
def test_unknown_api(api: str) -> None:
    """An API that is not offered is a 404 with a short text that lists those that are."""
    error = refused(api, chat())

    assert (error.status, error.body.code) == (404, "unknown_api")
    assert COMPLETIONS in error.body.message
    assert len(error.body.message) < 300


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (413, "invalid_request_error"), (404, "not_found_error"), (503, "server_error")],
)
def test_kind_of_an_error(status: int, kind: str) -> None:
    """The error's type says whose fault it is."""
    assert invalid("no", status=status).body.type == kind


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["model", "messages", "prompt", "stop", "n", "stream", "temperature", "logit_bias", "x"])


@given(st.sampled_from([CHAT, COMPLETIONS]), st.dictionaries(NAMES, json_values, max_size=6))
def test_any_body(api: str, body: dict[str, Any]) -> None:
    """Whatever the body holds, it is either refused with a 400 or passed on as JSON text."""
    try:
        _, text = check(api, body)
    except InvalidRequestError as error:
        status, text = error.status, b"{}"
    else:
        status = 200

    assert status in (200, 400)
    assert isinstance(json.loads(text), dict)
