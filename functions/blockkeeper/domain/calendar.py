"""The capacity calendar of one group: its sizes over time, and what makes them: scheduled actions, or a look at each boundary.

A block's share of a group lasts from shortly after the block's start until `Deadlines.drain_at`. The group's size at any moment is
the sum of the shares that last then, so the end of one block takes away its own share only (case B32). Each change of size is one
scheduled action, named after the block and its purpose: ``blockkeeper-cr-0a1-start``, ``blockkeeper-cr-0a1-end``.

The end is always EC2's own EndDate: while an extension awaits its payment the old end stays armed (case B03).

Only Auto Scaling groups have scheduled actions. For managed node groups of EKS and compute environments of Batch `Plan.look_at`
says when scale-groups has to come again, and its workflow waits until then (docs/adr/011-boundaries-without-schedules.md).

Sizes of an Auto Scaling group are 0 / n / n (minimum, maximum, desired) while blocks run and 0 / 0 / 0 at the end:
- maximum n: more instances than were bought never launch, and Auto Scaling would try without end ("Launch failures");
  at the end 0 keeps every other scaler from growing the group again (case B29).
- minimum 0: a broken node can be sent to standby or terminated with its place, which Auto Scaling refuses at the minimum; and from
  the scale-in on nothing is relaunched into the dying block (case B31).
A node group's maximum is 1 at least (EKS API, NodegroupScalingConfig), so its end is 0 / 1 / 0. A compute environment's sizes are
in vCPUs, and its desired size is Batch's own (Batch User Guide, "Perform scaling updates").
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from blockkeeper.domain.deadlines import SCHEDULED_ACTION_LATENESS, Deadlines
from blockkeeper.domain.environment import Environment, Kind
from blockkeeper.domain.instants import format_instant
from blockkeeper.domain.reservation import Reservation

PREFIX = "blockkeeper-"
# Somebody else's name may begin with our prefix, too.
_OURS = re.compile(rf"{PREFIX}cr-[0-9a-z]+-(?:start|end)")
MINUTE = timedelta(minutes=1)
# EC2 may show a block as scheduled for some minutes after its start (case B36: four). Launches until then fail, and after each
# failure Auto Scaling waits longer before it tries again, so an early action can be slower than a late one. A sweep that finds the
# block active sooner sets the size at once.
START_OFFSET = timedelta(minutes=5)
# With less than this left nothing is started any more (case B31).
LEAST_LEFT = timedelta(hours=1)
# For so long after the end a group that is not at zero is still ours to empty; later it may serve another purpose.
ZERO_KEPT = timedelta(hours=1)
# Auto Scaling refuses a start time in the past; what is due within this is done at once instead.
SOON = timedelta(minutes=1)
# Without these a scheduled action does not run, or changes nothing ("Suspend processes").
NEEDED_PROCESSES = frozenset({"ScheduledActions", "Launch", "Terminate"})
# From here on before EC2 terminates, instances that are still there are reported (case B08: at T - 35 min).
LAST_LOOK = timedelta(minutes=5)
# Scheduled actions of a group, everybody's together (User Guide, "Scheduled scaling").
ACTIONS_PER_GROUP = 125
# After a scheduled action must have run, and its instances been launched or sent away, the group is looked at.
SETTLED = SCHEDULED_ACTION_LATENESS + SOON
# A freed slot is scrubbed for minutes before something launches into it ("Troubleshoot: instance launch failure"); what is missing
# for longer is reported.
MISSING_FOR = timedelta(minutes=15)
SHORTEST_PAUSE = MINUTE
LONGEST_PAUSE = timedelta(hours=1)
# While a group drains it is looked at so often, since another scaler may grow it again (case B29).
DRAIN_LOOK = timedelta(minutes=5)
# Heartbeat of the longest lifecycle hook that Auto Scaling takes (PutLifecycleHook). So long before a scale-in without hooks a
# group is looked at once more: somebody may have put a hook on it since its end was armed.
LONGEST_HOOK = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Minimum, maximum and desired capacity, in instances. None is a size that somebody else's action leaves as it is."""

    minimum: int | None
    maximum: int | None
    desired: int | None

    def __str__(self) -> str:
        return "/".join("-" if size is None else str(size) for size in (self.minimum, self.maximum, self.desired))


