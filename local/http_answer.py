"""Answers to requests that botocore is about to send, as its `before-send` handlers give them."""

from io import BytesIO
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

# Handlers after ours still see the request: moto's would answer it by its address, or fail on a call that it does not know.
ANSWERED = "http://answered-already.invalid/"


def http_answer(url: str, status: int, body: bytes, headers: dict[str, str] | None = None) -> AWSResponse:
    """An HTTP answer with its whole body."""
    return AWSResponse(url, status, HTTPHeaders.from_dict(headers or {}), _Raw(body))


class _Raw(BytesIO):
    """A body as urllib3 gives it to botocore."""

    def stream(self, **_: Any) -> Any:
        yield self.read()
