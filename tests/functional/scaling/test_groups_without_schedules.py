"""EKS managed node groups and compute environments of Batch: scale-groups comes at each boundary itself."""

from datetime import timedelta

import pytest

from local.engine.world import ACCOUNT, REGION

from .conftest import at, problems

GPU = {"eks_cluster": "ml", "eks_nodegroup": "gpu"}
TRAINING = {"batch_compute_environment": "training"}
OWN = "Amazon EKS Node Group Capacity Scaledown Before Reservation End"


def test_a_node_group_follows_its_block_through_start_extension_and_end(live):
    live.block()
    live.node_group()
    live.enrol(groups=[GPU])
    live.world.run_until(at(11, 30, day=3))
    assert (live.eks_sizes(), live.instances("eks-gpu")) == ((0, 1, 0), 0)
    live.world.run_until(at(11, 33, day=3))
    assert (live.eks_sizes(), live.instances("eks-gpu")) == ((0, 4, 4), 4)
    live.world.run_until(at(20, 0, day=3))
    live.market.node_groups.moves_scale_down = True
    live.move_end(at(11, 30, day=5))
    live.world.run_until(at(12, 0))
    assert live.instances("eks-gpu") == 4, "the old end has passed"
    # T - 30 min - EKS's own hook of 30 min - 2 min - 5 min
    live.world.run_until(at(10, 22, day=5))
    assert live.instances("eks-gpu") == 4
    live.world.run_until(at(10, 28, day=5))
    assert (live.eks_sizes(), live.instances("eks-gpu")) == ((0, 1, 0), 0), "case B29: EKS takes no maximum below 1"
    live.world.run_until(at(11, 40, day=5))
    assert "groups_error" not in live.record()
    assert not [call for call in live.market.calls if call.operation == "UpdateAutoScalingGroup"]


def test_a_compute_environment_follows_its_block_through_start_extension_and_end(live):
    live.block()
    live.compute_environment(asked_vcpus=1000)
    live.enrol(groups=[{**TRAINING, "drain_minutes": 60}])
    live.world.run_until(at(11, 30, day=3))
    assert live.vcpus() == (0, 0, 0)
    live.world.run_until(at(11, 33, day=3))
    assert live.vcpus() == (0, 768, 768), "4 instances of 192 vCPUs"
    assert live.instances("training-asg") == 4
    live.world.run_until(at(20, 0, day=3))
    live.move_end(at(11, 30, day=5))
    live.world.run_until(at(12, 0))
    assert live.vcpus()[1] == 768, "the old end has passed"
    live.world.run_until(at(9, 52, day=5))
    assert live.vcpus()[1] == 768
    live.world.run_until(at(9, 55, day=5))
    assert live.vcpus() == (0, 0, 768), "jobs that run go on; nothing new is launched"
    live.market.compute_environments.ask(live.market.compute_environments.by_key[ACCOUNT, REGION, "training"], 0)
    live.world.run_until(at(10, 59, day=5))
    assert live.vcpus() == (0, 0, 0)
    assert live.instances("training-asg") == 0
    live.world.run_until(at(11, 40, day=5))
    assert "groups_error" not in live.record()


def test_case_b08_jobs_that_outlive_the_drain_are_reported_at_the_last_look(live):
    live.block()
    live.compute_environment(asked_vcpus=400)
    live.enrol(groups=[TRAINING])
    live.world.run_until(at(10, 57))
    assert "400 vCPUs are still there" in live.record()["groups_error"]


@pytest.mark.parametrize("group", [GPU, TRAINING])
def test_case_b36_a_block_that_is_late_is_waited_for(live, group):
    live.block(delivered_after_minutes=7)
    live.node_group()
    live.compute_environment(asked_vcpus=768)
    live.enrol(groups=[group])
    live.world.run_until(at(11, 36, day=3))
    assert (live.eks_sizes(), live.vcpus()) == ((0, 1, 0), (0, 0, 0))
    live.world.run_until(at(11, 40, day=3))
    assert live.instances("eks-gpu") + live.instances("training-asg") == 4


