"""The doctor's round: read every record, block, group and account, and hand what was read to the checks.

Each read stands alone: one that fails becomes a finding, and everything else goes on (design rule 4, case B18).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper.aws import doctor_reads, ec2, slack
from blockkeeper.aws.calls import unknown_calls
from blockkeeper.domain import (
    doctor_account,
    doctor_compute_environments,
    doctor_groups,
    doctor_node_groups,
    doctor_records,
)
from blockkeeper.domain.calendar import GroupBlock
from blockkeeper.domain.doctor import (
    STACK,
    Check,
    Finding,
    account_subject,
    could_not_read,
    merged,
    record_subject,
)
from blockkeeper.domain.environment import Environment, Status, parse_environment
from blockkeeper.domain.quotas import family
from blockkeeper.domain.reservation import Reservation, is_capacity_block, parse_reservation

if TYPE_CHECKING:
    from blockkeeper.domain.extension import Extension

_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"})
_NOT_EVERY_ACCOUNT = ("not every account of its Region could be read", "see what keeps those accounts from being read")
_ENDED = frozenset({Status.EXPIRED})

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stack:
    """What the doctor must know of the deployed stack.

    Attributes:
        targets: (account, Region) pairs that are swept.
        approvers: who is asked when a record names nobody.
        buyers: ARN of the role that may order in the stack's own account, by the action that it needs; None when one could not be
            learnt.
        teams: those with a limit of their own, from `TeamLimits`.
        inside: whether the stack's own function looks; the roles in other accounts trust no person.
    """

    account: str
    targets: tuple[tuple[str, str], ...]
    approvers: tuple[str, ...]
    sender: str
    member_role: str
    buyers: Mapping[str, str] | None
    teams: tuple[str, ...] = ()
    inside: bool = True


@dataclass(slots=True)
class Examination:
    """What was found, and the subjects of which a part could not be read."""

    findings: list[Finding] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)

    def add(self, findings: Iterable[Finding]) -> None:
        """Take findings in."""
        self.findings += findings

    @contextmanager
    def reading(self, subject: str, what: str) -> Iterator[None]:
        """Let a read fail: it becomes a finding about `subject`."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with one thing, the others go on (design rule 4)
            self.unread.add(subject)
            self.findings.append(could_not_read(subject, what, *_reason(error)))


@dataclass(slots=True)
class _Seen:
    """What the targets show: blocks by Region and id, and the accounts that see each.

    `unread` are the Regions in which an account could not be read.
    """

    blocks: dict[tuple[str, str], Reservation] = field(default_factory=dict)
    accounts: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    unread: set[str] = field(default_factory=set)
    places: dict[tuple[str, str], doctor_reads.Place] = field(default_factory=dict)

    def block(self, environment: Environment) -> Reservation | None:
        """The record's block, if a target shows it."""
        return self.blocks.get((environment.region, environment.capacity_block_id))

    def seen_by(self, environment: Environment) -> list[str]:
        """Accounts that see the record's block."""
        return self.accounts[environment.region, environment.capacity_block_id]

    def place(self, account: str, region: str) -> doctor_reads.Place:
        """An account and Region, made once, since it remembers what it read."""
        return self.places.setdefault((account, region), doctor_reads.Place(account, region))


def examine(stack: Stack, records: Iterable[Record], now: datetime, only: str | None = None) -> Examination:
    """Examine everything, or one record with what it needs.

    Args:
        records: every environment record in its JSON form, also when only one is examined: faults lie between records, too.
        only: PK of the one record; findings about others are left out.
    """
    examination = Examination()
    with examination.reading(STACK, "the models of boto3"):
        examination.add(doctor_account.sdk(unknown_calls(), boto3.__version__))
    environments = _environments(stack, records, examination)
    wanted = [each for each in environments if only in (None, each.pk)]
    regions = {each.region for each in wanted} if only else None
    seen = _blocks(stack, examination, regions, replacing=any(each.replace for each in wanted))
    examination.add(doctor_records.two_records(environments))
    for environment in wanted:
        examination.add(doctor_records.look_at_record(environment, stack.targets, stack.teams, now))
        _look_at_block(stack, environment, seen, examination)
        _look_at_groups(environment, environments, seen, examination, now)
    _look_at_quotas(stack, wanted, seen, examination)
    _look_at_mail(stack, wanted, examination)
    if only is not None:
        examination.findings = [each for each in examination.findings if each.is_about(only)]
    examination.findings = merged(examination.findings)
    return examination


