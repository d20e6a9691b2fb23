"""Each check of the doctor both ways: silent where all is well, one finding where it is not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from blockkeeper.domain import doctor_account, doctor_groups, doctor_records
from blockkeeper.domain.calendar import GroupBlock
from blockkeeper.domain.doctor import Changes, Check, Severity, compare, could_not_read, finding, merged, record_of
from blockkeeper.domain.doctor_account import Mailbox, Mailing
from blockkeeper.domain.doctor_groups import GroupSetup, Hook, LaunchTemplate, QueueRule, Subnet, look_at_group
from blockkeeper.domain.doctor_node_groups import NodeGroup, look_at_node_group
from blockkeeper.domain.doctor_report import MOST_TOLD, change_detail, findings_mail
from blockkeeper.domain.environment import Environment, Group
from blockkeeper.domain.expiry import owned_elsewhere
from blockkeeper.domain.extension import Extension
from blockkeeper.domain.reservation import Reservation
from blockkeeper.domain.sweep import unswept

NOW = datetime(2026, 5, 1, 8, 0, tzinfo=UTC)
SUBJECT = "record:team/train"
HOME = ("111122223333", "us-east-1")
BLOCK = Reservation(
    reservation_id="cr-0a1",
    owner_id=HOME[0],
    region="us-east-1",
    instance_type="p5.48xlarge",
    availability_zone="us-east-1a",
    availability_zone_id="use1-az4",
    instance_count=4,
    state="active",
    start=datetime(2026, 4, 27, 11, 30, tzinfo=UTC),
    end=datetime(2026, 5, 4, 11, 30, tzinfo=UTC),
    ultraserver=False,
    environment=None,
    platform="Linux/UNIX",
)
NEXT = replace(BLOCK, reservation_id="cr-0b2", state="scheduled", start=BLOCK.end, end=BLOCK.end + timedelta(days=7))
TEMPLATE = LaunchTemplate(
    template_id="lt-0a",
    version="3",
    instance_type="p5.48xlarge",
    market_type="capacity-block",
    reservation_id="cr-0a1",
    image_id="ami-0a",
    image_platform="Linux/UNIX",
)
SETUP = GroupSetup(
    name="train",
    region="us-east-1",
    maximum=4,
    desired=4,
    template=TEMPLATE,
    template_named="lt-0a version 3",
    subnets=(Subnet("subnet-0a", "us-east-1a", "use1-az4"),),
)
GROUP_ARN = "arn:aws:resource-groups:us-east-1:111122223333:group/blocks"
KUBERNETES = {"kubernetes.io/cluster/ml": True, doctor_groups.HANDLER_TAG: True}
DRAIN = Hook("drain", timedelta(minutes=5))


def look(setup=SETUP, *blocks, drain=0):
    """Checks and severities that one group comes to."""
    given = [GroupBlock(block, drain=timedelta(minutes=drain)) for block in blocks or (BLOCK,)]
    return [(each.check, each.severity) for each in look_at_group(setup, given, SUBJECT, NOW)]


def launched(**fields):
    return replace(SETUP, template=replace(TEMPLATE, **fields))


def mixed(**fields):
    return replace(SETUP, mixed=True, **fields)


def test_a_sound_group_has_no_findings():
    assert look() == []
    assert look(replace(SETUP, suspended=frozenset({"AZRebalance", "HealthCheck"}))) == []
    assert look(replace(SETUP, hooks=(DRAIN,), tags=KUBERNETES, handler_rules=(QueueRule("r", "q", True),))) == []


E, W, U, N = Severity.ERROR, Severity.WARNING, Severity.UNKNOWN, Severity.NOTE


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        (replace(SETUP, template=None, launch_configuration="old"), (Check.LAUNCH_CONFIGURATION, E)),
        (replace(SETUP, template=None), (Check.TEMPLATE_MISSING, E)),
        (replace(SETUP, template=None, template_named=None), (Check.TEMPLATE_MISSING, E)),
        (launched(version="$Latest"), (Check.TEMPLATE_VERSION, W)),
        (launched(version="$Default"), (Check.TEMPLATE_VERSION, W)),
        (launched(market_type=None), (Check.MARKET_TYPE, E)),
        (launched(market_type="spot"), (Check.MARKET_TYPE, E)),
        (launched(reservation_id=None), (Check.RESERVATION_TARGET, E)),
        (launched(reservation_id="cr-0ff"), (Check.RESERVATION_TARGET, E)),
        (launched(reservation_id=None, resource_group=GROUP_ARN), (Check.RESERVATION_TARGET, E)),
        (replace(SETUP, reservation_ids=("cr-0ff",)), (Check.RESERVATION_TARGET, E)),
        (launched(instance_type="p5.4xlarge"), (Check.INSTANCE_TYPE, E)),
        (launched(instance_type=None), (Check.INSTANCE_TYPE, E)),
        (launched(image_platform="Windows"), (Check.PLATFORM, E)),
        (launched(image_id="resolve:ssm:/aws/ami", image_platform=None), (Check.PLATFORM, U)),
        (mixed(), (Check.MIXED_INSTANCES, E)),
        (mixed(segments=("capacity-block",)), (Check.MIXED_INSTANCES, E)),
        (replace(SETUP, subnets=(Subnet("subnet-0b", "us-east-1a", "use1-az2"),)), (Check.SUBNET_ZONE, E)),
        (replace(SETUP, subnets=(*SETUP.subnets, Subnet("s", "us-east-1b", "use1-az2"))), (Check.SUBNET_ZONE, E)),
        (replace(SETUP, subnets=(), zones=("us-east-1b",)), (Check.SUBNET_ZONE, E)),
        (replace(SETUP, desired=5), (Check.GROUP_SIZE, W)),
        (replace(SETUP, maximum=3, desired=3), (Check.GROUP_SIZE, W)),
        (replace(SETUP, protected=True), (Check.SCALE_IN_PROTECTION, E)),
        (replace(SETUP, suspended=frozenset({"Launch"})), (Check.SUSPENDED_PROCESSES, E)),
        (replace(SETUP, suspended=frozenset({"ScheduledActions"})), (Check.SUSPENDED_PROCESSES, E)),
        (replace(SETUP, warm_pool=True), (Check.WARM_POOL, E)),
    ],
)
def test_case_b36_each_fault_of_a_group_is_one_finding(setup, expected):
    assert look(setup) == [expected]


@pytest.mark.parametrize(
    "setup",
    [
        launched(reservation_id=None, resource_group=GROUP_ARN),
        replace(SETUP, resource_groups=(GROUP_ARN,)),
        mixed(segments=("capacity-block", "on-demand"), resource_groups=(GROUP_ARN,), types=("p5.48xlarge",)),
    ],
)
def test_a_resource_group_that_holds_the_block_is_a_target(setup):
    assert look(replace(setup, grouped=frozenset({"cr-0a1"}))) == []


def test_the_target_on_the_group_wins_over_the_templates():
    assert look(replace(launched(reservation_id="cr-0ff"), reservation_ids=("cr-0a1",))) == []
    assert look(replace(SETUP, reservation_ids=("cr-0ff",))) == [(Check.RESERVATION_TARGET, E)]


def test_case_b32_a_group_of_two_blocks_is_warned_of_the_change_between_them():
    assert look(SETUP, BLOCK, NEXT) == [(Check.RESERVATION_TARGET, W)]
    both = replace(launched(reservation_id=None, resource_group=GROUP_ARN), grouped=frozenset({"cr-0a1", "cr-0b2"}))
    assert look(both, BLOCK, NEXT) == []


def test_zones_are_compared_by_id_and_by_name_only_where_nothing_else_is_known():
    assert look(replace(SETUP, subnets=(Subnet("subnet-0a", "us-east-1f", "use1-az4"),))) == []
    assert look(replace(SETUP, subnets=(), zones=("us-east-1a",))) == []
    assert look(SETUP, replace(BLOCK, availability_zone_id=None)) == []


def test_case_b36_instances_that_are_wanted_before_the_start():
    waiting = replace(BLOCK, state="scheduled", start=NOW + timedelta(days=2))
    assert look(SETUP, waiting) == [(Check.GROUP_SIZE, W)]
    assert look(replace(SETUP, desired=0), waiting) == []
    assert look(replace(SETUP, desired=5), replace(BLOCK, instance_count=None)) == [], "an unknown count blames nobody"


def test_a_maximum_below_the_block_counts_only_between_start_and_drain():
    empty = replace(SETUP, maximum=0, desired=0)
    assert look(empty) == [(Check.GROUP_SIZE, W)]
    assert look(empty, replace(BLOCK, start=NOW - timedelta(minutes=30))) == [], "it may still be growing"
    assert look(empty, replace(BLOCK, end=NOW + timedelta(minutes=37))) == [], "it has been drained"
    assert look(empty, replace(BLOCK, end=NOW + timedelta(minutes=37), start=None)) == []


def test_case_b08_hooks_against_the_time_and_against_the_drain():
    hour = replace(SETUP, hooks=(DRAIN, Hook("slow", timedelta(hours=1))))
    assert look(hour) == []
    soon = replace(BLOCK, end=NOW + timedelta(minutes=80))
    assert look(hour, soon) == [(Check.LIFECYCLE_HOOK, E)]
    (found,) = look_at_group(hour, [GroupBlock(soon)], SUBJECT, NOW)
    assert "lifecycle hook slow may wait 3600 s" in found.problem
    drained = replace(hour, maximum=0, desired=0)
    assert look(drained, soon) == [], "its scale-in has come and gone"
    assert look(drained, replace(soon, start=NOW - timedelta(minutes=10))) == [(Check.LIFECYCLE_HOOK, E)]
    assert look(replace(SETUP, hooks=(DRAIN,)), drain=5) == []
    assert look(replace(SETUP, hooks=(DRAIN,)), drain=10) == [(Check.LIFECYCLE_HOOK, W)]
    assert look(SETUP, drain=10) == [(Check.LIFECYCLE_HOOK, W)], "a drain that waits in nothing"


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"hooks": ()}, ["no terminating lifecycle hook"]),
        ({"tags": {"kubernetes.io/cluster/ml": True}}, ["is missing"]),
        ({"tags": KUBERNETES | {doctor_groups.HANDLER_TAG: False}}, ["is not copied"]),
        ({"handler_rules": ()}, ["no enabled EventBridge rule"]),
        ({"handler_rules": (QueueRule("r", "q", False),)}, ["the queue does not exist: r to q"]),
        ({"handler_rules": (QueueRule("r", "q", False), QueueRule("s", "p", None))}, []),
        ({"handler_rules": (), "hooks": (Hook("d", timedelta(minutes=5), "arn:aws:sqs:us-east-1:1:q"),)}, []),
        ({"handler_rules": (), "tags": {}}, []),
    ],
)
def test_what_the_termination_handler_needs(changes, problems):
    setup = replace(SETUP, hooks=(DRAIN,), tags=KUBERNETES, handler_rules=(QueueRule("r", "q", True),))
    found = list(doctor_groups.termination_handler(replace(setup, **changes), [GroupBlock(BLOCK)], SUBJECT))
    assert len(found) == len(problems)
    for each, text in zip(found, problems, strict=True):
        assert text in each.problem
        assert each.severity is W


def test_every_finding_of_a_group_has_a_reason_and_a_command():
    broken = replace(
        launched(version="$Latest", market_type=None, reservation_id=None, instance_type="p4d.24xlarge"),
        tags={"kubernetes.io/cluster/ml": True},
        protected=True,
        suspended=frozenset({"Launch"}),
        warm_pool=True,
        desired=9,
        subnets=(Subnet("s", "us-east-1b", "use1-az2"),),
    )
    found = list(look_at_group(broken, [GroupBlock(BLOCK, drain=timedelta(minutes=9))], SUBJECT, NOW))
    assert len({each.check for each in found}) == 11
    for each in found:
        assert each.why
        assert "`aws " in each.remedy
        assert each.remedy.count("`") % 2 == 0
        assert "--region us-east-1" in each.remedy


# ------------------------------------------------------------------------------------------------------------ records


def record(pk="team", **fields):
    known = {
        "name": pk,
        "capacity_block_id": "cr-0a1",
        "region": "us-east-1",
        "instance_type": "p5.48xlarge",
        "end_time": BLOCK.end,
        "extend_by_days": 1,
        "extension_lookahead_days": 1,
        "require_approval": True,
        "approvers": ("ann@example.com",),
        "max_upfront_fee": Decimal(4000),
    }
    return Environment(pk=pk, **{**known, **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"max_upfront_fee": None}, [Check.MISSING_POLICY]),
        ({"approvers": ()}, [Check.MISSING_POLICY]),
        ({"approvers": (), "require_approval": False}, []),
        ({"quorum": 2}, [Check.QUORUM]),
        ({"quorum": 2, "require_approval": False}, []),
        ({"extend_until": NOW}, [Check.EXTEND_UNTIL]),
        ({"extend_until": NOW + timedelta(hours=1)}, []),
        ({"region": "us-west-2"}, [Check.NOT_IN_TARGETS]),
        ({"owner_id": "222233334444"}, [Check.NOT_IN_TARGETS]),
        ({"owner_id": "222233334444", "error": owned_elsewhere("222233334444")}, []),
        ({"extension_lookahead_days": 2}, [Check.LOOK_AHEAD]),
        ({"team": "vision"}, []),
        ({"team": "visoin"}, [Check.TEAM]),
        ({"extension_lookahead_days": 2, "extend_by_days": 2}, []),
        ({"extension_lookahead_days": 2, "extend_until": NOW + timedelta(days=30)}, []),
    ],
)
def test_a_record_alone(fields, expected):
    assert [each.check for each in doctor_records.look_at_record(record(**fields), [HOME], ["vision"], NOW)] == expected


@pytest.mark.parametrize(
    ("fields", "reservation", "expected"),
    [
        ({}, BLOCK, []),
        ({}, replace(BLOCK, owner_id="999988887777"), [(Check.FOREIGN_OWNER, E)]),
        ({"instance_type": "p5en.48xlarge"}, BLOCK, [(Check.INSTANCE_TYPE, W)]),
        ({"groups": (Group("a"), Group("b", instances=1))}, BLOCK, [(Check.GROUP_SIZE, E)]),
        ({"groups": (Group("a", instances=3), Group("b", instances=1))}, BLOCK, []),
    ],
)
def test_a_record_against_its_block(fields, reservation, expected):
    found = doctor_records.look_at_block(record(**fields), reservation, [HOME[0]], [])
    assert [(each.check, each.severity) for each in found] == expected


def extension(fee, days=1, status="payment-succeeded", starts=NOW):
    return Extension("cbe-1", status, starts, starts + timedelta(days=days), None if fee is None else Decimal(fee))


@pytest.mark.parametrize(
    ("fields", "extensions", "expected"),
    [
        ({}, [], []),
        ({}, [extension("4000")], []),
        ({}, [extension("4000.01")], [E]),
        ({}, [extension("28000", days=7)], []),
        ({"extend_by_days": 7}, [extension("4000")], [E]),
        ({"extend_by_days": 7, "fallback_days": (1,)}, [extension("4000")], [W]),
        ({}, [extension("9000", status="payment-failed"), extension(None)], []),
        ({}, [extension("9000"), extension("3000", starts=NOW + timedelta(days=1))], []),
        ({"max_upfront_fee": None}, [extension("9000")], []),
    ],
)
def test_the_ceiling_against_the_last_price(fields, extensions, expected):
    assert [each.severity for each in doctor_records.ceiling(record(**fields), extensions)] == expected


def test_two_records_on_one_block():
    one, other = record("one", groups=(Group("train"),)), record("two", groups=(Group("infer"),))
    both = replace(other, groups=(Group("infer"), Group("train")))
    assert list(doctor_records.two_records([one, replace(other, capacity_block_id="cr-0b2")])) == []
    assert list(doctor_records.two_records([one, replace(other, region="us-west-2")])) == []
    assert [each.severity for each in doctor_records.two_records([one, other])] == [W, W]
    assert [each.severity for each in doctor_records.two_records([one, both])] == [E, E]


def test_records_that_no_sweep_reaches():
    records = [
        {"PK": "here", "region": "us-east-1"},
        {"PK": "there", "region": "us-west-2"},
        {"PK": "over", "region": "us-west-2", "status": "EXPIRED"},
        {"PK": "nowhere"},
        {"PK": "ours", "region": "us-east-1", "owner_id": HOME[0]},
        {"PK": "dropped", "region": "us-east-1", "owner_id": "222233334444"},
        {"PK": "lent", "region": "us-east-1", "owner_id": "222233334444", "error": owned_elsewhere("222233334444")},
    ]
    assert unswept(records, [HOME]) == ["there", "nowhere", "dropped"]
    assert unswept(records, [HOME, ("222233334444", "us-east-1")]) == ["there", "nowhere"]


# ------------------------------------------------------------------------------------------------------------ account

WELL = Mailing("us@example.com", sender_verified=True, sending=True, production=True, mailboxes={})


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(768.0, []), (767.0, [W]), (0.0, [W]), (None, [N])],
    ids=["enough", "less", "none", "without a code"],
)
def test_the_quota_against_the_largest_block(limit, expected):
    assert [each.severity for each in doctor_account.quota(*HOME, "p5", 768, limit)] == expected


@pytest.mark.parametrize(
    ("mailing", "number"),
    [
        (WELL, 0),
        (replace(WELL, sender=""), 1),
        (replace(WELL, sender_verified=False), 1),
        (replace(WELL, sending=False, sender_verified=False), 2),
    ],
)
def test_the_sender(mailing, number):
    assert len(list(doctor_account.sender(mailing))) == number


@pytest.mark.parametrize(
    ("fields", "mailing", "slack", "expected"),
    [
        ({}, WELL, False, []),
        ({}, replace(WELL, mailboxes={"ann@example.com": Mailbox(suppressed="BOUNCE")}), False, [E]),
        ({}, replace(WELL, production=False, mailboxes={"ann@example.com": Mailbox(verified=False)}), False, [E]),
        ({}, replace(WELL, production=False, mailboxes={"ann@example.com": Mailbox(verified=True)}), False, []),
        ({"approvers": ("U024BE7LH",)}, WELL, False, [E]),
        ({"approvers": ("U024BE7LH",)}, WELL, True, []),
        ({"approvers": ("U024BE7LH", "ann@example.com")}, WELL, False, [W]),
        ({"approvers": ("U024BE7LH", "ann@example.com"), "quorum": 2}, WELL, False, [E]),
        ({"approvers": ("U024BE7LH",), "require_approval": False}, WELL, False, []),
    ],
)
def test_whether_enough_approvers_can_be_reached(fields, mailing, slack, expected):
    assert [each.severity for each in doctor_account.approvers(record(**fields), mailing, slack=slack)] == expected


def test_the_buyers_permission():
    role = "arn:aws:iam::111122223333:role/buyer"
    assert (
        list(doctor_account.purchase_permission(HOME[0], role, doctor_account.BUY_BLOCK, "allowed", organization=True))
        == []
    )
    (found,) = doctor_account.purchase_permission(
        HOME[0], role, doctor_account.BUY_BLOCK, "implicitDeny", organization=False
    )
    assert "service control policy" in found.problem
    (found,) = doctor_account.purchase_permission(
        HOME[0], role, doctor_account.BUY_BLOCK, "explicitDeny", organization=True
    )
    assert "service control policy" not in found.problem


def test_case_b40_calls_that_the_sdk_does_not_know():
    assert list(doctor_account.sdk([], "1.43")) == []
    (found,) = doctor_account.sdk(["ec2:PurchaseCapacityBlockExtension"], "1.35")
    assert "ec2:PurchaseCapacityBlockExtension" in found.problem


# ------------------------------------------------------------------------------------------------------------ changes


def fault(subject="record:team", check=Check.QUORUM, problem="p", severity=E):
    return finding(check, subject, problem, "r", severity)


def test_findings_of_one_subject_and_check_are_one_the_worst_first():
    given = [
        fault(problem="b", severity=W),
        fault(problem="a"),
        fault(problem="a"),
        fault(check=Check.CEILING, severity=U),
        fault("account:1"),
    ]
    assert [(each.subject, each.severity, each.problem) for each in merged(given)] == [
        ("account:1", E, "p"),
        ("record:team", E, "a; b"),
        ("record:team", U, "p"),
    ]


def test_what_is_new_changed_mended_and_standing():
    stays, worse, gone, new = fault("a"), fault("b", severity=W), fault("c"), fault("d")
    changes = compare([stays, worse, gone], [stays, replace(worse, severity=E), new], ())
    assert (changes.new, [each.subject for each in changes.changed]) == ([new], ["b"])
    assert (changes.mended, changes.standing) == ([gone], [stays])
    assert not compare([stays], [replace(stays, remedy="another way")], ()), "a remedy in other words is not told again"


def test_case_b18_what_could_not_be_read_mends_nothing():
    group, record_, other = fault("record:team/train"), fault("record:team"), fault("record:teams")
    unread = could_not_read("record:team", "the record", "denied", "r")
    changes = compare([group, record_, other], [unread], {"record:team"})
    assert changes.mended == [other]
    assert changes.standing == [group, record_]
    assert compare([unread], [], {"record:team"}).mended == [unread], "the failed read itself is over"


def test_changes_are_told_by_record():
    changes = Changes(new=[fault("record:a/g"), fault("account:1")], mended=[fault("record:b")])
    assert changes.records() == ["a", None, "b"]
    assert changes.about("a").new == [fault("record:a/g")]
    assert not changes.about("a").mended
    assert record_of("account:111122223333/us-east-1") is None


def test_the_mail_says_what_why_and_the_remedy_and_grows_no_longer_than_an_event():
    changes = Changes(new=[fault(f"record:team/g{i}", problem=f"broken {i}") for i in range(MOST_TOLD + 9)])
    detail = change_detail(changes, {"capacity_block_id": "cr-0a1", "region": "us-west-2"}, "team", *HOME)
    assert (detail["environment"], detail["region"], detail["account"]) == ("team", "us-west-2", HOME[0])
    assert len(detail["new"]) == MOST_TOLD
    mail = findings_mail(detail)
    for text in ("team/g0 (quorum)", "broken 0", "No request can ever be approved.", "blockkeeper doctor team"):
        assert text in mail.text
    assert mail.subject == "team: 40 findings"


def test_what_is_mended_is_told_too_and_the_stacks_own_has_no_record():
    detail = change_detail(Changes(mended=[fault("account:1/p5")]), None, None, *HOME)
    assert "environment" not in detail
    mail = findings_mail(detail)
    assert mail.subject == "the stack: 1 finding mended"
    assert "1/p5" in mail.text


def test_a_node_groups_capacity_type_health_and_launches():
    beneath = replace(SETUP, node_group=("ml", "gpu"), tags={"kubernetes.io/cluster/ml": True})
    sound = NodeGroup("ml", "gpu", "us-east-1", beneath=(beneath,))

    def found(node_group):
        return [(each.check, each.severity) for each in look_at_node_group(node_group, [GroupBlock(BLOCK)], SUBJECT)]

    assert found(sound) == []
    assert found(replace(sound, capacity_type="ON_DEMAND")) == [(Check.CAPACITY_TYPE, E)]
    assert found(replace(sound, issues=("AsgInstanceLaunchFailures: no capacity",))) == [(Check.NODE_GROUP_HEALTH, W)]
    assert found(replace(sound, beneath=(replace(beneath, suspended=frozenset({"Launch"})),))) == [
        (Check.SUSPENDED_PROCESSES, E)
    ]