@pytest.mark.parametrize("group", [GPU, TRAINING])
def test_case_b10_a_second_run_with_nothing_changed_writes_nothing(story, group):
    story.block()
    story.node_group()
    story.compute_environment()
    story.enrol(groups=[group])
    story.run()
    version = story.record()["version"]
    assert story.run().output["changes"] == []
    assert story.record()["version"] == version
    assert story.writes() == []
    assert story.record()["groups_check_at"] == "2026-05-03T11:30:00Z"


def test_one_update_at_a_time_another_ones_is_waited_for(story):
    story.block()
    story.node_group(max=8)
    story.enrol(groups=[GPU])
    story.world.run_until(at(11, 29, day=3) + timedelta(seconds=30))
    story.eks.update_nodegroup_config(clusterName="ml", nodegroupName="gpu", scalingConfig={"maxSize": 6})
    story.world.run_until(at(11, 30, day=3))
    execution = story.run(until=at(11, 45, day=3))
    story.world.run_until(at(11, 46, day=3))
    assert execution.status == "SUCCEEDED"
    assert story.eks_sizes() == (0, 4, 4)
    refused = [call for call in story.market.calls if call.error == "ResourceInUseException"]
    assert refused == [], "EKS says UPDATING, so nothing is sent"
    assert problems(execution) == []
    assert story.record()["groups_armed"]


def test_an_update_that_comes_first_by_a_hair_is_waited_for(story):
    story.block()
    story.node_group(max=8)
    story.enrol(groups=[GPU])
    story.world.run_until(at(11, 30, day=3))
    node_group = story.market.node_groups.by_key[ACCOUNT, REGION, "ml", "gpu"]
    node_group.update = "somebody-elses"
    story.market.agenda.plan(at(11, 31, day=3), lambda: setattr(node_group, "update", None))
    execution = story.run(until=at(11, 45, day=3))
    story.world.run_until(at(11, 46, day=3))
    assert [call.operation for call in story.market.calls if call.error == "ResourceInUseException"] == [
        "UpdateNodegroupConfig"
    ]
    assert story.eks_sizes() == (0, 4, 4)
    assert execution.status == "SUCCEEDED"


def test_a_change_that_never_ends_is_reported_once_instances_should_long_be_there(live):
    live.block()
    live.node_group()
    live.enrol(groups=[GPU])
    live.world.run_until(at(11, 20, day=3))
    live.market.node_groups.by_key[ACCOUNT, REGION, "ml", "gpu"].update = "somebody-elses"
    live.world.run_until(at(11, 40, day=3))
    assert "groups_error" not in live.record(), "any update takes minutes"
    live.world.run_until(at(11, 48, day=3))
    error = live.record()["groups_error"]
    assert "ml/gpu: its sizes are 0/1/0; since 2026-05-03T11:30:00Z it should have 0/4/4, but" in error
    assert "ResourceInUseException" in error


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    "operation", ["DescribeCapacityReservations", "DescribeComputeEnvironments", "UpdateComputeEnvironment"]
)
def test_a_throttle_of_minutes_at_the_boundary_does_not_leave_the_drain_to_the_next_sweep(live, operation):
    live.block()
    live.compute_environment(asked_vcpus=1000)
    live.enrol(groups=[TRAINING])
    live.world.run_until(at(10, 52))
    assert live.vcpus()[1] == 768
    live.market.faults.add(kind="throttle", operation=operation, times=None)
    live.world.run_until(at(10, 56))
    live.market.faults.clear()
    live.world.run_until(at(10, 58))
    assert live.vcpus()[1] == 0


def test_without_a_watch_a_change_in_progress_is_left_to_the_next_sweep(story):
    story.block()
    story.compute_environment(max_vcpus=192)
    story.enrol(groups=[TRAINING])
    story.world.run_until(at(11, 30, day=3))
    story.batch.update_compute_environment(computeEnvironment="training", computeResources={"maxvCpus": 384})
    execution = story.run()
    (group,) = execution.output["groups"]
    assert group["notes"] == ["Batch shows it as UPDATING"]
    assert "groups_armed" not in story.record()
    story.run()
    story.world.run_for(timedelta(minutes=1))
    assert story.vcpus()[1] == 768
    story.run()
    assert story.record()["groups_armed"]


