"""The daily look, deployed: a fleet with faults, told once, over days; what cannot be read; and who is told."""

import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from blockkeeper.aws.calls import CALLS
from local.engine.errors import StateError
from local.engine.sandbox import Sandboxes
from local.engine.world import ACCOUNT, REGION, World

NOW = datetime(2026, 5, 1, 8, 0, tzinfo=UTC)
SUBNET = "subnet-0a"
ELSEWHERE = "subnet-0b"


class Story:
    def __init__(self, world: World) -> None:
        self.world, self.market, self.account = world, world.market, world.account
        self.scaling = boto3.client("autoscaling", region_name=REGION)
        self.ec2 = boto3.client("ec2", region_name=REGION)
        self._dynamodb = boto3.client("dynamodb", region_name=REGION)
        (self._table,) = self._dynamodb.list_tables()["TableNames"]
        ses = boto3.client("sesv2", region_name=REGION)
        ses.create_email_identity(EmailIdentity="blockkeeper@example.com")
        zones = {SUBNET: "us-east-1a", ELSEWHERE: "us-east-1b"}
        subnets = [
            {"subnet_id": name, "vpc_id": "vpc-0a", "region": REGION, "availability_zone": zone}
            for name, zone in zones.items()
        ]
        self.market.load_fleet({"subnets": subnets})

    def block(self, reservation_id="cr-0a1", **fields):
        block = {
            "reservation_id": reservation_id,
            "region": REGION,
            "instance_type": "p5.48xlarge",
            "instance_count": 4,
            "availability_zone": "us-east-1a",
            "start": "2026-04-27T11:30:00Z",
            "end": "2026-05-20T11:30:00Z",
            "hourly_rate": "41.528",
        }
        self.market.load_fleet({"blocks": [block | fields]})

    def group(self, name="train", **fields):
        group = {
            "name": name,
            "region": REGION,
            "availability_zone": "us-east-1a",
            "reservation_id": "cr-0a1",
            "subnets": [SUBNET],
            "min": 0,
            "max": 4,
            "desired": 4,
        }
        given = {name: value for name, value in (group | fields).items() if value is not None}
        self.market.load_fleet({"groups": [given]})

    def compute_environment(self, name="training", **fields):
        environment = {
            "name": name,
            "region": REGION,
            "availability_zone": "us-east-1a",
            "reservation_id": "cr-0a1",
            "instance_type": "p5.48xlarge",
            "subnets": [SUBNET],
            "min_vcpus": 0,
            "max_vcpus": 768,
        }
        self.market.load_fleet({"compute_environments": [environment | fields]})
        return self.market.compute_environments.by_key[ACCOUNT, REGION, name]

    def enrol(self, pk="team", **fields):
        record = {
            "name": pk,
            "capacity_block_id": "cr-0a1",
            "region": REGION,
            "instance_type": "p5.48xlarge",
            "extend_by_days": 1,
            "extension_lookahead_days": 1,
            "require_approval": True,
            "approvers": ["ann@example.com"],
            "max_upfront_fee": "12000",
            "groups": [{"auto_scaling_group": "train"}],
            "version": 1,
        }
        item = {"kind": "environment", "id": pk, **record, **fields}
        typed = {name: TypeSerializer().serialize(value) for name, value in item.items() if value is not None}
        self._dynamodb.put_item(TableName=self._table, Item=typed)

    def leave(self, pk="team"):
        self._dynamodb.delete_item(TableName=self._table, Key={"kind": {"S": "environment"}, "id": {"S": pk}})

    def stored(self):
        """Subject and check of what stands in the table."""
        found = self._dynamodb.query(
            TableName=self._table,
            KeyConditionExpression="kind = :kind",
            ExpressionAttributeValues={":kind": {"S": "finding"}},
        )
        items = [{k: TypeDeserializer().deserialize(v) for k, v in item.items()} for item in found["Items"]]
        return {(item["subject"], item["check"]) for item in items}

    def look(self, day=0):
        at = NOW + timedelta(days=day)
        return self.world.invoke("Doctor", {"time": f"{at:%Y-%m-%dT%H:%M:%SZ}"})

    def told(self):
        """What the events since the last call were about: record, and the checks that are new, changed and mended."""
        events = [event["detail"] for event in self.world.events if event["detail-type"] == "Findings Changed"]
        self.world.events.clear()
        return {
            event.get("environment"): {
                part: [each["check"] for each in event[part]] for part in ("new", "changed", "mended") if event[part]
            }
            for event in events
        }

    def mails(self):
        self.world.run_until_idle()
        return [(mail.subject, mail.destinations["ToAddresses"]) for mail in self.world.mails()]


