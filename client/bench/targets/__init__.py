"""What is replayed against: an OpenAI-compatible server, our HTTP gateway, or our NATS subject."""

from autellix.client.bench.targets.gateway import GatewayTarget
from autellix.client.bench.targets.http import OpenAITarget, Priority
from autellix.client.bench.targets.nats import NatsTarget
from autellix.client.bench.targets.target import Answered, Link, Target, TargetError
from autellix.client.bench.targets.words import Prompts

__all__ = [
    "Answered",
    "GatewayTarget",
    "Link",
    "NatsTarget",
    "OpenAITarget",
    "Priority",
    "Prompts",
    "Target",
    "TargetError",
]
