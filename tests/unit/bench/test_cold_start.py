"""The cold starts that are measured are those of the template: no function and no client is left out."""

import boto3
import pytest

from bench.cold_start import ROOT, handlers, model_size, services


def test_every_function_is_measured():
    folders = {path.parent.name for path in (ROOT / "functions").glob("*/app.py")}
    assert {handler.folder for handler in handlers()} == folders


@pytest.mark.parametrize("handler", handlers(), ids=lambda handler: handler.folder)
def test_services_are_those_of_boto3(handler):
    assert set(handler.services) <= set(boto3.Session().get_available_services())
    assert handler.largest == ("ec2" if "ec2" in handler.services else handler.largest)


def test_services_come_once_each_and_without_sts():
    statements = [
        {"Action": ["ses:SendEmail", "ec2:DescribeCapacityReservations"]},
        {"Action": "sts:AssumeRole"},
        {"Action": "ses:SendEmail"},
    ]
    assert services([{"Statement": statements}]) == ["sesv2", "ec2"]


def test_the_largest_model_is_ec2():
    assert model_size("ec2") > model_size("dynamodb")
