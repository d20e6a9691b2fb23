"""The matrix must be able to go red. `python -m tests.mutations` takes each safeguard away; here one, so that CI sees it."""

import shutil

from local.engine.call_faults import Site
from local.engine.sandbox import Sandboxes
from local.engine.world import ROOT
from tests.mutations import mutate

from .scenario import COURSES, Telling
from .troubles import CallTrouble


def test_a_buyer_that_repeats_its_order_is_seen(tmp_path):
    shutil.copytree(ROOT / "functions", tmp_path / "functions")
    mutate(tmp_path, "boto3 repeats the order")
    order = Site("BuyExtension", "ec2", "PurchaseCapacityBlockExtension", 1)
    lost = CallTrouble(order, "error_after", lasting=False)
    wrong = Telling(COURSES["policy"], lost, Sandboxes(tmp_path / "functions")).run()
    assert any(rule.startswith("rule 1") for rule in wrong)
    assert Telling(COURSES["policy"], lost).run() == []