def _environments(stack: Stack, records: Iterable[Record], examination: Examination) -> list[Environment]:
    environments = []
    for record in records:
        if record.get("status") in _ENDED:
            continue
        with examination.reading(record_subject(str(record.get("PK"))), "the record"):
            environments.append(parse_environment(record, stack.approvers))
    return environments


def _blocks(stack: Stack, examination: Examination, regions: set[str] | None, *, replacing: bool) -> _Seen:
    """Blocks that the targets show; with each other account's role tried, and the buyers' permission asked for."""
    seen = _Seen()
    lost: set[str] = set()
    for account in dict.fromkeys(account for account, _ in stack.targets):
        try:
            doctor_reads.assume(account)
        except (ClientError, BotoCoreError) as error:
            lost.add(account)
            examination.unread.add(account_subject(account))
            examination.add([_not_assumed(stack, account, error)])
            continue
        _look_at_permissions(stack, account, examination, replacing=replacing)
    for account, region in stack.targets:
        if regions is not None and region not in regions:
            continue
        before = len(examination.findings)
        if account not in lost:
            with examination.reading(account_subject(account, region), "its Capacity Blocks"):
                for entry in filter(is_capacity_block, ec2.describe_entries(region, account)):
                    _note(entry, account, region, seen, examination)
        if account in lost or len(examination.findings) > before:
            seen.unread.add(region)
    return seen


def _not_assumed(stack: Stack, account: str, error: Exception) -> Finding:
    if stack.inside:
        return doctor_account.member_role(account, stack.member_role, _reason(error)[0])
    reason = f"role {stack.member_role} lets only the stack's functions in"
    return could_not_read(
        account_subject(account), "the account", reason, "what the daily look found there is shown instead"
    )


def _note(entry: dict[str, Any], account: str, region: str, seen: _Seen, examination: Examination) -> None:
    identifier = str(entry.get("CapacityReservationId"))
    with examination.reading(f"{account_subject(account, region)}/{identifier}", "its entry"):
        reservation = parse_reservation(entry, region)
        key = (region, reservation.reservation_id)
        # The owner's own view of a shared block is the fuller one.
        if key not in seen.blocks or account == reservation.owner_id:
            seen.blocks[key] = reservation
        seen.accounts[key].append(account)


def _look_at_permissions(stack: Stack, account: str, examination: Examination, *, replacing: bool) -> None:
    """Ask IAM whether the buyers may order; that of new blocks only when a record wants one."""
    subject = account_subject(account)
    if stack.buyers is None:
        examination.unread.add(subject)
        remedy = "allow cloudformation:DescribeStackResource on the stack"
        examination.add(
            [could_not_read(subject, "the names of the buyers' roles", "CloudFormation does not tell", remedy)]
        )
        return
    region = next(region for each, region in stack.targets if each == account)
    for action, role in stack.buyers.items():
        if action == doctor_account.BUY_BLOCK and not replacing:
            continue
        partition = role.split(":")[1]
        buyer = role if account == stack.account else f"arn:{partition}:iam::{account}:role/{stack.member_role}-buyer"
        any_block = f"arn:{partition}:ec2:{region}:{account}:capacity-reservation/cr-00000000000000000"
        with examination.reading(subject, f"whether the buyer may {action}"):
            decision, organization = doctor_reads.purchase_decision(account, buyer, action, any_block)
            found = doctor_account.purchase_permission(account, buyer, action, decision, organization=organization)
            examination.add(found)


