"""The engine of tests/stories that is the deployed stack: the market's clock stands still and is moved on."""

import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

from waiting import eventually

from local.stack import request

# While a workflow waits: looks of half a second each before the market's clock moves on by a minute.
LOOKS_PER_MINUTE = 3


class OnTheDeployedStack:
    def __init__(self, deployed, outputs=None):
        self.deployed, self.outputs = deployed, outputs or {}
        self.began = deployed.now()
        self.first_day = (self.began + timedelta(days=1)).date()

    def go(self, at):
        self.deployed.jump(at)

    def see(self, what):
        return eventually(what)

    def settle(self, what):
        give_up = self.deployed.now() + timedelta(minutes=30)
        while not any(what() or time.sleep(0.5) for _ in range(LOOKS_PER_MINUTE)):
            assert self.deployed.now() < give_up
            self.deployed.jump(self.deployed.now() + timedelta(minutes=1))

    def client(self, service):
        return self.deployed.aws.client(service)

    def fleet(self, fleet):
        self.deployed.aws.control("POST", "fleet", fleet)

    def block(self, fields):
        self.fleet({"blocks": [fields]})

    def enrol(self, record):
        answer = self.deployed.stack.api("POST", "/", record)
        assert answer.status == 201, answer.body

    def record(self, pk):
        return self.deployed.record(pk)

    def fail_next_payment(self, reservation_id):
        fault = {"kind": "payment_failure", "reservation_id": reservation_id}
        self.deployed.aws.control("POST", "faults", fault)

    def ended(self, reservation_id, machine="ExtendBlock"):
        found = self.deployed.states.list_executions(stateMachineArn=self.deployed.stack.outputs[f"{machine}Arn"])
        ours = [each for each in found["executions"] if each["name"].startswith(reservation_id)]
        return [
            self.deployed.last_state(each)
            for each in sorted(ours, key=lambda each: each["startDate"])
            if each["status"] != "RUNNING"
        ]

    def calls(self):
        return [
            (each["operation"], each["params"], each["error"])
            for each in self.deployed.aws.control("GET", "calls")["calls"]
            if datetime.fromisoformat(each["at"]) >= self.began
        ]

    def questions(self, pk):
        ours = [mail["BodyText"] for mail in self.deployed.stack.mails() if mail["To"] == [f"{pk}@example.com"]]
        return [text for text in ours if "/decide/" in text]

    def approve(self, pk):
        link = re.findall(r"http://\S+/decide/\S+", self.questions(pk)[-1])[0]
        assert request("POST", link, urlencode({"decision": "approve", "reason": "e2e"})).status == 200

    def scale_in_messages(self, group):
        """What the example's own rule has put into its own queue; complete once there is one message for each instance."""
        queue = {"QueueUrl": self.outputs[group]["QueueUrl"], "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}
        messages = self.client("sqs").receive_message(**queue).get("Messages", [])
        return [json.loads(message["Body"])["detail"] for message in messages] if len(messages) == 4 else []

    def doctors_findings(self, pk):
        """What `blockkeeper doctor` finds wrong, without reads that the local AWS does not know."""
        found = json.loads(self.blockkeeper("doctor", pk, "--json").stdout)
        return [f"{each['check']}: {each['problem']}" for each in found if each["severity"] in {"error", "warning"}]

    def blockkeeper(self, *words):
        """Run the command as its user does."""
        command = [str(Path(sys.executable).with_name("blockkeeper")), *words]
        environment = {"PATH": os.environ["PATH"], **self.deployed.aws.environment()}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
