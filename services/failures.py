"""The failures that those find who submit calls for others, as the frames that stand for them."""

from typing import Final

from autellix.schemas.base import ErrorBody
from autellix.schemas.messages import Failed


def unavailable(message: str, code: str, *, retry_safe: bool) -> Failed:
    """Return the failure of what cannot be done now, with when to come again."""
    error = ErrorBody(message=message, type="server_error", code=code)
    return Failed(status=503, error=error, retry_after_s=1.0, retry_safe=retry_safe)


BUS_DOWN: Final = unavailable("The message bus cannot be reached.", "bus_down", retry_safe=True)
NO_SESSION_MANAGER: Final = unavailable("No session manager is running.", "no_session_manager", retry_safe=True)
BAD_FRAME: Final = Failed(
    status=502,
    error=ErrorBody(message="The pipeline answered something unreadable.", type="server_error", code="bad_frame"),
)