@pytest.fixture(scope="module")
def sandboxes():
    return Sandboxes()


def a_story(sandboxes, **parameters):
    wanted = {"MonthlyLimit": "0", "SenderEmail": "blockkeeper@example.com", "ApproverEmails": "ops@example.com"}
    return World(NOW, parameters=wanted | parameters, schedules=False, sandboxes=sandboxes)


@pytest.fixture
def story(sandboxes):
    with a_story(sandboxes) as world:
        yield Story(world)


@pytest.fixture
def sound(story):
    """A block, its group and its record, with nothing wrong."""
    story.block()
    story.group()
    story.enrol()
    return story


def test_where_all_is_well_nothing_is_found_and_nobody_told(sound):
    answer = sound.look()
    assert answer == {
        "found": {"error": 0, "warning": 0, "unknown": 0, "note": 0},
        "new": 0,
        "changed": 0,
        "mended": 0,
        "unread": [],
    }
    assert sound.told() == {}
    assert sound.stored() == set()
    assert sound.mails() == []


def break_everything(story):
    """A fleet whose faults would all show only when the block starts or ends."""
    story.block()
    story.group(
        subnets=[SUBNET, ELSEWHERE],
        desired=6,
        max=6,
        tags={"kubernetes.io/cluster/ml": "owned"},
        protects_new_instances=True,
        suspended_processes=["ScheduledActions", "AZRebalance"],
    )
    story.ec2.create_launch_template_version(
        LaunchTemplateName="train",
        LaunchTemplateData={
            "InstanceType": "p5.4xlarge",
            "ImageId": "ami-0b",
            "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-0ff"}},
        },
    )
    story.market.catalogue.platforms["ami-0b"] = "Windows"
    template = {"LaunchTemplateName": "train", "Version": "$Latest"}
    story.scaling.update_auto_scaling_group(AutoScalingGroupName="train", LaunchTemplate=template)
    story.enrol(
        approvers=["ann@example.com"],
        quorum=2,
        extend_until="2026-04-01T00:00:00Z",
        groups=[{"auto_scaling_group": "train", "drain_minutes": 20}, {"auto_scaling_group": "gone", "instances": 1}],
    )
    story.account.production = False
    story.account.quotas["L-DA6814F2"] = None


BROKEN = {
    ("record:team", "quorum"),
    ("record:team", "extend-until"),
    ("record:team", "approver"),
    ("record:team", "group-size"),
    ("record:team/gone", "group-missing"),
    ("record:team/train", "group-size"),
    ("record:team/train", "instance-type"),
    ("record:team/train", "lifecycle-hook"),
    ("record:team/train", "market-type"),
    ("record:team/train", "platform"),
    ("record:team/train", "reservation-target"),
    ("record:team/train", "scale-in-protection"),
    ("record:team/train", "subnet-zone"),
    ("record:team/train", "suspended-processes"),
    ("record:team/train", "template-version"),
    ("record:team/train", "termination-handler"),
    (f"account:{ACCOUNT}/{REGION}/p5", "quota"),
}


