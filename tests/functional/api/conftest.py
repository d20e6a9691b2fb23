"""The real handler over moto's DynamoDB."""

from collections.abc import Iterator
from datetime import datetime

import boto3
import pytest
from api_client import NOW, Api, make_table
from moto import mock_aws

from blockkeeper.aws import clients
from blockkeeper.domain.instants import parse_instant

VARIABLES = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "TABLE_NAME": "blockkeeper",
    "ACCOUNT_ID": "111122223333",
    "PAYMENT_MARGIN_MINUTES": "120",
    "AWS_REGION": "us-east-1",
    "TARGETS": "",
}


def forget_clients() -> None:
    """Clients made outside the mock would leave it, and those made inside would outlive it."""
    clients.client.cache_clear()
    clients._session.cache_clear()


@pytest.fixture(scope="module")
def aws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        forget_clients()
        with mock_aws():
            yield
        forget_clients()


@pytest.fixture
def api(aws: None) -> Iterator[Api]:  # noqa: ARG001 - the mock must be up
    make_table()
    yield Api()
    boto3.client("dynamodb", region_name="us-east-1").delete_table(TableName="blockkeeper")


@pytest.fixture
def now() -> datetime:
    return parse_instant(NOW)
