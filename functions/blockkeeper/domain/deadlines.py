"""Every deadline of a Capacity Block, computed in this one place from EC2's EndDate (T).

| moment | meaning | source |
|---|---|---|
| T - look-ahead | first search, 56 days ahead at the earliest | EC2 User Guide, "Extend Capacity Blocks" |
| T - 60 min - payment margin | last moment to decide; payment takes 5 min to 12 h | "Capacity Block pricing and billing" |
| T - 60 min | last moment at which EC2 takes the order | "Extend Capacity Blocks" |
| T - 40 min | EC2 sends its expiration warning | "Monitor Capacity Blocks using EventBridge" |
| T - 35 min | last moment at which payment can succeed | "Extend Capacity Blocks" |
| T - 30 min | EC2 starts to terminate instances (UltraServers: T - 60 min) | "How Capacity Blocks work" |
| start - 5 min, order + 12 h | last moments for the payment of a new block | "Capacity Block pricing and billing" |
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from blockkeeper.domain.environment import Environment
from blockkeeper.domain.reservation import Reservation

EARLIEST_EXTENSION = timedelta(days=56)
LAST_ORDER_LEAD = timedelta(minutes=60)
LAST_PAYMENT_LEAD = timedelta(minutes=35)
LAST_BLOCK_PAYMENT_LEAD = timedelta(minutes=5)
LONGEST_PAYMENT = timedelta(hours=12)
TERMINATION_LEAD = timedelta(minutes=30)
ULTRASERVER_TERMINATION_LEAD = timedelta(minutes=60)
DEFAULT_PAYMENT_MARGIN = timedelta(hours=2)
# When a policy decides because nobody has, it does so this long before the last moment to decide: the buyer looks again, and buys
# nothing after it.
POLICY_LEAD = timedelta(minutes=15)
# A scheduled action may run up to two minutes late (Auto Scaling User Guide, "Scheduled scaling").
SCHEDULED_ACTION_LATENESS = timedelta(minutes=2)
DRAIN_MARGIN = timedelta(minutes=5)
# So long pointing groups at another block may take.
HANDOVER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The moments that matter for one block and one end.

    Attributes:
        end: EC2's EndDate, aware UTC.
        look_ahead: how long before the end the first search may run; more than 56 days counts as 56.
        payment_margin: how long before EC2's last order the decision must stand, so that payment can succeed.
        ultraserver: the block is an UltraServer block, which EC2 terminates 60 minutes before its end.
    """

    end: datetime
    look_ahead: timedelta = timedelta(days=2)
    payment_margin: timedelta = DEFAULT_PAYMENT_MARGIN
    ultraserver: bool = False

    @property
    def opens_at(self) -> datetime:
        """From when EC2 extends the block."""
        return self.end - EARLIEST_EXTENSION

    @property
    def first_search(self) -> datetime:
        """When the block becomes due."""
        return self.end - min(self.look_ahead, EARLIEST_EXTENSION)

    @property
    def decide_by(self) -> datetime:
        """Until when a person, or the policy, may decide to buy."""
        return self.order_by - self.payment_margin

    @property
    def order_by(self) -> datetime:
        """Until when EC2 takes an order."""
        return self.end - LAST_ORDER_LEAD

    @property
    def pay_by(self) -> datetime:
        """Until when a payment can succeed; after it a pending extension is lost."""
        return self.end - LAST_PAYMENT_LEAD

    @property
    def terminates_at(self) -> datetime:
        """When EC2 starts to terminate what runs in the block."""
        return self.end - (ULTRASERVER_TERMINATION_LEAD if self.ultraserver else TERMINATION_LEAD)

    @property
    def handover_at(self) -> datetime:
        """From when the groups may be pointed at another block: nothing runs in this one any more."""
        return self.terminates_at

    @property
    def groups_from(self) -> datetime:
        """From when the groups follow a block that replaces this one; until then they are being pointed at it."""
        return self.handover_at + HANDOVER

    def drain_at(self, longest_hook: timedelta = timedelta(0), drain: timedelta = timedelta(0)) -> datetime:
        """When groups go to zero, so that nothing runs any more when EC2 terminates.

        Args:
            longest_hook: heartbeat timeout of the group's longest terminating lifecycle hook.
            drain: how long the policy gives the workload to drain (`drain_minutes`); the longer of the two counts,
                since a terminating hook is what a drain waits in.
        """
        return self.terminates_at - max(longest_hook, drain) - SCHEDULED_ACTION_LATENESS - DRAIN_MARGIN


def decide_block_by(start: datetime, payment_margin: timedelta) -> datetime:
    """Until when a person, or the policy, may decide to buy a new block that starts at `start`: its payment must succeed before."""
    return start - LAST_BLOCK_PAYMENT_LEAD - payment_margin


def pay_block_by(start: datetime, ordered_at: datetime) -> datetime:
    """Until when the payment of a new block can succeed; EC2 releases an unpaid one."""
    return min(start - LAST_BLOCK_PAYMENT_LEAD, ordered_at + LONGEST_PAYMENT)


def deadlines_of(
    environment: Environment, reservation: Reservation, payment_margin: timedelta, end: datetime | None = None
) -> Deadlines:
    """Deadlines of a block under its record's policy.

    Args:
        end: the end that is meant; None is EC2's present EndDate. A workflow is about the end that it was started for.
    """
    return Deadlines(
        end=reservation.end if end is None else end,
        look_ahead=timedelta(days=environment.extension_lookahead_days),
        payment_margin=payment_margin,
        ultraserver=reservation.ultraserver,
    )
