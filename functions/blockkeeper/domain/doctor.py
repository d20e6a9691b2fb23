"""What the doctor finds: faults that would only show when it counts, each with the reason and the command that mends it.

The checks are pure: `doctor_groups` looks at what a group launches by, `doctor_records` at records and targets, `doctor_account` at
quotas, mail and permissions. A read that failed is a finding of its own, never "all is well" (case B18).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import groupby


class Severity(StrEnum):
    """How bad it is: `error` keeps a block from being used or extended, `warning` may, `unknown` could not be looked at.

    A `note` is worth knowing and keeps nothing from working: the command shows it in a line, and nobody is mailed for it.
    """

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"
    NOTE = "note"


class Check(StrEnum):
    """Every check; docs/doctor.md has a heading for each."""

    GROUP_MISSING = "group-missing"
    LAUNCH_CONFIGURATION = "launch-configuration"
    TEMPLATE_MISSING = "template-missing"
    TEMPLATE_VERSION = "template-version"
    MARKET_TYPE = "market-type"
    RESERVATION_TARGET = "reservation-target"
    INSTANCE_TYPE = "instance-type"
    PLATFORM = "platform"
    MIXED_INSTANCES = "mixed-instances"
    SUBNET_ZONE = "subnet-zone"
    GROUP_SIZE = "group-size"
    LIFECYCLE_HOOK = "lifecycle-hook"
    SCALE_IN_PROTECTION = "scale-in-protection"
    SUSPENDED_PROCESSES = "suspended-processes"
    WARM_POOL = "warm-pool"
    TERMINATION_HANDLER = "termination-handler"
    CAPACITY_TYPE = "capacity-type"
    NODE_GROUP_HEALTH = "node-group-health"
    COMPUTE_ENVIRONMENT = "compute-environment"
    MISSING_POLICY = "missing-policy"
    QUORUM = "quorum"
    EXTEND_UNTIL = "extend-until"
    LOOK_AHEAD = "look-ahead"
    CEILING = "ceiling"
    TEAM = "team"
    NOT_IN_TARGETS = "not-in-targets"
    FOREIGN_OWNER = "foreign-owner"
    BLOCK_MISSING = "block-missing"
    TWO_RECORDS = "two-records"
    SENDER = "sender"
    APPROVER = "approver"
    SLACK = "slack"
    QUOTA = "quota"
    MEMBER_ROLE = "member-role"
    PURCHASE_PERMISSION = "purchase-permission"
    SDK = "sdk"
    COULD_NOT_READ = "could-not-read"


WHY: Mapping[Check, str] = {
    Check.GROUP_MISSING: "The block starts and nothing launches into it; it is paid for all the same.",
    Check.LAUNCH_CONFIGURATION: "A launch configuration cannot name a Capacity Block; only a launch template can.",
    Check.TEMPLATE_MISSING: "Auto Scaling launches nothing without its launch template.",
    Check.TEMPLATE_VERSION: "A version that somebody adds or makes the default changes what launches in the middle of the block.",
    Check.MARKET_TYPE: "Without the market type capacity-block EC2 refuses every launch into the block.",
    Check.RESERVATION_TARGET: "A Capacity Block is a targeted reservation: what does not name it launches elsewhere or not at all.",
    Check.INSTANCE_TYPE: "EC2 launches only instances of the block's own type into it.",
    Check.PLATFORM: "EC2 refuses a launch whose AMI is of another platform than the block.",
    Check.MIXED_INSTANCES: "With a mixed instances policy a block is reached by distribution segments only, not by the template.",
    Check.SUBNET_ZONE: "A block is in one Availability Zone; launches into subnets of other zones fail.",
    Check.GROUP_SIZE: "What is wanted beyond the block, or before its start, fails to launch again and again.",
    Check.LIFECYCLE_HOOK: "A drain that EC2's own termination cuts short loses work; one that waits in nothing does not drain.",
    Check.SCALE_IN_PROTECTION: "Protected instances outlive the scale-in, and EC2 kills them undrained.",
    Check.SUSPENDED_PROCESSES: "With these suspended a scheduled action does not run, or changes nothing.",
    Check.WARM_POOL: "Warm pools do not work with Capacity Blocks.",
    Check.TERMINATION_HANDLER: "Without it nobody tells Kubernetes that a node goes: pods are cut off instead of moved.",
    Check.CAPACITY_TYPE: "EKS launches nodes into a block only from a node group of capacity type CAPACITY_BLOCK.",
    Check.NODE_GROUP_HEALTH: "A node group that EKS calls unhealthy may not launch, resize or drain.",
    Check.COMPUTE_ENVIRONMENT: "Batch launches nothing into a block from a compute environment of this kind or state.",
    Check.MISSING_POLICY: "What the policy lacks means no: nothing is bought.",
    Check.QUORUM: "No request can ever be approved.",
    Check.EXTEND_UNTIL: "Nothing that ends later is bought, so the block ends at its present end.",
    Check.LOOK_AHEAD: "Money is bound long before it is needed, by as many questions or purchases one after the other.",
    Check.CEILING: "Extensions that cost what the last one did are not bought.",
    Check.TEAM: "A team without a limit of its own may spend all of MonthlyLimit.",
    Check.NOT_IN_TARGETS: "Only Targets are swept: nobody looks at this block, its end passes unseen.",
    Check.FOREIGN_OWNER: "EC2 lets only the owner of a block extend it.",
    Check.BLOCK_MISSING: "Nothing can be done for a block that EC2 does not show.",
    Check.TWO_RECORDS: "Two policies for one block contradict each other; whichever is read first counts.",
    Check.SENDER: "Nobody is asked and nobody is told; a question without an answer buys nothing.",
    Check.APPROVER: "Who cannot be reached cannot say yes, and without a yes nothing is bought.",
    Check.SLACK: "Nobody is asked or told in Slack; a question that reaches nobody buys nothing.",
    Check.QUOTA: "EC2 sells no block beyond the quota, so a new block in place of this one cannot be bought.",
    Check.MEMBER_ROLE: "Blocks of that account are neither read, nor extended, nor scaled.",
    Check.PURCHASE_PERMISSION: "The order is refused at the moment it counts.",
    Check.SDK: "A call that the packaged boto3 does not know fails only when it is made.",
    Check.COULD_NOT_READ: "What was not read may be wrong; earlier findings about it stand.",
}

_ORDER = {severity: place for place, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault.

    Attributes:
        subject: what it is about: `stack`, `111122223333/us-east-1`, a record's PK, or PK and group: `team-vision/train`.
        problem: what is wrong. The same from day to day while nothing changes, since a changed text is told again.
        why: why it matters.
        remedy: what to do; a command where one command does it.
    """

    check: Check
    severity: Severity
    subject: str
    problem: str
    why: str
    remedy: str

    @property
    def key(self) -> str:
        """What makes it the same finding tomorrow."""
        return f"{self.subject}#{self.check}"

    def is_about(self, pk: str) -> bool:
        """Whether it concerns a record: its own, or what is about no single record."""
        return record_of(self.subject) in {pk, None}

    def as_json(self) -> dict[str, str]:
        """Its fields as text."""
        return {name: str(value) for name, value in asdict(self).items()}


