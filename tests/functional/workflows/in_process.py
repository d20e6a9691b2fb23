"""The engine of tests/stories that is one process: the whole stack on a virtual clock."""

import json
from datetime import date, timedelta

import boto3

from .conftest import Story


class InProcess:
    first_day = date(2026, 5, 1)

    def __init__(self, world):
        self.world, self.story = world, Story(world)

    def go(self, at):
        self.world.run_until(at)

    def see(self, what):
        answer = what()
        assert answer
        return answer

    def settle(self, what):
        give_up = self.world.now() + timedelta(minutes=30)
        while not what():
            assert self.world.now() < give_up
            self.world.run_for(timedelta(minutes=1))

    def client(self, service):
        return boto3.client(service, region_name="us-east-1")

    def fleet(self, fleet):
        self.world.market.load_fleet(fleet)

    def block(self, fields):
        self.fleet({"blocks": [fields]})

    def enrol(self, record):
        headers = {"x-api-key": self.world.api_key(), "content-type": "application/json"}
        answer = self.world.request("POST", "/", body=json.dumps(record), headers=headers)
        assert answer.status == 201, answer.body

    def record(self, pk):
        return self.story.record(pk)

    def fail_next_payment(self, reservation_id):
        self.world.market.faults.add(kind="payment_failure", reservation_id=reservation_id)

    def ended(self, reservation_id, machine="ExtendBlock"):
        return [
            each.path[-1]
            for each in self.world.executions(machine)
            if each.name.startswith(reservation_id) and each.status != "RUNNING"
        ]

    def calls(self):
        return [(call.operation, call.params, call.error) for call in self.world.market.calls]

    def questions(self, _pk):
        return [mail.body for mail in self.world.mails() if "/decide/" in mail.body]

    def approve(self, _pk):
        assert self.story.answer("approve").status == 200
        self.world.run_for(timedelta(0))

    def scale_in_messages(self, group):
        return [
            event["detail"]
            for event in self.world.events
            if event["detail-type"] == "EC2 Instance-terminate Lifecycle Action"
            and event["detail"]["AutoScalingGroupName"] == group
        ]