def test_case_b36_each_fault_is_found_days_before_and_told_once(story):
    break_everything(story)
    story.look()
    assert story.stored() == BROKEN
    told = story.told()
    assert sorted(told["team"]["new"]) == sorted(check for subject, check in BROKEN if subject.startswith("record:"))
    assert told[None] == {"new": ["quota"]}
    assert sorted(story.mails()) == [
        ("team: 16 findings", ["ann@example.com"]),
        ("the stack: 1 finding", ["ops@example.com"]),
    ]
    for day in (1, 2, 3):
        assert story.look(day)["new"] == 0
    assert story.told() == {}
    assert len(story.mails()) == 2, "nothing is told twice"


def test_what_is_mended_and_what_has_changed_is_told_and_nothing_else(story):
    break_everything(story)
    story.look()
    story.told()
    story.ec2.create_launch_template_version(
        LaunchTemplateName="train",
        SourceVersion="2",
        LaunchTemplateData={"InstanceMarketOptions": {"MarketType": "capacity-block"}, "InstanceType": "p5.48xlarge"},
    )
    story.scaling.update_auto_scaling_group(AutoScalingGroupName="train", VPCZoneIdentifier=ELSEWHERE)
    story.look(1)
    assert story.told() == {"team": {"changed": ["subnet-zone"], "mended": ["instance-type", "market-type"]}}
    assert story.stored() == BROKEN - {("record:team/train", "instance-type"), ("record:team/train", "market-type")}


def test_what_went_with_its_record_is_mended(story):
    break_everything(story)
    story.look()
    story.told()
    story.leave()
    story.look(1)
    assert set(story.told()["team"]) == {"mended"}
    assert story.stored() == set()


P5 = f"account:{ACCOUNT}/{REGION}/p5"
TRAIN, GONE = "record:team/train", "record:team/gone"


@pytest.mark.parametrize(
    ("operation", "unread"),
    [
        ("DescribeCapacityReservations", {f"account:{ACCOUNT}/{REGION}", "record:team"}),
        ("DescribeCapacityBlockExtensionHistory", {"record:team"}),
        ("DescribeAutoScalingGroups", {TRAIN, GONE}),
        ("DescribeLifecycleHooks", {TRAIN}),
        ("DescribeLaunchTemplateVersions", {TRAIN}),
        ("DescribeSubnets", {TRAIN}),
        ("DescribeImages", {TRAIN}),
        ("DescribeInstanceTypes", {P5}),
        ("GetServiceQuota", {P5}),
        ("GetAccount", {"stack"}),
        ("SimulatePrincipalPolicy", {f"account:{ACCOUNT}"}),
    ],
)
def test_case_b18_a_denied_read_is_a_finding_and_mends_nothing(story, operation, unread):
    break_everything(story)
    story.look()
    before = story.stored()
    story.told()
    story.market.faults.add(kind="denied", operation=operation, times=None)
    story.account.denied.add(operation)
    story.look(1)
    # All that was found before stands: neither mended for want of a look, nor forgotten.
    assert story.stored() == before | {(subject, "could-not-read") for subject in unread}
    assert "mended" not in json.dumps([list(parts) for parts in story.told().values()])
    story.market.faults.clear()
    story.account.denied.clear()
    story.look(2)
    assert story.stored() == before


def test_case_b18_one_region_that_cannot_be_read_leaves_the_other_looked_at(sandboxes):
    with a_story(sandboxes, Targets=f"{ACCOUNT}:us-east-1,{ACCOUNT}:us-west-2") as world:
        story = Story(world)
        story.block()
        story.group(suspended_processes=["Launch"])
        story.enrol()
        story.block("cr-0b2", region="us-west-2", availability_zone="us-west-2a")
        story.enrol("west", region="us-west-2", capacity_block_id="cr-0b2", groups=[])
        story.market.faults.add(kind="denied", operation="DescribeCapacityReservations", region="us-west-2", times=None)
        answer = story.look()
        assert story.stored() == {
            ("record:team/train", "suspended-processes"),
            (f"account:{ACCOUNT}/us-west-2", "could-not-read"),
            ("record:west", "could-not-read"),
        }
        assert answer["unread"] == [f"account:{ACCOUNT}/us-west-2", "record:west"]


