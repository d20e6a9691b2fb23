"""The story "Extended in time", told once and run on both engines: in one process, and deployed to the local AWS.

A block of 4 feeds a group, from its enrolment to its end. Every time below was computed by hand from the rules in docs/scaling.md,
so that an error in our own computation shows. Days count from the story's first;
the block runs from day 0 to day 2, each at 11:30 UTC.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Protocol

INSTANCES = 4
STARTS, ENDS = "11:30", "11:30"
HANDLERS_TAG = "aws-node-termination-handler/managed"
RECLAIMED = "taken out of service in response to an EC2 health check"


@dataclass(frozen=True)
class Group:
    """A group that is deployed already, at size 0.

    Attributes:
        drains: when it goes to zero on the day of the end: 11:30 - 30 min - its hook - 2 min - 5 min.
        gone: when its last instance is gone if nobody ends the hook's wait: `drains` + the hook.
        handler: whether a termination handler listens, and ends the wait as soon as a node is drained.
    """

    name: str
    reservation_id: str
    drains: str
    gone: str
    handler: bool


# The hooks are the examples' own: 5 minutes, and 10.
PLAIN = Group("train", "cr-0570000000000001", drains="10:48", gone="10:53", handler=False)
NODES = Group("train-nodes", "cr-0570000000000002", drains="10:43", gone="10:53", handler=True)
GROUPS = (PLAIN, NODES)


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
    def block(self, fields: dict[str, Any]) -> None: ...
    def enrol(self, record: dict[str, Any]) -> None: ...
    def record(self, pk: str) -> dict[str, Any]: ...
    def fail_next_payment(self, reservation_id: str) -> None: ...
    def ended(self, reservation_id: str) -> list[str]:
        """The last state of each of the block's extend-block executions that have ended, oldest first."""

    def scale_in_messages(self, group: str) -> list[dict[str, Any]]:
        """Details of the lifecycle actions that the group's termination handler has got and not answered."""


