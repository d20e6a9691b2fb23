"""boto3 clients, each made once per process, Region and account.

Reads retry with jitter in boto3's standard mode. The purchase has its own client in ``aws/purchase.py``: it must never be
sent twice (design, "Buying exactly once").
"""

import os
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.utils import parse_timestamp

CONNECT_TIMEOUT_SECONDS = 3
READ_TIMEOUT_SECONDS = 10
ATTEMPTS = 5
# A function that somebody waits for, such as Slack, gives up sooner: seconds for one attempt, of which there are two.
_HURRY = float(os.environ["AWS_CALL_SECONDS"]) if "AWS_CALL_SECONDS" in os.environ else None

READS = Config(
    retries={"mode": "standard", "total_max_attempts": ATTEMPTS if _HURRY is None else 2},
    connect_timeout=_HURRY or CONNECT_TIMEOUT_SECONDS,
    read_timeout=_HURRY or READ_TIMEOUT_SECONDS,
)


@lru_cache(maxsize=64)
def client(service: str, region: str | None = None, account: str | None = None, config: Config = READS) -> Any:
    """A client of `service`.

    Args:
        region: Region; None is the function's own.
        account: 12 digits of the account to act in; None, or the function's own account, is where the function runs. In any other
            account the role `MEMBER_ROLE_NAME` is assumed there (STS AssumeRole).
    """
    session = _session(account)
    session._session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=read_timestamp)  # noqa: SLF001 - see read_timestamp
    return session.client(service, region_name=region, config=config)


def read_timestamp(value: Any) -> datetime:
    """A time in an answer of AWS. EC2 writes ISO 8601, which Python reads hundreds of times faster than botocore's dateutil does.

    A sweep reads three times for each block, and they took almost half of its own work (`python -m bench.sweep`).
    """
    if isinstance(value, str):
        with suppress(ValueError):
            instant = datetime.fromisoformat(value)
            if instant.tzinfo is not None:
                return instant
    parsed: datetime = parse_timestamp(value)
    return parsed


def own_account() -> str:
    """The account this function runs in, from `ACCOUNT_ID` (AWS::AccountId in the template)."""
    return os.environ["ACCOUNT_ID"]


@lru_cache(maxsize=16)
def _session(account: str | None) -> Any:
    if account is None or account == own_account():
        return boto3._get_default_session()  # noqa: SLF001 - what boto3.client() uses itself; a new session loads every model again
    from blockkeeper.aws.member_account import member_session

    return member_session(account, os.environ["MEMBER_ROLE_NAME"])