def test_case_b18_a_broken_record_leaves_the_others_looked_at(sound):
    sound.enrol("odd", extend_by_days="soon")
    sound.enrol("odder", capacity_block_id=None)
    sound.look()
    assert sound.stored() == {("record:odd", "could-not-read"), ("record:odder", "could-not-read")}


def test_an_account_whose_role_cannot_be_assumed_is_found_and_the_others_looked_at(sandboxes):
    with a_story(sandboxes, Targets=f"{ACCOUNT}:us-east-1,444455556666:us-east-1") as world:
        story = Story(world)
        story.block()
        story.group()
        story.enrol()

        def refuse(**_):
            answer = {"Error": {"Code": "AccessDenied", "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
            from botocore.awsrequest import AWSResponse

            return AWSResponse("", 403, {}, None), answer

        world._session.get_component("event_emitter").register("before-call.sts.AssumeRole", refuse)
        sandboxes.cold("Doctor")
        story.look()
        sandboxes.cold("Doctor")
        assert story.stored() == {("account:444455556666", "member-role")}


def test_another_account_is_looked_at_by_its_role_and_its_buyer_asked_about(sandboxes):
    with a_story(sandboxes, Targets=f"{ACCOUNT}:us-east-1,444455556666:us-east-1") as world:
        story = Story(world)
        story.block(owner_id="444455556666", shared_with=[])
        story.market.load_fleet(
            {
                "groups": [
                    {
                        "name": "train",
                        "owner_id": "444455556666",
                        "region": REGION,
                        "availability_zone": "us-east-1b",
                        "reservation_id": "cr-0a1",
                        "min": 0,
                        "max": 4,
                        "desired": 4,
                    }
                ]
            }
        )
        story.enrol()
        buyer = "arn:aws:iam::444455556666:role/BlockkeeperMember-buyer"
        allowed = story.account.may
        story.account.may = lambda role: {"ec2:DescribeCapacityReservations"} if role == buyer else allowed(role)
        story.look()
        assert story.stored() == {
            ("record:team/train", "subnet-zone"),
            ("account:444455556666", "purchase-permission"),
        }


def test_the_buyer_of_new_blocks_is_asked_about_when_a_record_wants_one(sound):
    allowed = sound.account.may
    sound.account.may = lambda role: set(allowed(role) or ()) - {"ec2:PurchaseCapacityBlock"}
    sound.look()
    assert sound.stored() == set()
    sound.enrol(replace={"max_gap_hours": 24, "max_upfront_fee": "50000"})
    sound.look()
    assert sound.stored() == {(f"account:{ACCOUNT}/new-blocks", "purchase-permission")}


def test_a_policy_of_the_organization_that_forbids_to_purchase_is_found_without_a_purchase(sound):
    sound.account.by_organization = False
    sound.look()
    assert sound.stored() == {(f"account:{ACCOUNT}", "purchase-permission")}
    assert not [call for call in sound.market.calls if "Purchase" in call.operation]


def test_a_record_that_no_target_reaches_is_found_by_the_doctor_and_by_each_full_sweep(sound):
    sound.enrol("far", region="ap-south-1", groups=[])
    sound.look()
    assert sound.stored() == {("record:far", "not-in-targets")}
    sound.world.invoke("ListTargets", {"input": {}, "now": "2026-05-01T08:00:00Z"})
    logs = sound.world.logs.getvalue()
    assert '"NotInTargets":[1.0]' in logs
    assert "never swept" in logs


def test_a_record_of_an_account_that_was_dropped_from_targets_is_told_though_another_is_in_its_region(sound):
    sound.enrol("theirs", capacity_block_id="cr-0b2", owner_id="222233334444", groups=[])
    sound.look()
    assert sound.stored() == {("record:theirs", "not-in-targets")}
    (told,) = [event["detail"]["new"] for event in sound.world.events if event["detail-type"] == "Findings Changed"]
    assert told[0]["remedy"].endswith(":us-east-1,222233334444:us-east-1`")
    sound.world.invoke("ListTargets", {"input": {}, "now": "2026-05-01T08:00:00Z"})
    assert '"NotInTargets":[1.0]' in sound.world.logs.getvalue()


def test_a_compute_environment_is_looked_at_by_the_stack(story):
    story.block()
    story.compute_environment()
    story.enrol(groups=[{"batch_compute_environment": "training"}])
    assert story.look()["unread"] == []
    assert story.stored() == set()


@pytest.mark.parametrize(
    ("made", "changed", "checks"),
    [
        ({}, {"status": "INVALID"}, {"compute-environment"}),
        ({}, {"kind": "FARGATE"}, {"compute-environment"}),
        ({}, {"kind": "SPOT"}, {"compute-environment"}),
        ({"reservation_id": None}, {}, {"market-type", "reservation-target"}),
        ({"instance_type": "p4d.24xlarge"}, {}, {"instance-type"}),
        ({"subnets": [ELSEWHERE]}, {}, {"subnet-zone"}),
    ],
    ids=["invalid", "Fargate", "Spot", "no block", "another type", "another zone"],
)
def test_what_keeps_batch_from_launching_into_the_block_is_found_with_its_command(story, made, changed, checks):
    story.block()
    fields = {name: value for name, value in made.items() if value is not None}
    environment = story.compute_environment(**fields)
    if "reservation_id" in made:
        plain = {"InstanceType": "p5.48xlarge"}
        story.ec2.create_launch_template_version(LaunchTemplateName="training-asg", LaunchTemplateData=plain)
        environment.group.settings["LaunchTemplate"]["Version"] = "2"
    for name, value in changed.items():
        setattr(environment, name, value)
    story.enrol(groups=[{"batch_compute_environment": "training"}])
    story.look()
    assert story.stored() == {("record:team/training", check) for check in checks}
    (told,) = [event["detail"]["new"] for event in story.world.events if event["detail-type"] == "Findings Changed"]
    for each in told:
        assert each["remedy"].count("`") % 2 == 0
        assert "autoscaling" not in each["remedy"]


def test_a_compute_environment_that_is_nowhere_is_missing(story):
    story.block()
    story.enrol(groups=[{"batch_compute_environment": "trianing"}])
    story.look()
    assert story.stored() == {("record:team/trianing", "group-missing")}


def test_a_note_is_counted_and_nobody_is_told(sandboxes):
    with a_story(sandboxes, TeamLimits="vision=1000,speech=1000") as world:
        story = Story(world)
        story.block()
        story.group()
        story.enrol(team="visoin")
        answer = story.look()
        assert (answer["found"]["note"], answer["new"]) == (1, 0)
        assert (story.told(), story.stored(), story.mails()) == ({}, set(), [])


def test_two_records_on_one_block_are_worse_when_they_share_a_group(sound):
    sound.enrol("twin", groups=[])
    sound.look()
    assert sound.stored() == {("record:team", "two-records"), ("record:twin", "two-records")}
    assert sound.told()["twin"] == {"new": ["two-records"]}
    sound.enrol("twin")
    sound.look(1)
    assert sound.told() == {"team": {"changed": ["two-records"]}, "twin": {"changed": ["two-records"]}}


def test_the_ceiling_is_held_against_what_the_last_extension_cost(sound):
    offers = sound.ec2.describe_capacity_block_extension_offerings(
        CapacityReservationId="cr-0a1", CapacityBlockExtensionDurationHours=24
    )["CapacityBlockExtensionOfferings"]
    sound.ec2.purchase_capacity_block_extension(
        CapacityReservationId="cr-0a1",
        CapacityBlockExtensionOfferingId=offers[0]["CapacityBlockExtensionOfferingId"],
    )
    sound.look()
    assert sound.stored() == set()
    sound.enrol(extend_by_days=14)
    sound.look(1)
    assert sound.stored() == {("record:team", "ceiling")}


def test_kubernetes_nodes_need_a_hook_a_tag_and_a_rule_with_a_queue(sound):
    sound.scaling.create_or_update_tags(
        Tags=[{"ResourceId": "train", "ResourceType": "auto-scaling-group", "Key": key, "Value": "", "PropagateAtLaunch": True}
              for key in ("kubernetes.io/cluster/ml", "aws-node-termination-handler/managed")]
    )  # fmt: skip
    sound.scaling.put_lifecycle_hook(
        AutoScalingGroupName="train",
        LifecycleHookName="drain",
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=300,
    )
    sound.look()
    assert sound.stored() == {("record:team/train", "termination-handler")}
    events, queue = boto3.client("events", region_name=REGION), f"arn:aws:sqs:{REGION}:{ACCOUNT}:nodes"
    pattern = {"source": ["aws.autoscaling"], "detail-type": ["EC2 Instance-terminate Lifecycle Action"]}
    events.put_rule(Name="other", EventPattern=json.dumps({"source": ["aws.ec2"]}))
    events.put_rule(Name="hourly", ScheduleExpression="rate(1 hour)")
    events.put_rule(Name="drain", EventPattern=json.dumps(pattern), State="DISABLED")
    events.put_targets(Rule="drain", Targets=[{"Id": "1", "Arn": queue}])
    sound.look(1)
    assert sound.stored() == {("record:team/train", "termination-handler")}
    events.enable_rule(Name="drain")
    sound.look(2)
    assert sound.told()["team"] == {"changed": ["termination-handler"]}, "the rule is there, its queue is not"
    boto3.client("sqs", region_name=REGION).create_queue(QueueName="nodes")
    sound.look(3)
    assert sound.stored() == set()


def test_a_resource_group_that_holds_the_block_is_a_target_as_good_as_its_id(sound):
    arn = f"arn:aws:resource-groups:{REGION}:{ACCOUNT}:group/blocks"
    sound.account.resource_groups[arn] = []
    target = {"CapacityReservationTarget": {"CapacityReservationResourceGroupArn": arn}}
    sound.ec2.create_launch_template_version(
        LaunchTemplateName="train", SourceVersion="1", LaunchTemplateData={"CapacityReservationSpecification": target}
    )
    template = {"LaunchTemplateName": "train", "Version": "2"}
    sound.scaling.update_auto_scaling_group(AutoScalingGroupName="train", LaunchTemplate=template)
    sound.look()
    assert sound.stored() == {("record:team/train", "reservation-target")}
    sound.account.resource_groups[arn] = [f"arn:aws:ec2:{REGION}:{ACCOUNT}:capacity-reservation/cr-0a1"]
    sound.look(1)
    assert sound.stored() == set()


def test_approvers_that_mail_does_not_reach_are_found(sound):
    sound.account.suppressed["ann@example.com"] = "BOUNCE"
    sound.enrol(approvers=["ann@example.com", "U024BE7LH", "jo@example.com"])
    sound.look()
    (detail,) = [event["detail"] for event in sound.world.events if event["detail-type"] == "Findings Changed"]
    (finding,) = detail["new"]
    assert (finding["check"], finding["severity"]) == ("approver", "warning"), "jo alone is enough"
    assert "ann@example.com: on the suppression list" in finding["problem"]
    assert "ann@example.com" not in sound.world.logs.getvalue(), "case B41"
    sound.enrol(approvers=["ann@example.com"])
    sound.look(1)
    assert sound.told()["team"] == {"changed": ["approver"]}


def test_a_stack_without_a_sender_is_found(sandboxes):
    with a_story(sandboxes, SenderEmail="") as world:
        story = Story(world)
        story.block()
        story.group()
        story.enrol()
        story.look()
        assert story.stored() == {("stack", "sender")}


SLACK = {"SlackSecretName": "blockkeeper/slack", "SlackChannel": "C0000000001"}


def test_slack_is_fine_when_its_secret_can_be_read_and_is_complete(sandboxes):
    sandboxes.cold("Doctor")
    with a_story(sandboxes, **SLACK) as world:
        story = Story(world)
        story.block()
        story.group()
        story.enrol(approvers=["U024BE7LH"])
        story.look()
        assert story.stored() == set()


@pytest.mark.parametrize(
    ("parameters", "secret", "says"),
    [
        (SLACK | {"SlackChannel": ""}, None, "SlackChannel is not set"),
        (SLACK, '{"bot_token": "xoxp-1", "signing_secret": "0123456789abcdef"}', "must be"),
        (SLACK, None, "ResourceNotFoundException"),
    ],
)
def test_a_slack_that_will_not_do_is_found_and_its_approvers_with_it(sandboxes, parameters, secret, says):
    sandboxes.cold("Doctor")
    with a_story(sandboxes, **parameters) as world:
        story = Story(world)
        secrets = boto3.client("secretsmanager", region_name=REGION)
        if secret is not None:
            secrets.put_secret_value(SecretId="blockkeeper/slack", SecretString=secret)
        elif parameters == SLACK:
            secrets.delete_secret(SecretId="blockkeeper/slack", ForceDeleteWithoutRecovery=True)
        story.block()
        story.group()
        story.enrol(approvers=["U024BE7LH"])
        story.look()
        sandboxes.cold("Doctor")
        assert story.stored() == {("stack", "slack"), ("record:team", "approver")}
        (event,) = [
            each["detail"]
            for each in world.events
            if each.get("detail", {}).get("new") and "environment" not in each["detail"]
        ]
        assert says in event["new"][0]["problem"]
        assert "xoxp-1" not in json.dumps(world.events) + world.logs.getvalue(), "case B41"


def test_after_a_crash_between_telling_and_writing_it_is_told_again_never_not_at_all(sound):
    sound.enrol(quorum=2)
    emitter = sound.world._session.get_component("event_emitter")

    def crash(params, **_):
        if b"finding" in str(params["body"]).encode():
            raise ConnectionError("the table is away")

    emitter.register_first("before-call.dynamodb.PutItem", crash)
    with pytest.raises(StateError):
        sound.look()
    emitter.unregister("before-call.dynamodb.PutItem", crash)
    sound.look()
    assert [e["detail-type"] for e in sound.world.events].count("Findings Changed") == 2
    sound.look(1)
    assert [e["detail-type"] for e in sound.world.events].count("Findings Changed") == 2


def test_case_b40_a_call_that_boto3_does_not_know_is_found_before_it_is_made(sound, monkeypatch):
    sound.look()
    loader = boto3._get_default_session()._session.get_component("data_loader")
    load = loader.load_service_model

    def older(service, kind, *args):
        model = load(service, kind, *args)
        if service != "ec2":
            return model
        gone = "PurchaseCapacityBlockExtension"
        return {**model, "operations": {name: each for name, each in model["operations"].items() if name != gone}}

    monkeypatch.setattr(loader, "load_service_model", older)
    sound.look(1)
    assert sound.stored() == {("stack", "sdk")}
    assert "PurchaseCapacityBlockExtension" in CALLS["ec2"]


def test_it_runs_daily_by_itself(sandboxes):
    parameters = {"MonthlyLimit": "0", "SenderEmail": "blockkeeper@example.com", "ScheduleExpression": "rate(7 days)"}
    with World(NOW, parameters=parameters, sandboxes=sandboxes) as world:
        story = Story(world)
        story.block()
        story.group(suspended_processes=["Launch"])
        story.enrol()
        world.run_until(NOW + timedelta(days=3, hours=1))
        assert story.told() == {"team": {"new": ["suspended-processes"]}}
        assert sum(call.caller == "Doctor" and call.operation == "DescribeSubnets" for call in world.calls) == 3


class TestManagedNodeGroup:
    @pytest.fixture
    def nodes(self, story):
        """A node group in EKS, and the Auto Scaling group beneath it in the market."""
        eks = boto3.client("eks", region_name=REGION)
        role = f"arn:aws:iam::{ACCOUNT}:role/eks"
        eks.create_cluster(name="ml", roleArn=role, resourcesVpcConfig={"subnetIds": [SUBNET]})
        story.eks = eks
        story.block()
        story.enrol(groups=[{"eks_cluster": "ml", "eks_nodegroup": "gpu"}])
        return story

    def make(self, story, capacity_type="CAPACITY_BLOCK", **fields):
        made = story.eks.create_nodegroup(
            clusterName="ml",
            nodegroupName="gpu",
            capacityType=capacity_type,
            subnets=[SUBNET],
            nodeRole=f"arn:aws:iam::{ACCOUNT}:role/node",
        )["nodegroup"]
        (beneath,) = made["resources"]["autoScalingGroups"]
        # Tagged as EKS tags it; its own hook drains, so that no handler is needed.
        story.group(beneath["name"], tags={"kubernetes.io/cluster/ml": "owned", "eks:nodegroup-name": "gpu"}, **fields)

    def test_one_that_is_sound_has_no_findings(self, nodes):
        self.make(nodes)
        nodes.look()
        assert nodes.stored() == set()

    def test_its_capacity_type_and_what_it_launches_by_are_looked_at(self, nodes):
        self.make(nodes, "ON_DEMAND", reservation_id=None, subnets=[ELSEWHERE])
        nodes.look()
        checks = {"capacity-type", "market-type", "reservation-target", "instance-type", "subnet-zone"}
        assert nodes.stored() == {("record:team/ml/gpu", check) for check in checks}
        (event,) = [event["detail"] for event in nodes.world.events if event["detail-type"] == "Findings Changed"]
        remedies = {finding["check"]: finding["remedy"] for finding in event["new"]}
        assert "aws eks update-nodegroup-version --region us-east-1 --cluster-name ml" in remedies["market-type"]
        assert "EKS changes no subnets" in remedies["subnet-zone"]
        assert "update-auto-scaling-group" not in str(remedies)

    def test_one_that_does_not_exist_is_found(self, nodes):
        nodes.look()
        assert nodes.stored() == {("record:team/ml/gpu", "group-missing")}


def test_a_group_is_not_called_missing_while_an_account_that_may_have_it_is_not_read(sandboxes):
    with a_story(sandboxes, Targets=f"{ACCOUNT}:us-east-1,444455556666:us-east-1") as world:
        story = Story(world)
        story.block(owner_id="444455556666", shared_with=[ACCOUNT])
        story.enrol()
        story.market.faults.add(
            kind="denied", operation="DescribeCapacityReservations", account="444455556666", times=None
        )
        story.account.may = lambda _: {"ec2:PurchaseCapacityBlockExtension"}
        story.look()
        assert story.stored() == {
            ("account:444455556666/us-east-1", "could-not-read"),
            ("record:team/train", "could-not-read"),
        }
        story.market.faults.clear()
        story.look(1)
        assert story.stored() == {("record:team/train", "group-missing")}


def test_an_account_without_the_buyers_role_is_found(sandboxes):
    with a_story(sandboxes, Targets=f"{ACCOUNT}:us-east-1,444455556666:us-east-1") as world:
        story = Story(world)
        story.look()
        assert story.stored() == {("account:444455556666", "purchase-permission")}
