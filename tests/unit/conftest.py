"""A load balancer's world, which two files of tests act in."""

import random
from typing import Any

import pytest

from autellix.schemas import subjects
from autellix.schemas.ids import EngineId, Incarnation, ThreadId
from autellix.schemas.messages import (
    AdmittedCall,
    Call,
    CallFinished,
    CallRouted,
    EngineDown,
    EngineLoad,
    EngineUp,
    ProgramFacts,
    RoutedCall,
)
from autellix.services.config import LoadBalancerSettings
from autellix.services.core import Out
from autellix.services.load_balancer.core import LoadBalancer


class World:
    """A balancer and the engines it hears, with short words for what happens."""

    def __init__(self, **settings: Any) -> None:
        self.balancer = LoadBalancer(LoadBalancerSettings(**settings), random.Random(7))
        self.now_ms = 0.0
        self.calls = 0

    def load(self, engine: str, incarnation: str = "i1", *, at_ms: float | None = None, **facts: Any) -> list[Out]:
        """Let an engine send its heartbeat."""
        known = {"models": ("m",), "policy": "atlas", "state": "ready", "slots": 4, "calls": 0, "running": 0}
        rest = {"waiting": 0, "kv_usage": 0.0, "steps": 0, "at_ms": self.now_ms if at_ms is None else at_ms}
        load = EngineLoad(**{"engine_id": engine, "incarnation": incarnation, **known, **rest, **facts})
        return list(self.balancer.handle(load, self.now_ms))

    def up(self, engine: str, incarnation: str = "i1", *, kv_tokens: int = 0) -> list[Out]:
        """Let an engine say that it is up."""
        up = EngineUp(engine_id=EngineId(engine), incarnation=Incarnation(incarnation), models=("m",), policy="atlas",
                      slots=4, kv_tokens=kv_tokens, max_model_len=1, at_ms=self.now_ms)  # fmt: skip
        return list(self.balancer.handle(up, self.now_ms))

    def down(self, engine: str, incarnation: str = "i1", reason: str = "stopped") -> list[Out]:
        """Let it be said that an engine is down."""
        down = EngineDown(engine_id=EngineId(engine), incarnation=Incarnation(incarnation), reason=reason, at_ms=0.0)
        return list(self.balancer.handle(down, self.now_ms))

    def admit(self, program: str = "p", tokens: int = 10, home: str | None = None, **fields: Any) -> list[Out]:
        """Let a call arrive."""
        self.calls += 1
        facts = ProgramFacts(prompt_tokens_estimate=tokens, home_engine=EngineId(home) if home else None)
        known = {"call_id": f"c{self.calls}", "program_id": program, "thread_id": "main", "api": "", "model": "m"}
        rest = {"body": b"{}", "stream": False, "reply_to": "_INBOX.1", "arrival_at_ms": self.now_ms}
        call = Call(**{**known, **rest, **fields})
        return list(self.balancer.handle(AdmittedCall(call=call, program=facts), self.now_ms))

    def route(self, program: str = "p", tokens: int = 10, home: str | None = None) -> RoutedCall:
        """Let a call arrive that some engine takes."""
        routed, event = self.admit(program, tokens, home)
        assert isinstance(routed.message, RoutedCall)
        assert routed.subject == subjects.engine_calls(routed.message.engine_id)
        assert isinstance(event.message, CallRouted)
        assert event.message.engine_id == routed.message.engine_id
        return routed.message

    def finish(self, routed: RoutedCall, *, service_ms: float = 0.0) -> None:
        """Let a call end."""
        call = routed.call
        end = CallFinished(call_id=call.call_id, program_id=call.program_id, thread_id=ThreadId("main"), at_ms=0.0,
                           arrival_at_ms=0.0, service_ms=service_ms)  # fmt: skip
        assert list(self.balancer.handle(end, self.now_ms)) == []

    def tick(self, now_ms: float) -> list[Out]:
        """Let time pass, tick by tick."""
        outs: list[Out] = []
        while self.now_ms < now_ms:
            self.now_ms = min(self.now_ms + 500, now_ms)
            outs += self.balancer.tick(self.now_ms)
        return outs

    def heard(self, *engines: str) -> "World":
        """Let these engines come up and report, and return this world."""
        for engine in engines:
            self.up(engine)
            self.load(engine)
        return self

    def used(self) -> dict[str, int]:
        """Return the load of each engine in rotation."""
        return {engine_id: engine.used for engine_id, engine in self.balancer._engines.items()}


@pytest.fixture(scope="session")
def make_world() -> type[World]:
    """Return what makes a balancer that hears no engine yet."""
    return World


@pytest.fixture
def world() -> World:
    """Return a balancer with two idle engines."""
    return World().heard("e0", "e1")
