"""The story "Replaced", told once and run on both engines: no extension is to be had, so a new block takes the old one's place.

A block of 4 feeds a group until day 1 at 11:30 UTC. EC2 extends it by no length; it sells new blocks of 4, the best of which is in
another zone. Every time and sum below was computed by hand from the rules in docs/architecture.md and docs/adr/009-plan-b.md.
"""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Protocol

PK, OLD = "replaced", "cr-0570000000000b01"
INSTANCES = 4
# 5.191 USD x 4 instances x 46.5 hours
FEE = "965.53"
SEARCH_EXTENSIONS, SEARCH_BLOCKS = "DescribeCapacityBlockExtensionOfferings", "DescribeCapacityBlockOfferings"
PURCHASES = ("PurchaseCapacityBlockExtension", "PurchaseCapacityBlock")


class Engine(Protocol):
    """What the story needs of the engine that it runs on."""

    first_day: date

    def go(self, at: datetime) -> None:
        """Let the time until `at` pass, and stand still there."""

    def see(self, what: Any) -> Any:
        """Wait, without time passing, until `what()` is true, and answer it; fail if that never comes."""

    def settle(self, what: Any) -> None:
        """Let minutes pass, half an hour at most, until `what()` is true: a workflow that waits reads again each minute."""

    def client(self, service: str) -> Any: ...
    def fleet(self, fleet: dict[str, Any]) -> None: ...
    def enrol(self, record: dict[str, Any]) -> None: ...
    def record(self, pk: str) -> dict[str, Any]: ...
    def ended(self, reservation_id: str, machine: str) -> list[str]:
        """The last state of each of the block's executions that have ended, oldest first; a machine as the template names it."""

    def calls(self) -> list[tuple[str, dict[str, Any], str | None]]:
        """EC2's and Auto Scaling's log: operation, parameters and code of the refusal of each call since the story began."""

    def questions(self, pk: str) -> list[str]:
        """What was mailed to the record's approver with a link to answer by, oldest first."""

    def approve(self, pk: str) -> None:
        """The approver follows the link of the last such mail and says yes."""


