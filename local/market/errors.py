"""How a call can fail."""


class MarketError(Exception):
    """A refusal as AWS words it: the caller sees `code`, `message` and the HTTP `status`."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class LostAnswerError(Exception):
    """The call took effect, and its answer never arrives: a read timeout (`hangs`), or a connection closed under it."""

    def __init__(self, operation: str, *, hangs: bool) -> None:
        super().__init__(f"{operation} took effect; its answer was lost")
        self.operation = operation
        self.hangs = hangs


def invalid_parameter(message: str) -> MarketError:
    """EC2's refusal of a value."""
    return MarketError("InvalidParameterValue", message)


def validation_error(message: str) -> MarketError:
    """Auto Scaling's refusal of a value."""
    return MarketError("ValidationError", message)


def dry_run() -> MarketError:
    """EC2's answer to a call with DryRun that would have been allowed."""
    return MarketError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
