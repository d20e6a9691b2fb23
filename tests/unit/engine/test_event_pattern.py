"""EventBridge patterns: what matches, and what is refused."""

from typing import Any

import pytest

from local.engine.event_pattern import matches

EVENT = {
    "source": "aws.ec2",
    "detail-type": "Capacity Block Expiration Warning",
    "detail": {"capacity-reservation-id": "cr-0a1", "count": 2, "none": None, "tags": ["a", "b"], "deep": {"x": "y"}},
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"source": ["aws.ec2"]}, True),
        ({"source": ["aws.s3", "aws.ec2"]}, True),
        ({"source": ["aws.s3"]}, False),
        (
            {"detail_type": ["Capacity Block Expiration Warning"]},
            False,
        ),  # case B01: the key as the documentation prints it
        ({"source": [{"prefix": "aws."}], "detail": {"deep": {"x": ["y"]}}}, True),
        ({"detail": {"deep": {"x": ["z"]}}}, False),
        ({"detail": {"missing": {"x": ["z"]}}}, False),
        ({"detail": {"tags": ["b"]}}, True),
        ({"detail": {"count": [2]}}, True),
        ({"detail": {"count": ["2"]}}, False),
        ({"detail": {"none": [None]}}, True),
        ({"detail": {"capacity-reservation-id": [{"exists": True}]}}, True),
        ({"detail": {"missing": [{"exists": False}]}}, True),
        ({"detail": {"missing": [{"exists": True}]}}, False),
        ({"source": [{"anything-but": ["aws.s3"]}]}, True),
        ({"source": [{"anything-but": "aws.ec2"}]}, False),
        ({"source": [{"anything-but": {"prefix": "aws."}}]}, False),
        ({"detail": {"missing": [{"anything-but": "x"}]}}, False),
        ({"detail-type": [{"suffix": "Warning"}]}, True),
        ({"source": [{"equals-ignore-case": "AWS.EC2"}]}, True),
    ],
)
def test_pattern(pattern: dict[str, Any], expected: bool) -> None:
    assert matches(pattern, EVENT) is expected


@pytest.mark.parametrize(
    "pattern", [{"source": "aws.ec2"}, {"source": []}, {"source": [{"wildcard": "*"}]}, {"source": [{}]}]
)
def test_the_unknown_is_refused(pattern: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be a nested|no single operator"):
        matches(pattern, EVENT)
