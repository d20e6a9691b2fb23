"""A market whose clock stands still until a test moves it, and clients that botocore connects to it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.loaders import create_loader

from local.botocore_market import attach
from local.clock import MarketClock
from local.market import Market

_LOADER = create_loader()
START = datetime(2026, 5, 1, tzinfo=UTC)
END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)


@pytest.fixture
def clock() -> MarketClock:
    return MarketClock(START, speed=0)


@pytest.fixture
def market(clock: MarketClock) -> Market:
    return Market(clock)


@pytest.fixture
def at(clock: MarketClock, market: Market) -> Callable[[str], None]:
    """Move the clock to a moment such as `2026-05-04T10:30` and let everything happen that is due."""

    def move(moment: str) -> None:
        clock.set(datetime.fromisoformat(moment).replace(tzinfo=UTC))
        market.tick()

    return move


@pytest.fixture
def session(market: Market) -> boto3.Session:
    raw = botocore.session.Session()
    raw.register_component("data_loader", _LOADER)  # reads each service's model once, not once a test
    session = boto3.Session("111122223333", "secret", region_name="us-east-1", botocore_session=raw)
    attach(session, market)
    return session


@pytest.fixture
def ec2(session: boto3.Session) -> Any:
    return client(session, "ec2")


@pytest.fixture
def scaling(session: boto3.Session) -> Any:
    return client(session, "autoscaling")


def client(session: boto3.Session, service: str, **more: Any) -> Any:
    from botocore.config import Config

    return session.client(service, config=Config(retries={"total_max_attempts": 1}), **more)


@pytest.fixture
def load(market: Market) -> Callable[..., None]:
    """Load blocks and groups, each given by what differs from an active block of four p5.48xlarge until 4 May, 11:30."""

    def load(*blocks: dict[str, Any], groups: tuple[dict[str, Any], ...] = (), **fleet: Any) -> None:
        market.load_fleet(
            {
                "blocks": [BLOCK | block for block in blocks],
                "groups": [GROUP | group for group in groups],
                **fleet,
            }
        )

    return load


BLOCK = {
    "reservation_id": "cr-0a1",
    "region": "us-east-1",
    "instance_type": "p5.48xlarge",
    "instance_count": 4,
    "availability_zone": "us-east-1a",
    "start": "2026-04-29T11:30:00Z",
    "end": "2026-05-04T11:30:00Z",
    "hourly_rate": "41.528",
}
GROUP = {
    "name": "train",
    "region": "us-east-1",
    "availability_zone": "us-east-1a",
    "reservation_id": "cr-0a1",
    "min": 0,
    "max": 4,
    "desired": 0,
}


@pytest.fixture
def refused() -> Callable[..., str]:
    """Make a call that must be refused, and give the code."""
    from botocore.exceptions import ClientError

    def refused(call: Callable[..., Any], **params: Any) -> str:
        with pytest.raises(ClientError) as error:
            call(**params)
        return str(error.value.response["Error"]["Code"])

    return refused


@pytest.fixture
def buy(ec2: Any) -> Callable[..., dict[str, Any]]:
    """Search an extension of a block and buy the first offering."""

    def buy(hours: int = 24, reservation_id: str = "cr-0a1") -> dict[str, Any]:
        offering = ec2.describe_capacity_block_extension_offerings(
            CapacityReservationId=reservation_id, CapacityBlockExtensionDurationHours=hours
        )["CapacityBlockExtensionOfferings"][0]
        bought = ec2.purchase_capacity_block_extension(
            CapacityReservationId=reservation_id,
            CapacityBlockExtensionOfferingId=offering["CapacityBlockExtensionOfferingId"],
        )["CapacityBlockExtensions"]
        assert len(bought) == 1
        return dict(bought[0])

    return buy
