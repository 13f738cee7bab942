"""What can go wrong for an agent program, each with a text that a person can act on."""

from autellix.schemas.base import ErrorBody
from autellix.schemas.frames import Failed


class AutellixError(Exception):
    """Everything that this package raises on purpose."""


class UnreachableError(AutellixError, ConnectionError):
    """There is no NATS server at the URL, or it does not let this client in."""


class CallFailedError(AutellixError):
    """A call, or another request, was refused or failed.

    Attributes:
        status: What an HTTP server would have answered, as 400 or 503.
        error: The OpenAI error object.
        retry_safe: Whether nothing was executed, so that the same call may be sent again.
        retry_after_s: How long to wait before that, if the service knows.
        call_id: The call, if it got that far.
    """

    def __init__(self, failed: Failed) -> None:
        super().__init__(f"{failed.error.message} (status {failed.status})")
        self.status = failed.status
        self.error = failed.error
        self.retry_safe = failed.retry_safe
        self.retry_after_s = failed.retry_after_s
        self.call_id = failed.call_id


def failure(status: int, message: str, code: str, *, retry_safe: bool = False) -> CallFailedError:
    """Return the error for something that this side of the bus found out."""
    error = ErrorBody(message=message, type="server_error", code=code)
    return CallFailedError(Failed(status=status, error=error, retry_safe=retry_safe))


class StackError(AutellixError):
    """A process of the stack did not start, or died."""