def finding(check: Check, subject: str, problem: str, remedy: str, severity: Severity = Severity.ERROR) -> Finding:
    """A finding with the reason of its check."""
    return Finding(check, severity, subject, problem, WHY[check], remedy)


def could_not_read(subject: str, what: str, reason: str, remedy: str) -> Finding:
    """A read that failed, or something that cannot be told from outside."""
    return finding(Check.COULD_NOT_READ, subject, f"{what} could not be read: {reason}", remedy, Severity.UNKNOWN)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for each subject and check, the worst first; texts of several are joined."""
    result = []
    for _, same in groupby(sorted(findings, key=lambda each: (each.key, each.problem)), key=lambda each: each.key):
        several = list(dict.fromkeys(same))
        worst = min(several, key=lambda each: _ORDER[each.severity])
        problems, remedies = (
            dict.fromkeys(texts) for texts in zip(*((f.problem, f.remedy) for f in several), strict=True)
        )
        joined = ("; ".join(problems), worst.why, "; ".join(remedies))
        result.append(Finding(worst.check, worst.severity, worst.subject, *joined))
    return sorted(result, key=lambda each: (_ORDER[each.severity], each.subject, each.check))


@dataclass(slots=True)
class Changes:
    """What differs from the day before; `standing` stays as it was told."""

    new: list[Finding] = field(default_factory=list)
    changed: list[Finding] = field(default_factory=list)
    mended: list[Finding] = field(default_factory=list)
    standing: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.mended)

    def about(self, pk: str | None) -> "Changes":
        """The part about one record and its groups; None is everything that is about no single record."""
        parts = ([each for each in part if record_of(each.subject) == pk] for part in self._parts())
        return Changes(*parts)

    def records(self) -> list[str | None]:
        """Whom the changes are about, in order; None for what is about no single record."""
        told = (each for part in self._parts()[:3] for each in part)
        return list(dict.fromkeys(record_of(each.subject) for each in told))

    def _parts(self) -> tuple[list[Finding], ...]:
        return (self.new, self.changed, self.mended, self.standing)


STACK = "stack"


def account_subject(account: str, region: str | None = None) -> str:
    """Subject of what is about an account, or an account's Region; a PK holds no colon, so the two never meet."""
    return f"account:{account}" if region is None else f"account:{account}/{region}"


def record_subject(pk: str) -> str:
    """Subject of a record."""
    return f"record:{pk}"


def record_of(subject: str) -> str | None:
    """The record that a subject is about, or None."""
    return subject.removeprefix("record:").partition("/")[0] if subject.startswith("record:") else None


def compare(stored: Iterable[Finding], found: Iterable[Finding], unread: Collection[str]) -> Changes:
    """Compare with what was found before.

    Args:
        unread: subjects of which a part could not be read: what stood there before may still stand, so it is not mended.
    """
    before, changes = {each.key: each for each in stored}, Changes()
    for each in found:
        known = before.pop(each.key, None)
        if known is None:
            changes.new.append(each)
        elif (known.severity, known.problem) != (each.severity, each.problem):
            changes.changed.append(each)
        else:
            changes.standing.append(each)
    for each in before.values():
        held = any(each.subject == subject or each.subject.startswith(f"{subject}/") for subject in unread)
        kept = held and each.check is not Check.COULD_NOT_READ
        (changes.standing if kept else changes.mended).append(each)
    return changes