class Teller:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.scaling, self.ec2 = engine.client("autoscaling"), engine.client("ec2")

    def at(self, day: int, clock: str) -> datetime:
        wall = time.fromisoformat(clock)
        return datetime.combine(self.engine.first_day + timedelta(days=day), wall, tzinfo=UTC)

    def go(self, day: int, clock: str) -> None:
        self.engine.go(self.at(day, clock))

    # -- what AWS shows

    def sizes(self, group: Group) -> tuple[int, int, int]:
        (found,) = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group.name])["AutoScalingGroups"]
        return found["MinSize"], found["MaxSize"], found["DesiredCapacity"]

    def members(self, group: Group) -> list[str]:
        """Lifecycle states of the group's instances."""
        (found,) = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group.name])["AutoScalingGroups"]
        return [instance["LifecycleState"] for instance in found["Instances"]]

    def running(self, group: Group) -> set[str]:
        """Ids of the instances that EC2 runs in the block, counted at EC2 and not at the group."""
        filters = [
            {"Name": "capacity-reservation-id", "Values": [group.reservation_id]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        reservations = self.ec2.describe_instances(Filters=filters)["Reservations"]
        return {instance["InstanceId"] for each in reservations for instance in each["Instances"]}

    def handled(self, group: Group) -> bool:
        """Whether each of the group's instances has the tag without which Node Termination Handler leaves it alone."""
        filters = [{"Name": "tag-key", "Values": [HANDLERS_TAG]}]
        reservations = self.ec2.describe_instances(Filters=filters)["Reservations"]
        return self.running(group) <= {
            instance["InstanceId"] for each in reservations for instance in each["Instances"]
        }

    def armed(self, group: Group) -> dict[str, tuple[datetime, tuple[int, int, int]]]:
        """Our scheduled actions by their purpose, with time and sizes."""
        actions = self.scaling.describe_scheduled_actions(AutoScalingGroupName=group.name)
        return {
            action["ScheduledActionName"].removeprefix(f"blockkeeper-{group.reservation_id}-"): (
                action["StartTime"],
                (action["MinSize"], action["MaxSize"], action["DesiredCapacity"]),
            )
            for action in actions["ScheduledUpdateGroupActions"]
        }

    def end(self, group: Group) -> datetime:
        found = self.ec2.describe_capacity_reservations(CapacityReservationIds=[group.reservation_id])
        end: datetime = found["CapacityReservations"][0]["EndDate"]
        return end

    def payments(self, group: Group) -> list[str]:
        history = self.ec2.describe_capacity_block_extension_history(CapacityReservationIds=[group.reservation_id])
        orders = sorted(
            history["CapacityBlockExtensions"], key=lambda order: order["CapacityBlockExtensionPurchaseDate"]
        )
        return [order["CapacityBlockExtensionStatus"] for order in orders]

    def activities(self, group: Group) -> list[tuple[datetime, str]]:
        """Launches and terminations, each with its time, oldest first."""
        found = self.scaling.describe_scaling_activities(AutoScalingGroupName=group.name)["Activities"]
        kinds = [(each["StartTime"], each["Description"].split(":")[0]) for each in found]
        return sorted(kinds)

    def reclaimed(self, group: Group) -> bool:
        """Whether EC2 ever took an instance from the group."""
        found = self.scaling.describe_scaling_activities(AutoScalingGroupName=group.name)["Activities"]
        return any(RECLAIMED in activity["Cause"] for activity in found)

    # -- the story

    def enrolled(self, group: Group, *, ends: int = 2, extend: bool = True, **fields: Any) -> None:
        """A block of 4 is bought and enrolled with its group.

        Args:
            ends: day of its end.
            extend: whether the policy lets it be extended: 5.191 USD x 4 instances x 24 hours are 498.34.
        """
        block = {
            "reservation_id": group.reservation_id,
            "region": "us-east-1",
            "availability_zone": "us-east-1a",
            "instance_type": "p5.4xlarge",
            "instance_count": INSTANCES,
            "hourly_rate": "5.191",
            "start": f"{self.at(0, STARTS):%Y-%m-%dT%H:%M:%SZ}",
            "end": f"{self.at(ends, ENDS):%Y-%m-%dT%H:%M:%SZ}",
            "delivered_after_minutes": 4,  # case B36
            "payment": {"minutes": 6, "end_moves_after_minutes": 3},
            **fields,
        }
        self.engine.block(block)
        self.engine.enrol(
            {
                "PK": group.name,
                "capacity_block_id": group.reservation_id,
                "region": "us-east-1",
                "instance_type": block["instance_type"],
                "extend_by_days": 1,
                "extension_lookahead_days": 1,
                "require_approval": False,
                "max_upfront_fee": "500.00" if extend else "0.01",
                "groups": [{"auto_scaling_group": group.name}],
            }
        )

    def a_block_that_starts(self) -> dict[Group, set[str]]:
        """Days 0 and 1; answers each group's instances."""
        see = self.engine.see
        for group in GROUPS:
            see(lambda g=group: self.armed(g).keys() == {"start", "end"})
            assert self.armed(group) == {
                "start": (self.at(0, "11:35"), (0, 4, 4)),
                "end": (self.at(2, group.drains), (0, 0, 0)),
            }
        # EC2 is four minutes late; nothing is launched into a block that is not there, where each try would cost a back-off.
        self.go(0, "11:33")
        assert [(self.sizes(group), self.members(group)) for group in GROUPS] == [((0, 0, 0), [])] * 2
        self.go(0, "11:34")  # Capacity Block Delivered
        for group in GROUPS:
            see(lambda g=group: self.members(g) == ["InService"] * 4)
            assert self.sizes(group) == (0, 4, 4)
        started = {group: self.running(group) for group in GROUPS}
        assert [len(instances) for instances in started.values()] == [4, 4]
        assert [self.handled(group) for group in GROUPS] == [group.handler for group in GROUPS]
        self.go(0, "11:36")  # past the start's own action: it changes nothing
        assert {group: self.running(group) for group in GROUPS} == started
        return started

    def an_extension_that_is_paid(self, started: dict[Group, set[str]]) -> None:
        """Day 1, and on day 2 past the moment at which the block would have ended."""
        see = self.engine.see
        self.go(1, "11:32")  # the first sweep within a day of the end has run
        for group in GROUPS:
            see(lambda g=group: self.payments(g) == ["payment-pending"])
            assert self.end(group) == self.at(2, ENDS)
            assert self.armed(group) == {"end": (self.at(2, group.drains), (0, 0, 0))}, "bought is not extended (B03)"
        self.go(1, "12:00")  # paid after 6 minutes, and EC2 has moved the end 3 minutes later
        for group in GROUPS:
            self.engine.settle(lambda g=group: self.ended(g) == ["Extension confirmed"])
            assert self.payments(group) == ["payment-succeeded"]
            assert self.end(group) == self.at(3, ENDS)
            assert self.armed(group) == {"end": (self.at(3, group.drains), (0, 0, 0))}
        for clock in ("10:55", "11:01", "11:16"):  # past the old scale-in, and past the old termination
            self.go(2, clock)
            assert {group: self.running(group) for group in GROUPS} == started

    def an_extension_that_payment_refuses(self, started: dict[Group, set[str]]) -> None:
        """Day 2."""
        see = self.engine.see
        for group in GROUPS:
            self.engine.fail_next_payment(group.reservation_id)
        self.go(2, "11:32")
        for group in GROUPS:
            see(lambda g=group: self.payments(g) == ["payment-succeeded", "payment-pending"])
        self.go(2, "12:00")
        for group in GROUPS:
            self.engine.settle(lambda g=group: self.ended(g) == ["Extension confirmed", "Payment failed"])
            assert self.payments(group) == ["payment-succeeded", "payment-failed"]
            assert self.end(group) == self.at(3, ENDS)
            assert self.armed(group) == {"end": (self.at(3, group.drains), (0, 0, 0))}
            see(lambda g=group: self.engine.record(g.name)["status"] == "ERROR")
            assert "payment" in self.engine.record(group.name)["error"].lower()
        assert {group: self.running(group) for group in GROUPS} == started

    def the_drain(self, started: dict[Group, set[str]]) -> None:
        """Day 3."""
        see = self.engine.see
        self.go(3, "10:42:59")
        assert {group: self.running(group) for group in GROUPS} == started
        self.go(3, NODES.drains)
        assert self.sizes(NODES) == (0, 0, 0)
        assert self.members(NODES) == ["Terminating:Wait"] * 4
        told = see(lambda: self.engine.scale_in_messages(NODES.name))
        assert {each["EC2InstanceId"] for each in told} == started[NODES]
        for each in told:  # as Node Termination Handler does once the node is drained
            self.scaling.complete_lifecycle_action(
                AutoScalingGroupName=each["AutoScalingGroupName"],
                LifecycleHookName=each["LifecycleHookName"],
                LifecycleActionToken=each["LifecycleActionToken"],
                LifecycleActionResult="CONTINUE",
                InstanceId=each["EC2InstanceId"],
            )
        assert (self.members(NODES), self.running(NODES)) == ([], set())
        self.go(3, "10:47:59")
        assert self.running(PLAIN) == started[PLAIN]
        assert self.sizes(PLAIN) == (0, 4, 4)
        self.go(3, PLAIN.drains)
        assert self.sizes(PLAIN) == (0, 0, 0)
        assert self.members(PLAIN) == ["Terminating:Wait"] * 4
        self.go(3, "10:52:59")  # nobody ends the wait: the hook holds them to its last second
        assert self.running(PLAIN) == started[PLAIN]
        self.go(3, PLAIN.gone)
        assert (self.members(PLAIN), self.running(PLAIN)) == ([], set())

    def the_end(self) -> None:
        """Day 3: EC2 finds nothing to terminate, and nobody tries to replace anything."""
        see = self.engine.see
        self.go(3, "11:01")
        for group in GROUPS:
            assert not self.reclaimed(group)
            assert self.activities(group) == [
                *[(self.at(0, "11:34"), "Launching a new EC2 instance")] * 4,
                *[(self.at(3, group.drains), "Terminating EC2 instance")] * 4,
            ]
        self.go(3, "11:45")
        for group in GROUPS:
            see(lambda g=group: self.engine.record(g.name)["status"] == "EXPIRED")
            assert (self.sizes(group), self.armed(group)) == ((0, 0, 0), {})

    def ended(self, group: Group) -> list[str]:
        return self.engine.ended(group.reservation_id)


def begin(engine: Engine) -> Teller:
    """Both blocks are bought and enrolled; both groups are deployed, and the first day is still to come."""
    teller = Teller(engine)
    teller.go(0, "08:00")
    for group in GROUPS:
        teller.enrolled(group)
    teller.go(0, "08:30")
    return teller


def tell(teller: Teller) -> None:
    """Tell the rest."""
    started = teller.a_block_that_starts()
    teller.an_extension_that_is_paid(started)
    teller.an_extension_that_payment_refuses(started)
    teller.the_drain(started)
    teller.the_end()