def _look_at_block(stack: Stack, environment: Environment, seen: _Seen, examination: Examination) -> None:
    subject = record_subject(environment.pk)
    accounts = [account for account, region in stack.targets if region == environment.region]
    reservation = seen.block(environment)
    if reservation is None:
        if environment.region in seen.unread:
            examination.unread.add(subject)
            examination.add([could_not_read(subject, "its block", *_NOT_EVERY_ACCOUNT)])
        elif environment.owner_id in {None, *accounts} and accounts:
            examination.add([doctor_records.block_missing(environment, accounts)])
        return
    extensions: tuple[Extension, ...] = ()
    reader = reservation.owner_id if reservation.owner_id in accounts else seen.seen_by(environment)[0]
    with examination.reading(subject, "the extensions of its block"):
        extensions = ec2.extension_history(reservation.reservation_id, environment.region, reader)
    examination.add(doctor_records.look_at_block(environment, reservation, accounts, extensions))


def _look_at_groups(
    environment: Environment,
    environments: list[Environment],
    seen: _Seen,
    examination: Examination,
    now: datetime,
) -> None:
    reservation = seen.block(environment)
    if reservation is None or reservation.ended:
        return
    accounts = seen.seen_by(environment)
    for group in environment.groups:
        label = group.label
        subject, found = f"{record_subject(environment.pk)}/{label}", len(examination.findings)
        with examination.reading(subject, "the group"):
            blocks = _blocks_of(label, environment.region, environments, seen)
            places = [seen.place(account, environment.region) for account in accounts]
            if group.auto_scaling_group is not None:
                examination.add(_look_at_group(group.auto_scaling_group, places, blocks, subject, now=now))
            elif group.eks_cluster is not None and group.eks_nodegroup is not None:
                examination.add(_look_at_node_group(group.eks_cluster, group.eks_nodegroup, places, blocks, subject))
            elif group.batch_compute_environment is not None:
                examination.add(_look_at_batch(group.batch_compute_environment, places, blocks, subject))
        if environment.region in seen.unread:
            _doubt_missing(examination, found, subject)


def _doubt_missing(examination: Examination, since: int, subject: str) -> None:
    """A group that was not found may be in the account that could not be read."""
    if any(each.check is Check.GROUP_MISSING for each in examination.findings[since:]):
        del examination.findings[since:]
        examination.unread.add(subject)
        examination.add([could_not_read(subject, "the group", *_NOT_EVERY_ACCOUNT)])


def _look_at_group(
    name: str, places: list[doctor_reads.Place], blocks: list[GroupBlock], subject: str, *, now: datetime
) -> Iterable[Finding]:
    """A shared block has groups in several accounts; each group is in one of them."""
    setup = next((found for place in places if (found := place.group(name)) is not None), None)
    if setup is None:
        return [doctor_groups.group_missing(name, places[0].region, subject)]
    return doctor_groups.look_at_group(setup, blocks, subject, now)


def _look_at_node_group(
    cluster: str, name: str, places: list[doctor_reads.Place], blocks: list[GroupBlock], subject: str
) -> Iterable[Finding]:
    found = next((each for place in places if (each := place.node_group(cluster, name)) is not None), None)
    if found is None:
        return [doctor_node_groups.node_group_missing(cluster, name, places[0].region, subject)]
    return doctor_node_groups.look_at_node_group(found, blocks, subject)


def _look_at_batch(
    name: str, places: list[doctor_reads.Place], blocks: list[GroupBlock], subject: str
) -> Iterable[Finding]:
    found = next((each for place in places if (each := place.compute_environment(name)) is not None), None)
    if found is None:
        return [doctor_compute_environments.compute_environment_missing(name, places[0].region, subject)]
    return doctor_compute_environments.look_at_compute_environment(found, blocks, subject)


