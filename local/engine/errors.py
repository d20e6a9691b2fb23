"""What can go wrong in a workflow, and what Step Functions' own API refuses."""

from collections.abc import Sequence
from datetime import timedelta

RUNTIME = "States.Runtime"
DATA_LIMIT = "States.DataLimitExceeded"
QUERY = "States.QueryEvaluationError"
TIMEOUT = "States.Timeout"
TASK_FAILED = "States.TaskFailed"
ALL = "States.ALL"
NO_CHOICE = "States.NoChoiceMatched"
TOO_MANY_FAILED_ITEMS = "States.ExceedToleratedFailureThreshold"


class DefinitionError(ValueError):
    """A state machine's definition uses something that this engine does not know or that AWS refuses."""

    def __init__(self, machine: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"state machine {machine}: " + "; ".join(problems))


class StateError(Exception):
    """A state failed: the error name that Retry and Catch look at, its cause, and how long it took to show."""

    def __init__(self, error: str, cause: str = "", takes: timedelta = timedelta(0)) -> None:
        self.error = error
        self.cause = cause
        self.takes = takes
        super().__init__(f"{error}: {cause}")

    def matches(self, error_equals: Sequence[str]) -> bool:
        """Whether a retrier or catcher with this `ErrorEquals` takes the error.

        Source: Step Functions guide, "Handling errors". `States.Runtime` is never taken; `States.ALL` leaves out
        `States.DataLimitExceeded`, and `States.TaskFailed` stands for everything but a timeout.
        """
        if self.error == RUNTIME:
            return False
        if self.error in error_equals:
            return True
        if self.error == DATA_LIMIT:
            return False
        return ALL in error_equals or (TASK_FAILED in error_equals and self.error != TIMEOUT)

    @property
    def output(self) -> dict[str, str]:
        """The value of `$states.errorOutput`."""
        return {"Error": self.error, "Cause": self.cause}


class LambdaDiedError(BaseException):
    """The function's process ends here, past every handler in its code; `error` is what Lambda reports, after `takes`."""

    def __init__(self, error: str, takes: timedelta = timedelta(0)) -> None:
        self.error = error
        self.takes = takes
        super().__init__(error)


class ApiError(Exception):
    """An error answer of Step Functions' API, with the code as botocore reports it."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")
