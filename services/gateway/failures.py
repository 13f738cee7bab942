"""The failures that the gateway itself finds, as the frames that stand for them: every error has one way out."""

from typing import Final

from autellix.schemas.base import ErrorBody
from autellix.schemas.messages import Failed
from autellix.services.failures import BAD_FRAME, BUS_DOWN, NO_SESSION_MANAGER, unavailable

__all__ = ["BAD_FRAME", "BUS_DOWN", "NO_SESSION_MANAGER"]

BUS_LOST: Final = unavailable("The message bus was lost during the call.", "bus_lost", retry_safe=False)
NO_SERVICE: Final = unavailable("The service that knows is not running.", "no_service", retry_safe=True)
STOPPING: Final = unavailable("The gateway is stopping.", "gateway_stopping", retry_safe=False)


def not_accepted(waited_s: float) -> Failed:
    """Return the failure of a call that nobody took in; should it be accepted later, it is cancelled."""
    return unavailable(f"The call was not accepted within {waited_s:g} s.", "not_accepted", retry_safe=False)


def not_confirmed(waited_s: float) -> Failed:
    """Return the failure of a request that no service answered."""
    return unavailable(f"Nobody confirmed it within {waited_s:g} s.", "not_confirmed", retry_safe=True)


def overloaded(limit: int) -> Failed:
    """Return the failure of a call beyond as many as the gateway may hold open."""
    return unavailable(f"The gateway has {limit} calls open, its limit.", "too_many_calls", retry_safe=True)


def too_large(limit: int) -> Failed:
    """Return the failure of a call larger than the `limit` bytes that the bus carries."""
    message = f"The request is larger than the message bus carries; the limit is {limit} bytes."
    error = ErrorBody(message=message, type="invalid_request_error", code="body_too_large")
    return Failed(status=413, error=error, retry_safe=True)


def slow_reader(limit: int) -> Failed:
    """Return the failure of a call whose client reads so slowly that more than `limit` parts wait for it."""
    message = f"The answer was read too slowly: {limit} parts were waiting. The call is cancelled."
    return Failed(status=408, error=ErrorBody(message=message, type="invalid_request_error", code="slow_reader"))