def _blocks_of(label: str, region: str, environments: list[Environment], seen: _Seen) -> list[GroupBlock]:
    """Every block that the group follows by any record, and that has not ended."""
    blocks = {}
    for environment in environments:
        reservation = seen.block(environment)
        if environment.region != region or reservation is None or reservation.ended:
            continue
        for group in environment.groups:
            if group.label == label:
                drain = timedelta(minutes=group.drain_minutes)
                blocks[reservation.reservation_id] = GroupBlock(reservation, group.instances, drain)
    return [blocks[identifier] for identifier in sorted(blocks)]


def _look_at_quotas(
    stack: Stack,
    environments: list[Environment],
    seen: _Seen,
    examination: Examination,
) -> None:
    """Each family of an account and Region once, by its largest block."""
    largest: dict[tuple[str, str, str], list[Reservation]] = defaultdict(list)
    for environment in environments:
        reservation = seen.block(environment)
        if reservation is not None and (reservation.owner_id, reservation.region) in stack.targets:
            kind = family(reservation.instance_type)
            largest[reservation.owner_id, reservation.region, kind].append(reservation)
    for (account, region, kind), reservations in largest.items():
        with examination.reading(f"{account_subject(account, region)}/{kind}", "its quota"):
            place = seen.place(account, region)
            # Blocks of one type share a read; a family has few types.
            each = {type_: place.vcpus(type_) for type_ in sorted({r.instance_type for r in reservations})}
            vcpus = max(each[r.instance_type] * (r.instance_count or 1) for r in reservations)
            examination.add(doctor_account.quota(account, region, kind, vcpus, place.quota(kind)))


def _look_at_slack(stack: Stack, examination: Examination) -> bool:
    """Whether people can be asked in Slack. Its secret is read; Slack itself is not called."""
    try:
        if slack.channel() is None:
            return False
        slack.signing_secret()
    except slack.SlackRefusedError as error:
        if not stack.inside and any(code in str(error) for code in _DENIED):
            examination.add(
                [
                    could_not_read(
                        STACK, "the secret of Slack", "access is denied", "allow secretsmanager:GetSecretValue"
                    )
                ]
            )
        else:
            examination.add([doctor_account.slack(str(error))])
            return False
    except slack.SlackBusyError as error:
        examination.add([could_not_read(STACK, "the secret of Slack", str(error), "the next round tries again")])
    else:
        return True
    # It may be as it was: approvers in Slack are not called unreachable for want of a look.
    examination.unread.add(STACK)
    return True


def _look_at_mail(stack: Stack, environments: list[Environment], examination: Examination) -> None:
    asked = [environment for environment in environments if environment.require_approval]
    recipients = {approver for environment in asked for approver in environment.approvers if "@" in approver}
    in_slack = _look_at_slack(stack, examination)
    with examination.reading(STACK, "Amazon SES"):
        mailing = doctor_reads.read_mailing(stack.sender, recipients)
        if recipients or stack.sender:
            examination.add(doctor_account.sender(mailing))
        for environment in asked:
            examination.add(doctor_account.approvers(environment, mailing, slack=in_slack))
        return
    examination.unread |= {record_subject(environment.pk) for environment in asked}


def _reason(error: Exception) -> tuple[str, str]:
    """What went wrong and what to do, in words that are the same tomorrow: AWS's messages hold request ids and encoded details."""
    if isinstance(error, ClientError):
        code = error.response["Error"].get("Code", "")
        if code in _DENIED:
            return f"{error.operation_name} is denied ({code})", f"allow {error.operation_name} (docs/permissions.md)"
        return f"{error.operation_name}: {code}", "the next round tries again; if it stays, call it by hand"
    if isinstance(error, BotoCoreError):
        return type(
            error
        ).__name__, "the next round tries again; if it stays, look at the network and the Region's name"
    text = f"{type(error).__name__}: {error}"
    return text, "write records through the API only: `blockkeeper enrol FILE --update` puts a broken one right"