def test_eks_own_scale_in_that_stays_at_the_old_end_is_reported_and_made_up_for(live):
    live.block()
    live.node_group()
    live.enrol(groups=[GPU])
    live.world.run_until(at(20, 0, day=3))
    live.move_end(at(11, 30, day=5))
    live.world.run_until(at(20, 30, day=3))
    error = live.record()["groups_error"]
    assert "EKS's own scale-in stands at 2026-05-04T10:50:00Z, and the block ends at 2026-05-05T11:30:00Z" in error
    assert list(live.armed("eks-gpu")) == [OWN], "it is left alone"
    live.world.run_until(at(10, 54))
    assert live.instances("eks-gpu") == 0, "EKS empties the node group at the old end"
    live.world.run_until(at(11, 20))
    assert live.instances("eks-gpu") == 4, "and its sizes are set again"


def test_case_b29_a_node_group_that_another_scaler_grows_again_is_emptied_again(live):
    live.block()
    live.node_group()
    live.enrol(groups=[GPU])
    live.world.run_until(at(10, 30))
    assert live.instances("eks-gpu") == 0
    live.eks.update_nodegroup_config(
        clusterName="ml", nodegroupName="gpu", scalingConfig={"maxSize": 2, "desiredSize": 2}
    )
    live.world.run_until(at(10, 45))
    assert (live.eks_sizes(), live.instances("eks-gpu")) == ((0, 1, 0), 0)


def test_case_b31_nothing_is_started_into_a_dying_block(story):
    story.block(start="2026-05-02T11:30:00Z")
    story.node_group()
    story.compute_environment()
    story.enrol(groups=[{**GPU, "instances": 2}, {**TRAINING, "instances": 2}])
    story.world.run_until(at(10, 45))
    story.run()
    assert story.writes() == []


def test_case_b32_a_block_with_a_group_of_each_kind_is_shared_out(live):
    live.block()
    live.group()
    live.node_group()
    live.compute_environment(asked_vcpus=1000)
    live.enrol(
        groups=[
            {"auto_scaling_group": "train", "instances": 1},
            {**GPU, "instances": 2},
            {**TRAINING, "instances": 1},
        ]
    )
    live.world.run_until(at(11, 40, day=3))
    assert [live.instances(name) for name in ("train", "eks-gpu", "training-asg")] == [1, 2, 1]
    live.world.run_until(at(10, 59))
    assert [live.instances(name) for name in ("train", "eks-gpu")] == [0, 0]
    assert live.vcpus()[:2] == (0, 0)


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ({"status": "INVALID"}, "Batch shows it as INVALID"),
        ({"kind": "FARGATE"}, "it is MANAGED on FARGATE; only managed compute environments on EC2"),
    ],
)
def test_what_cannot_follow_a_block_is_said_with_the_remedy(story, entity, words):
    story.block()
    story.compute_environment()
    story.enrol(groups=[TRAINING])
    environment = story.market.compute_environments.by_key[ACCOUNT, REGION, "training"]
    for name, value in entity.items():
        setattr(environment, name, value)
    execution = story.run()
    assert any(words in problem for problem in problems(execution))
    assert "groups_armed" not in story.record()


def test_groups_that_do_not_exist_are_named(story):
    story.block()
    story.enrol(groups=[{**GPU, "instances": 2}, {**TRAINING, "instances": 2}])
    story.node_group("other")
    first, second = problems(story.run())
    assert first.startswith("ml/gpu: DescribeNodegroup: ResourceNotFoundException")
    assert (
        second == "training: is no compute environment of this account and Region (correct batch_compute_environment)"
    )


def test_a_node_group_that_eks_cannot_mend_is_reported(story):
    story.block()
    story.node_group()
    story.enrol(groups=[GPU])
    story.market.node_groups.by_key[ACCOUNT, REGION, "ml", "gpu"].status = "CREATE_FAILED"
    assert any("EKS shows it as CREATE_FAILED" in problem for problem in problems(story.run()))
