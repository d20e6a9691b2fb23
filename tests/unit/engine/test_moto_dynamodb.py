"""The short way of moto's DynamoDB answers: a client must read the same."""

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from local.engine import moto_dynamodb
from local.http_answer import ANSWERED, http_answer

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
    yield client.update_item(
        TableName="table",
        Key=KEY,
        UpdateExpression="SET seen = if_not_exists(seen, :one) + :one ADD again :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
        ConditionExpression="attribute_exists(kind) AND NOT again > :one",
        ReturnValues="ALL_NEW",
    )
    with pytest.raises(ClientError) as refused:
        client.update_item(TableName="table", Key=KEY, UpdateExpression="SET kind = id")
    yield refused.value.response
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


def test_what_was_answered_before_it_comes_to_moto_changes_nothing_there():
    def answered(request, **_):
        request.url = ANSWERED
        return http_answer(ANSWERED, 200, b"{}")

    moto_dynamodb.attach()
    with mock_aws():
        client = boto3.client("dynamodb", region_name="us-east-1")
        client.create_table(**TABLE)
        client.meta.events.register_first("before-send.dynamodb.PutItem", answered)
        client.put_item(TableName="table", Item=ITEM)
        assert "Item" not in client.get_item(TableName="table", Key=KEY)


def test_the_account_of_the_key_that_signs_has_a_table_of_its_own():
    moto_dynamodb.attach()
    with mock_aws():
        here = boto3.client("dynamodb", region_name="us-east-1")
        here.create_table(**TABLE)
        role = boto3.client("sts", region_name="us-east-1").assume_role(
            RoleArn="arn:aws:iam::444455556666:role/reader", RoleSessionName="test"
        )["Credentials"]
        there = boto3.client(
            "dynamodb",
            region_name="us-east-1",
            aws_access_key_id=role["AccessKeyId"],
            aws_secret_access_key=role["SecretAccessKey"],
            aws_session_token=role["SessionToken"],
        )
        elsewhere = boto3.client("dynamodb", region_name="us-west-2")
        assert (here.list_tables()["TableNames"], there.list_tables()["TableNames"]) == (["table"], [])
        assert elsewhere.list_tables()["TableNames"] == []


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
