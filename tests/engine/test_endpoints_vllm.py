"""Which of vLLM's own endpoints are called past its application."""

import pytest

from autellix.engine.vllm_adapter.endpoints import Endpoints
from autellix.schemas.openai import APIS, generates

pytestmark = pytest.mark.vllm


def test_all_that_generate() -> None:
    """The pinned vLLM's endpoints have the form that is known: none of those that generate goes the long way."""
    from fastapi import FastAPI
    from vllm.entrypoints.anthropic import api_router as messages
    from vllm.entrypoints.openai.chat_completion import api_router as chat
    from vllm.entrypoints.openai.completion import api_router as completion
    from vllm.entrypoints.openai.responses import api_router as responses

    app = FastAPI()
    for module in (chat, completion, responses, messages):
        module.attach_router(app)

    assert {api for api in APIS if generates(api)} <= Endpoints(app, APIS).direct