class Teller:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.scaling, self.ec2 = engine.client("autoscaling"), engine.client("ec2")

    def at(self, day: int, clock: str) -> datetime:
        return datetime.combine(self.engine.first_day + timedelta(days=day), time.fromisoformat(clock), tzinfo=UTC)

    def text(self, day: int, clock: str) -> str:
        return f"{self.at(day, clock):%Y-%m-%dT%H:%M:%SZ}"

    def go(self, day: int, clock: str) -> None:
        self.engine.go(self.at(day, clock))

    # -- what AWS shows

    def group(self) -> dict[str, Any]:
        (found,) = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[PK])["AutoScalingGroups"]
        return dict(found)

    def sizes(self) -> tuple[int, int, int]:
        group = self.group()
        return group["MinSize"], group["MaxSize"], group["DesiredCapacity"]

    def launches_into(self) -> tuple[str, str, str]:
        """Version of the group's launch template, the reservation that it names, and the group's subnets."""
        group = self.group()
        template = group["LaunchTemplate"]
        (version,) = self.ec2.describe_launch_template_versions(
            LaunchTemplateId=template["LaunchTemplateId"], Versions=[template["Version"]]
        )["LaunchTemplateVersions"]
        target = version["LaunchTemplateData"]["CapacityReservationSpecification"]["CapacityReservationTarget"]
        return template["Version"], target["CapacityReservationId"], group["VPCZoneIdentifier"]

    def running(self, reservation_id: str) -> int:
        """How many instances EC2 runs in a block, counted at EC2 and not at the group."""
        filters = [
            {"Name": "capacity-reservation-id", "Values": [reservation_id]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        reservations = self.ec2.describe_instances(Filters=filters)["Reservations"]
        return sum(len(each["Instances"]) for each in reservations)

    def armed(self, reservation_id: str) -> dict[str, tuple[datetime, tuple[int, int, int]]]:
        """Our scheduled actions for a block by their purpose, with time and sizes."""
        actions = self.scaling.describe_scheduled_actions(AutoScalingGroupName=PK)["ScheduledUpdateGroupActions"]
        prefix = f"blockkeeper-{reservation_id}-"
        return {
            action["ScheduledActionName"].removeprefix(prefix): (
                action["StartTime"],
                (action["MinSize"], action["MaxSize"], action["DesiredCapacity"]),
            )
            for action in actions
            if action["ScheduledActionName"].startswith(prefix)
        }

    def bought(self) -> list[dict[str, Any]]:
        """The blocks that carry the tag of our order, as EC2 shows them."""
        pages = self.ec2.get_paginator("describe_capacity_reservations").paginate()
        tag = {"Key": "blockkeeper:purchase", "Value": f"{OLD}#{self.text(1, '11:30')}#block"}
        return [each for page in pages for each in page["CapacityReservations"] if tag in each.get("Tags", [])]

    def called(self, *operations: str) -> list[dict[str, Any]]:
        return [params for operation, params, _ in self._calls() if operation in operations]

    def _calls(self) -> list[tuple[str, dict[str, Any], str | None]]:
        """Those that name no other block or group: on the deployed stack other tests' are about."""
        ours = {"CapacityReservationId": OLD, "AutoScalingGroupName": PK}
        return [
            call for call in self.engine.calls() if all(call[1].get(name, our) == our for name, our in ours.items())
        ]

    # -- the story

    def begin(self) -> None:
        """Day 0: the block has run for days, and is enrolled with its group and a plan B."""
        self.go(0, "08:00")
        subnet = {"vpc_id": "vpc-0570000000000b01", "region": "us-east-1", "tags": {"tier": "private"}}
        for_sale = {
            "region": "us-east-1",
            "instance_type": "p5.4xlarge",
            "instance_count": INSTANCES,
            "hourly_rate": "5.191",
        }
        self.engine.fleet(
            {
                "blocks": [
                    {
                        "reservation_id": OLD,
                        "region": "us-east-1",
                        "availability_zone": "us-east-1a",
                        "instance_type": "p5.4xlarge",
                        "instance_count": INSTANCES,
                        "start": self.text(-2, "11:30"),
                        "end": self.text(1, "11:30"),
                        "hourly_rate": "5.191",
                        "offering": {"available": False},
                    }
                ],
                "offerings": [
                    for_sale | fields
                    for fields in (
                        # 23.5 hours: the length that is wanted only when the other is not to be had
                        {
                            "availability_zone": "us-east-1a",
                            "start": self.text(1, "12:00"),
                            "end": self.text(2, "11:30"),
                        },
                        # nearest to the old end, and dearer than the ceiling
                        {
                            "availability_zone": "us-east-1c",
                            "start": self.text(1, "12:30"),
                            "end": self.text(3, "11:30"),
                        }
                        | {"fee": "1000.01"},
                        {
                            "availability_zone": "us-east-1b",
                            "start": self.text(1, "13:00"),
                            "end": self.text(3, "11:30"),
                        },
                        # cheaper, and further from the old end
                        {
                            "availability_zone": "us-east-1c",
                            "start": self.text(1, "14:00"),
                            "end": self.text(3, "11:30"),
                        },
                        # later than six hours after the old end
                        {
                            "availability_zone": "us-east-1a",
                            "start": self.text(1, "17:31"),
                            "end": self.text(3, "11:30"),
                        },
                    )
                ],
                "subnets": [
                    subnet | {"subnet_id": f"subnet-0570000000000b0{zone}", "availability_zone": f"us-east-1{zone}"}
                    for zone in "ab"
                ],
                "groups": [
                    {
                        "name": PK,
                        "region": "us-east-1",
                        "availability_zone": "us-east-1a",
                        "reservation_id": OLD,
                        "subnets": ["subnet-0570000000000b0a"],
                        "min": 0,
                        "max": INSTANCES,
                        "desired": INSTANCES,
                    }
                ],
            }
        )
        self.engine.enrol(
            {
                "PK": PK,
                "capacity_block_id": OLD,
                "region": "us-east-1",
                "instance_type": "p5.4xlarge",
                "extend_by_days": 2,
                "fallback_days": [1],
                "extension_lookahead_days": 1,
                "require_approval": True,
                "approvers": [f"{PK}@example.com"],
                "max_upfront_fee": "900.00",
                "replace": {"max_gap_hours": 6, "max_upfront_fee": "1000.00"},
                "groups": [{"auto_scaling_group": PK, "drain_minutes": 10}],
                "team": "vision",
            }
        )
        self.go(0, "08:30")
        # 11:30 - 30 min until EC2 terminates - 10 to drain - 2 of Auto Scaling's lateness - 5 in reserve
        self.engine.see(lambda: self.armed(OLD) == {"end": (self.at(1, "10:43"), (0, 0, 0))})
        assert (self.running(OLD), self.called(SEARCH_EXTENSIONS, SEARCH_BLOCKS)) == (INSTANCES, [])

    def no_extension(self) -> None:
        """From day 0 at 11:30, a day before the end, until three hours before it: both lengths, again and again."""
        self.go(0, "11:46")
        self.engine.see(lambda: self.engine.record(PK)["status"] == "EXTENSION_UNAVAILABLE")
        asked = [params["CapacityBlockExtensionDurationHours"] for params in self.called(SEARCH_EXTENSIONS)]
        assert asked[:2] == [48, 24]
        self.go(1, "08:29")
        assert self.engine.ended(OLD, "ExtendBlock") == []
        assert self.called(SEARCH_BLOCKS) == [], "an extension is wanted first, until the last moment"
        assert self.engine.questions(PK) == []

    def a_question(self) -> None:
        """Day 1: it is too late to extend, so a new block is searched, and the approver asked."""
        self.go(1, "08:30")
        self.engine.settle(lambda: self.engine.ended(OLD, "ExtendBlock") == ["No extension offered"])
        self.engine.see(lambda: len(self.engine.questions(PK)) == 1)
        (question,) = self.engine.questions(PK)
        for words in ("us-east-1b", FEE, "13:00", "10:55"):  # 13:00 - 5 min - 2 hours to pay
            assert words in question
        # The wanted length alone; no offering that more than a quarter of it would lie before the old end, or past the gap.
        assert {params["CapacityDurationHours"] for params in self.called(SEARCH_BLOCKS)} == {48}
        self.go(1, "08:50")
        assert (self.bought(), self.called(*PURCHASES)) == ([], []), "nobody has answered yet"

    def a_purchase(self) -> str:
        """Day 1: a yes buys one block; it is paid and enrolled, and nothing else changes. Answers the new reservation's id."""
        self.engine.approve(PK)
        (new,) = self.engine.see(self.bought)
        assert (new["State"], new["AvailabilityZone"]) == ("payment-pending", "us-east-1b")
        assert (new["StartDate"], new["EndDate"]) == (self.at(1, "13:00"), self.at(3, "11:30"))
        self.go(1, "09:08")
        new_pk = f"{PK}-{self.at(1, '13:00'):%Y%m%d}"
        assert "environment" not in self.engine.record(PK)["replacement"], "bought is not paid"
        self.go(1, "09:12")  # EC2 takes the payment after 20 minutes
        self.engine.settle(lambda: self.engine.record(PK)["replacement"].get("environment") == new_pk)
        enrolled = self.engine.record(new_pk)
        assert (enrolled["capacity_block_id"], enrolled["replaces"]) == (new["CapacityReservationId"], OLD)
        for name in ("extend_by_days", "fallback_days", "approvers", "max_upfront_fee", "replace", "groups", "team"):
            assert enrolled[name] == self.engine.record(PK)[name]
        return str(new["CapacityReservationId"])

    def the_handover(self, new: str) -> None:
        """Day 1: the group drains at the old end as ever, is then pointed at the new block, and launches at its start."""
        see, old_home = self.engine.see, ("1", OLD, "subnet-0570000000000b0a")
        self.go(1, "10:42:59")
        assert (self.running(OLD), self.launches_into()) == (INSTANCES, old_home)
        self.go(1, "10:43")
        see(lambda: (self.sizes(), self.group()["Instances"]) == ((0, 0, 0), []))
        assert self.running(OLD) == 0
        self.go(1, "10:59:59")
        assert self.launches_into() == old_home, "a group launches into one block at a time"
        self.go(1, "11:00")  # when EC2 would terminate what is left
        see(lambda: self.group()["LaunchTemplate"]["Version"] == "2")
        assert self.launches_into() == ("2", new, "subnet-0570000000000b0b")
        see(lambda: self.engine.ended(OLD, "ReplaceBlock") == ["Block replaced"])
        # The start's own action follows five minutes after it; the new block ends on day 3 by the old one's policy.
        armed = {"start": (self.at(1, "13:05"), (0, 4, 4)), "end": (self.at(3, "10:43"), (0, 0, 0))}
        see(lambda: self.armed(new) == armed)
        self.go(1, "12:59")
        assert (self.sizes(), self.running(OLD), self.running(new)) == ((0, 0, 0), 0, 0)
        see(lambda: self.engine.record(PK)["status"] == "EXPIRED")
        self.go(1, "13:00")  # Capacity Block Delivered
        see(lambda: [each["LifecycleState"] for each in self.group()["Instances"]] == ["InService"] * INSTANCES)
        assert self.running(new) == INSTANCES
        self.go(1, "13:06")
        assert (self.sizes(), self.running(new)) == ((0, INSTANCES, INSTANCES), INSTANCES)

    def the_books(self, new: str) -> None:
        """One order of a block, none of an extension, and not one call that was refused."""
        assert [each["CapacityReservationId"] for each in self.bought()] == [new]
        assert len(self.called(*PURCHASES)) == len(self.called("PurchaseCapacityBlock")) == 1
        assert [(operation, code) for operation, _, code in self._calls() if code] == []
        said = self.engine.record(PK)["replacement"]
        assert (said["outcome"], said["reservation_id"]) == ("replaced", new)
        assert len(self.engine.questions(PK)) == 1


def tell(engine: Engine) -> str:
    """Tell it all; answers the new reservation's id."""
    teller = Teller(engine)
    teller.begin()
    teller.no_extension()
    teller.a_question()
    new = teller.a_purchase()
    teller.the_handover(new)
    teller.the_books(new)
    return new