ZERO = Sizes(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Action:
    """A scheduled action: its name, when it runs (aware UTC), and the sizes it sets."""

    name: str
    at: datetime
    sizes: Sizes

    @property
    def ours(self) -> bool:
        """Whether Blockkeeper made it."""
        return _OURS.fullmatch(self.name) is not None

    @property
    def reservation_id(self) -> str:
        """The block that an action of ours is for."""
        return self.name.removeprefix(PREFIX).rpartition("-")[0]


def action_names(reservation_id: str) -> tuple[str, str]:
    """Names of a block's start and end action, the same in each of its groups."""
    return f"{PREFIX}{reservation_id}-start", f"{PREFIX}{reservation_id}-end"


@dataclass(frozen=True, slots=True)
class GroupBlock:
    """A block that a group follows.

    Attributes:
        instances: the policy's size for this group; None means all of the block's instances.
        drain: how long the policy gives the workload to drain.
        unit: what one instance counts in the group's sizes: 1, or the vCPUs of its type.
        not_before: its share begins at this moment at the earliest: the block that it replaces must be left before.
    """

    reservation: Reservation
    instances: int | None = None
    drain: timedelta = timedelta(0)
    unit: int = 1
    not_before: datetime | None = None

    @property
    def size(self) -> int | None:
        """Its share of the group; None when neither EC2 nor the policy tells. Never more than was bought."""
        bought = self.reservation.instance_count
        known = [size for size in (self.instances, bought) if size is not None]
        return min(known) * self.unit if known else None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group as it is.

    Attributes:
        longest_hook: heartbeat timeout of its longest terminating lifecycle hook; zero without one.
        hook_name: that hook.
        instances: those that are not yet terminated, whatever their state (a compute environment's in vCPUs).
        protected: it has instances that are protected from scale in, or protects new ones.
        suspended: names of its suspended processes.
        warm_pool: it has a warm pool, which launches nothing into a Capacity Block.
        launch_failure: what Auto Scaling last said when it could not launch, if instances are missing.
        eks_nodegroup: the EKS managed node group that an Auto Scaling group belongs to.
        own_hook: heartbeat of the terminate hook that Blockkeeper put; `longest_hook` leaves it out.
        handler_tag: value of the tag that Node Termination Handler looks for; None without it.
    """

    name: str
    sizes: Sizes
    longest_hook: timedelta = timedelta(0)
    hook_name: str | None = None
    instances: int = 0
    protected: bool = False
    suspended: frozenset[str] = frozenset()
    warm_pool: bool = False
    launch_failure: str | None = None
    eks_nodegroup: str | None = None
    own_hook: timedelta | None = None
    handler_tag: str | None = None
    kind: Kind = Kind.AUTO_SCALING_GROUP

    def with_hook(self, name: str, heartbeat: timedelta) -> "GroupFacts":
        """The group with one more terminating hook."""
        return replace(self, longest_hook=heartbeat, hook_name=name) if heartbeat > self.longest_hook else self

    @property
    def scheduled(self) -> bool:
        """Whether the service runs scheduled actions for it."""
        return self.kind is Kind.AUTO_SCALING_GROUP

    @property
    def units(self) -> str:
        """What its sizes count."""
        return "vCPUs" if self.kind is Kind.COMPUTE_ENVIRONMENT else "instances"

    def sized(self, level: int, desired: int) -> Sizes:
        """The sizes that let it run `level` and make it run `desired` of them."""
        if self.kind is Kind.COMPUTE_ENVIRONMENT:
            return Sizes(0, level, None)
        return Sizes(0, max(level, self.least_maximum), desired)

    @property
    def least_maximum(self) -> int:
        """The smallest maximum that the service takes."""
        return 1 if self.kind is Kind.NODE_GROUP else 0


@dataclass(slots=True)
class Plan:
    """What a group needs.

    Attributes:
        actions: every action of ours that must stand, in order of time.
        sizes_now: sizes to set at once; None when the group is as it should be, or no boundary has passed yet.
        check_at: when to look again whether the sizes are right; None when nothing is to come. It has passed, and stays the same,
            while something is unfinished: then each sweep looks.
        unfinished_since: the last boundary that has passed and is unfinished.
        look_at: the next moment at which a look is of use; always to come.
        findings: what a person must mend, in words.
        notes: what a person may want to know.
        instances_left: instances that EC2 is about to terminate.
        missing: instances that should run for some time and do not.
        missed: a boundary passed, and the sizes were not there.
    """

    actions: tuple[Action, ...] = ()
    sizes_now: Sizes | None = None
    check_at: datetime | None = None
    unfinished_since: datetime | None = None
    look_at: datetime | None = None
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    instances_left: int = 0
    missing: int = 0
    missed: bool = False


@dataclass(slots=True)
class _Span:
    """A block's share over time; `starts` is None when the share never begins."""

    block: GroupBlock
    starts: datetime | None
    drains: datetime
    deadlines: Deadlines

    def lasts(self, at: datetime) -> bool:
        return self.starts is not None and self.starts <= at < self.drains

    @property
    def started(self) -> datetime:
        """When a share that lasts began."""
        assert self.starts is not None  # noqa: S101 - `lasts` says so
        return self.starts

    @property
    def reservation(self) -> Reservation:
        return self.block.reservation


def plan_group(blocks: Iterable[GroupBlock], group: GroupFacts, taken: Collection[datetime], now: datetime) -> Plan:
    """Plan a group's actions, and what to do at once.

    Args:
        blocks: every block that the group follows, as EC2 shows it now.
        taken: start times of other people's actions on the group: Auto Scaling wants each start time once per group, and takes 125.
    """
    plan = Plan()
    spans = [
        _span(block, group, plan)
        for block in sorted(blocks, key=lambda block: block.reservation.reservation_id)
        if _matters(block.reservation, now)
    ]
    boundaries = _boundaries(spans, taken, now, plan) if group.scheduled else _unarmed(spans, now, plan)
    actions = tuple(
        Action(name, at, group.sized(level, level))
        for name, at in sorted(boundaries.items(), key=lambda boundary: boundary[1])
        for level in (_level(spans, at),)
    )
    plan.actions = _within_limit(actions, len(taken), plan)
    unfinished = _sizes_now(spans, group, plan, now)
    _look_at_group(spans, group, plan, now)
    _next_looks(spans, group, plan, unfinished, now)
    return plan


def plan_changes(
    wanted: Iterable[Action], existing: Iterable[Action], kept: Collection[str] = ()
) -> tuple[tuple[Action, ...], tuple[str, ...]]:
    """Compare and answer `(actions to put, names to delete)`; both empty when nothing has changed (case B10).

    Args:
        kept: reservation ids whose actions stay as they are, since their blocks could not be read.
    """
    standing = {action.name: action for action in existing}
    wished = {action.name: action for action in wanted}
    puts = [action for action in wished.values() if standing.get(action.name) != action]
    deletes = sorted(
        action.name
        for action in standing.values()
        if action.ours and action.name not in wished and action.reservation_id not in kept
    )
    return tuple(sorted(puts, key=lambda action: (action.at, action.name))), tuple(deletes)


def in_waves(puts: Sequence[Action], standing: Iterable[Action]) -> list[list[Action]]:
    """Order writes so that none takes a start time which another action holds until it is itself moved.

    Args:
        standing: the group's actions after the deletes. Two that change places are parted by putting one earlier first.
    """
    held = {action.name: action.at for action in standing}
    left, waves = list(puts), []
    while left:
        wave = [action for action in left if all(at != action.at for name, at in held.items() if name != action.name)]
        if not wave:
            aside = left[0]
            at = aside.at - MINUTE
            while at in {*held.values(), *(action.at for action in left)}:
                at -= MINUTE
            wave = [Action(aside.name, at, aside.sizes)]
        waves.append(wave)
        held |= {action.name: action.at for action in wave}
        left = [action for action in left if action not in wave]
    return waves


# EKS's own scale-in is due so long before the end that it was armed for ("Create a managed node group with Capacity Blocks").
EKS_SCALE_DOWN_LEAD = timedelta(minutes=40)


def stale_scale_down(scale_down_at: datetime | None, blocks: Iterable[GroupBlock], now: datetime) -> str | None:
    """What is wrong when EKS's own scale-in still stands for an end that has moved; AWS does not say whether EKS moves it."""
    ends = [block.reservation.end for block in blocks if not block.reservation.ended and block.reservation.end > now]
    if scale_down_at is None or not ends or scale_down_at >= min(ends) - EKS_SCALE_DOWN_LEAD - SETTLED:
        return None
    return (
        f"EKS's own scale-in stands at {format_instant(scale_down_at)}, and the block ends at {format_instant(min(ends))}: EKS will"
        " empty the node group too early, and its sizes are set again then (ask AWS Support to move the scheduled action; EKS wants"
        " it left alone)"
    )


def overbooked(environment: Environment, reservation: Reservation) -> str | None:
    """What is wrong when a block's groups want more instances than were bought; the last to launch would wait without end."""
    bought = reservation.instance_count
    if bought is None:
        return None
    wanted = sum(bought if group.instances is None else group.instances for group in environment.groups)
    if wanted <= bought:
        return None
    return (
        f"groups want {wanted} instances and {reservation.reservation_id} has {bought}"
        f" (set instances so that they sum up to {bought})"
    )


def scaling_due(environment: Environment, reservation: Reservation, now: datetime) -> bool:
    """Whether scale-groups has something to do for a block: the facts changed since it last ran, or a boundary is to be checked."""
    if not environment.has_groups:
        return False
    if environment.groups_armed != fingerprint(environment, reservation):
        return True
    return environment.groups_check_at is not None and now >= environment.groups_check_at


def fingerprint(environment: Environment, reservation: Reservation) -> str:
    """A stable hash of what scale-groups would arrange for a block; it changes when the block starts or ends, too.

    The record's `groups_armed` holds the one that was arranged last, so a sweep sees without any call to Auto Scaling that nothing
    has changed.
    """
    phase = "ended" if reservation.ended else "active" if reservation.state == "active" else "waiting"
    facts = [
        reservation.reservation_id,
        None if reservation.start is None else format_instant(reservation.start),
        format_instant(reservation.end),
        reservation.instance_count,
        reservation.ultraserver,
        None if environment.groups_from is None else format_instant(environment.groups_from),
        phase,
        sorted(
            [
                group.kind.value,
                group.label,
                -1 if group.instances is None else group.instances,
                group.drain_minutes,
                -1 if group.terminate_hook_minutes is None else group.terminate_hook_minutes,
            ]
            for group in environment.groups
        ),
    ]
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()[:16]


def _matters(reservation: Reservation, now: datetime) -> bool:
    """Whether a block still says something about its groups. One that EC2 never delivered has no share."""
    if now >= reservation.end + ZERO_KEPT:
        return False
    return not reservation.ended or now >= reservation.end


def _span(block: GroupBlock, group: GroupFacts, plan: Plan) -> _Span:
    reservation = block.reservation
    deadlines = Deadlines(end=reservation.end, ultraserver=reservation.ultraserver)
    drains = _minute(deadlines.drain_at(group.longest_hook, block.drain))
    starts = None
    if reservation.start is not None:
        waits = group.scheduled and reservation.state != "active"
        starts = _minute(reservation.start + (START_OFFSET if waits else timedelta(0)))
        starts = starts if block.not_before is None else max(starts, block.not_before)
        if drains <= starts or reservation.end - starts < LEAST_LEFT:
            plan.findings.append(
                f"{reservation.reservation_id} is not started: its instances would have to drain from {format_instant(drains)} on,"
                f" and it starts at {format_instant(reservation.start)} (shorten {_longest_wait(group, block)})"
            )
            starts = None
    return _Span(block, starts, drains, deadlines)


def _longest_wait(group: GroupFacts, block: GroupBlock) -> str:
    if group.hook_name is not None and group.longest_hook >= block.drain:
        return f"the heartbeat timeout of lifecycle hook {group.hook_name}, {group.longest_hook.total_seconds():.0f} s"
    return f"drain_minutes, {block.drain.total_seconds() / 60:.0f}"


def _boundaries(spans: Sequence[_Span], taken: Collection[datetime], now: datetime, plan: Plan) -> dict[str, datetime]:
    """Each boundary to come by its action's name, with a start time of its own.

    What is in the way of another action moves by minutes: an end earlier, a start later, never the reverse.
    """
    used = {_minute(at) for at in taken}
    found = {}
    for span in spans:
        name = action_names(span.reservation.reservation_id)[1]
        if span.drains > now + SOON:
            span.drains = found[name] = _free(span.drains, -MINUTE, used, name, plan)
    for span in spans:
        name = action_names(span.reservation.reservation_id)[0]
        if span.starts is None or span.starts <= now + SOON:
            continue
        if obstacle := _obstacle(span):
            plan.findings.append(f"{span.reservation.reservation_id} is not started: {obstacle}")
            span.starts = None
        else:
            span.starts = found[name] = _free(span.starts, MINUTE, used, name, plan)
    return found


def _unarmed(spans: Iterable[_Span], now: datetime, plan: Plan) -> dict[str, datetime]:
    """Nothing is armed on a group whose service has no schedules; what must not start, does not."""
    for span in spans:
        if span.starts is not None and span.starts > now and (obstacle := _obstacle(span)):
            plan.findings.append(f"{span.reservation.reservation_id} is not started: {obstacle}")
            span.starts = None
    return {}


def _within_limit(actions: tuple[Action, ...], others: int, plan: Plan) -> tuple[Action, ...]:
    """The next ones that fit beside the others'; the later ones are armed when these have run."""
    room = max(0, ACTIONS_PER_GROUP - others)
    if len(actions) > room:
        plan.findings.append(
            f"{len(actions) - room} of its {len(actions)} scheduled actions do not fit beside {others} of others: Auto Scaling"
            f" takes {ACTIONS_PER_GROUP} for a group (delete some of those; until then sizes are set at each boundary itself)"
        )
    return actions[:room]


def _obstacle(span: _Span) -> str | None:
    """Why a start must not be armed."""
    if span.block.size is None:
        return "EC2 does not show its instance count yet (set instances in groups)"
    if not span.reservation.known_state:
        return f"its state {span.reservation.state!r} is unknown (look at the block in the EC2 console)"
    return None


def _free(at: datetime, step: timedelta, used: set[datetime], name: str, plan: Plan) -> datetime:
    wished = at
    while at in used:
        at += step
    used.add(at)
    if at != wished:
        plan.notes.append(
            f"{name} runs at {format_instant(at)}: another action has {format_instant(wished)}, and start times are unique"
        )
    return at


def _level(spans: Iterable[_Span], at: datetime) -> int:
    """Sum of the shares that last at a moment."""
    return sum(span.block.size or 0 for span in spans if span.lasts(at))


def _sizes_now(spans: Sequence[_Span], group: GroupFacts, plan: Plan, now: datetime) -> list[datetime]:
    """Say in `plan` what to set at once: a boundary that has passed and whose sizes, or instances, are not there.

    Below those sizes is the team's choice.

    Returns:
        Boundaries that have passed and still want something: a block that is not there yet, instances that are missing.
    """
    moment = now + SOON if group.scheduled else now
    lasting = [span for span in spans if span.lasts(moment)]
    drained = [span for span in spans if span.drains <= moment]
    if not lasting and not drained:
        return []
    if unknown := [span.reservation.reservation_id for span in lasting if span.block.size is None]:
        plan.findings.append(f"sizes are left alone: EC2 does not show the instance count of {', '.join(unknown)}")
        return []
    level, present = _level(spans, moment), group.sizes
    maximum, desired = present.maximum or 0, present.desired or 0
    # A missed start is made up for only when the block is there (case B36) and still of use (case B31).
    startable = [
        span for span in lasting if span.reservation.state == "active" and span.reservation.end - now >= LEAST_LEFT
    ]
    waiting = [span.started for span in lasting if span.reservation.state != "active"]
    idle = desired == 0 and group.kind is not Kind.COMPUTE_ENVIRONMENT
    if startable and (maximum < level or idle):
        plan.sizes_now = group.sized(level, level)
        return waiting + [span.started for span in startable]
    too_large = maximum > max(level, group.least_maximum) or (
        group.kind is not Kind.COMPUTE_ENVIRONMENT and desired > level
    )
    if too_large:
        late = [span for span in drained if now >= span.drains + SCHEDULED_ACTION_LATENESS]
        if late:
            plan.missed = True
            plan.findings.append(_missed(late, group))
        plan.sizes_now = group.sized(level, min(desired, level))
        return waiting
    if startable and group.instances < desired and group.kind is not Kind.COMPUTE_ENVIRONMENT:
        return waiting + _top_up(startable, group, plan, now)
    return waiting


def _top_up(startable: Sequence[_Span], group: GroupFacts, plan: Plan, now: datetime) -> list[datetime]:
    """Ask again for instances that could not be launched.

    After failures Auto Scaling tries ever more seldom; setting the desired capacity makes it try at once.
    """
    started = max(span.started for span in startable)
    if now < started + SETTLED:
        return [started]
    plan.sizes_now = group.sizes
    if now >= started + MISSING_FOR:
        plan.missing = (group.sizes.desired or 0) - group.instances
        said = f": {group.launch_failure}" if group.launch_failure else ""
        plan.findings.append(f"{plan.missing} of its {group.sizes.desired} instances are missing{said}")
    return [started]


def _missed(late: Sequence[_Span], group: GroupFacts) -> str:
    ids = ", ".join(span.reservation.reservation_id for span in late)
    return (
        f"its sizes were {group.sizes} after the scale-in for {ids} (look for another scaler, or a suspended process)"
    )


def _next_looks(
    spans: Sequence[_Span], group: GroupFacts, plan: Plan, unfinished: Sequence[datetime], now: datetime
) -> None:
    """Set `check_at` and `look_at`: the next boundary; sooner while something is unfinished, at pauses that grow with its age."""
    settled = SETTLED if group.scheduled else timedelta(0)
    boundaries = [
        at + settled for span in spans for at in (span.starts, span.drains) if at is not None and at + settled > now
    ]
    last_chances = [(span.deadlines.drain_at(LONGEST_HOOK), span.drains) for span in spans]
    boundaries += [at for at, drains in last_chances if now < at < drains]
    drained = [span for span in spans if span.drains <= now + SOON]
    open_ = [*unfinished, *(span.drains for span in drained)]
    plan.check_at = min(open_ or boundaries, default=None)
    plan.unfinished_since = max(open_, default=None)
    looks = boundaries + [now + min(max(now - at, SHORTEST_PAUSE), LONGEST_PAUSE) for at in unfinished]
    for span in drained:
        last_look = span.deadlines.terminates_at - LAST_LOOK
        looks += [at for at in (last_look, now + DRAIN_LOOK) if now < at < span.reservation.end + ZERO_KEPT]
    plan.look_at = min(looks, default=None)


def _look_at_group(spans: Sequence[_Span], group: GroupFacts, plan: Plan, now: datetime) -> None:
    """Add what would keep the group from following its blocks, days before it matters (cases B08, B29)."""
    if not spans:
        return
    if suspended := sorted(group.suspended & NEEDED_PROCESSES):
        plan.findings.append(
            f"its processes {', '.join(suspended)} are suspended, so sizes do not follow the block by themselves (aws autoscaling"
            f" resume-processes --auto-scaling-group-name {group.name} --scaling-processes {' '.join(suspended)})"
        )
    if group.protected:
        plan.findings.append(
            "it protects instances from scale in: they outlive the scale-in and EC2 kills them undrained (aws autoscaling"
            f" update-auto-scaling-group --auto-scaling-group-name {group.name} --no-new-instances-protected-from-scale-in,"
            " and set-instance-protection for those that run)"
        )
    if group.warm_pool:
        plan.findings.append(
            "it has a warm pool, and Auto Scaling supports none with Capacity Blocks (aws autoscaling delete-warm-pool"
            f" --auto-scaling-group-name {group.name})"
        )
    drained = [span for span in spans if span.drains <= now + SOON]
    too_many = group.instances - _level(spans, now + SOON)
    for span in drained:
        terminates = span.deadlines.terminates_at
        if plan.sizes_now is not None and group.instances and now + group.longest_hook > terminates:
            left = max(0, int((terminates - now) / MINUTE))
            plan.findings.append(
                f"lifecycle hook {group.hook_name} may wait {group.longest_hook.total_seconds():.0f} s, longer than the {left} min"
                f" until EC2 terminates the instances of {span.reservation.reservation_id}"
            )
        if too_many > 0 and terminates - LAST_LOOK <= now < span.reservation.end:
            plan.instances_left = too_many
            plan.findings.append(
                f"{too_many} {group.units} are still there; EC2 terminates those of {span.reservation.reservation_id} from"
                f" {format_instant(terminates)} on (save what they hold)"
            )


def _minute(at: datetime) -> datetime:
    """The minute that an instant lies in: never later, so an end stays early enough (EC2's starts and ends are whole minutes)."""
    return at.replace(second=0, microsecond=0)
