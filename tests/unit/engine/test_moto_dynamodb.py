"""The short way of moto's DynamoDB answers: a client must read the same."""

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from local.engine import moto_dynamodb

TABLE = {
    "TableName": "table",
    "KeySchema": [{"AttributeName": "kind", "KeyType": "HASH"}, {"AttributeName": "id", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "kind", "AttributeType": "S"},
        {"AttributeName": "id", "AttributeType": "S"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
}
KEY = {"kind": {"S": "purchase"}, "id": {"S": "1"}}
ITEM = KEY | {
    "count": {"N": "3"},
    "none": {"NULL": True},
    "map": {"M": {"list": {"L": [{"S": "a"}, {"BOOL": False}]}, "empty": {"M": {}}}},
    "set": {"SS": ["a", "b"]},
}


def _answers(client):
    """What a client reads of each kind of call that functions make."""
    yield client.create_table(**TABLE)
    yield client.put_item(TableName="table", Item=ITEM)
    yield client.get_item(TableName="table", Key=KEY)
    yield client.get_item(TableName="table", Key=KEY | {"id": {"S": "absent"}})
    update = {
        "TableName": "table",
        "Key": KEY,
        "UpdateExpression": "SET #n = :n REMOVE #m",
        "ExpressionAttributeNames": {"#n": "count", "#m": "map"},
        "ExpressionAttributeValues": {":n": {"N": "4"}},
    }
    yield client.update_item(**update, ReturnValues="ALL_NEW")
    query = {"TableName": "table", "KeyConditionExpression": "kind = :k"}
    yield client.query(**query, ExpressionAttributeValues={":k": {"S": "purchase"}})
    yield client.query(**query, ExpressionAttributeValues={":k": {"S": "purchase"}}, Limit=1)
    put = {"TableName": "table", "Item": KEY | {"id": {"S": "2"}}, "ConditionExpression": "attribute_not_exists(kind)"}
    yield client.transact_write_items(TransactItems=[{"Put": put}])
    with pytest.raises(ClientError) as refused:
        client.transact_write_items(TransactItems=[{"Put": put}])
    yield refused.value.response
    with pytest.raises(ClientError) as refused:
        client.get_item(TableName="none", Key=KEY)
    yield refused.value.response
    yield client.delete_item(TableName="table", Key=KEY, ReturnValues="ALL_OLD")


def _all_answers():
    with mock_aws():
        answers = list(_answers(boto3.client("dynamodb", region_name="us-east-1")))
    for answer in answers:
        del answer["ResponseMetadata"]
    answers[0]["TableDescription"].pop("CreationDateTime")
    return answers


def test_a_client_reads_the_same_as_by_motos_own_way():
    moto_dynamodb.detach()
    long = _all_answers()
    moto_dynamodb.attach()
    assert _all_answers() == long


def test_motos_own_way_is_still_the_longer_one(monkeypatch):
    """Once it is not, this module can go."""
    from moto.core import serialize

    asked = []
    pick = serialize.XFormedAttributePicker.__call__
    monkeypatch.setattr(
        serialize.XFormedAttributePicker, "__call__", lambda *given: asked.append(given) or pick(*given)
    )
    moto_dynamodb.detach()
    _all_answers()
    long = len(asked)
    asked.clear()
    moto_dynamodb.attach()
    _all_answers()
    assert len(asked) < long / 2
