"""What always holds (docs/architecture.md), read from the outside: EC2's own call log, its blocks and groups, the table, the mails.

Nothing here asks the product's code what it thinks. Matrix and model both check with this.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

PURCHASE = "PurchaseCapacityBlockExtension"
PURCHASE_BLOCK = "PurchaseCapacityBlock"
# The answers after which EC2 may have taken an order; any other code is a refusal.
_PERHAPS_TAKEN = (None, "LostAnswer", "InternalError")
_ALARMED = ("DetectExpiry", "ExtendBlock", "ScaleGroups", "ReplaceBlock")


@dataclass(frozen=True)
class Vote:
    """An answer that a person gave and the table then held: to exactly this question."""

    at: datetime
    approval_id: str
    who: str
    decision: str
    reservation_id: str
    current_end: datetime
    new_end: datetime
    ceiling: Decimal
    dry_run: bool
    """Whether the person was told that no money moves."""
    new_start: datetime | None = None
    """When the new block would start, and where; None when the question was about an extension."""
    zone: str | None = None


def vote_of(story, approval_id, before, at):
    """The votes that the table holds now and did not in `before`, bound to what was asked."""
    item = story.item("approval", approval_id) or {}
    return [
        Vote(
            at,
            approval_id,
            who,
            decision,
            item["reservation_id"],
            instant(item["current_end"]),
            instant(item["new_end"]),
            Decimal(item["ceiling"]),
            item.get("dry_run") is True,
            instant(item["new_start"]) if "new_start" in item else None,
            item.get("availability_zone"),
        )
        for who, decision in item.get("votes", {}).items()
        if who not in (before or {}).get("votes", {})
    ]


@dataclass
class People:
    """What people did and allowed, as they know it themselves."""

    votes: list[Vote] = field(default_factory=list)
    policies: dict[str, dict] = field(default_factory=dict)
    """The records as they are now; each purchase is judged when it is first seen, so look after every change."""
    judged: list = field(default_factory=list)
    """What was allowed when it was bought."""
    used: set = field(default_factory=set)
    """Questions whose yes was used."""
    lies: list = field(default_factory=list)
    """What was published before it was so."""
    by_hand: list = field(default_factory=list)
    """Extensions that somebody bought in the console."""
    before_a_new_block: list = field(default_factory=list)
    """Those of them that were there when nothing new had been bought; times alone do not tell, since a moment has many calls."""
    calls_by_hand: list = field(default_factory=list)

    def watch(self, story):
        """Compare each word on the bus with EC2 at that very moment (rule 3)."""
        publish = story.world.publish

        def watched(event):
            detail = event["detail"]
            if event["detail-type"] == "Extension Confirmed":
                end = story.end(detail["reservation_id"])
                if end <= instant(detail["end_date"]) or (detail.get("end") and instant(detail["end"]) > end):
                    self.lies.append(f"rule 3: {detail['outcome']} with the end {detail.get('end')}; EC2's is {end}")
            publish(event)

        story.world.publish = watched


def instant(text):
    return datetime.fromisoformat(text)


@dataclass(frozen=True)
class Bought:
    """What EC2 took of ours: an extension, or a new block in place of an old one."""

    key: str
    """The id that its ledger entry must have."""
    thing: object
    """EC2's own object."""
    offering_id: str
    fee: Decimal
    at: datetime
    failed: bool
    """Its payment failed."""
    block: str
    end: datetime
    """The block and the end that it was bought for."""
    hours: float
    new_end: datetime
    new_start: datetime | None = None
    zone: str | None = None

    def __str__(self):
        what = "an extension" if self.new_start is None else "a new block"
        return f"{what} for {self.block} and {self.end:%m-%d %H:%M}, bought at {self.at:%m-%d %H:%M} for {self.fee}"


def ours(story, people):
    """Extensions and blocks that EC2 took, and that nobody bought in the console."""
    extensions = (each for each in story.world.market.extensions._bought if not _among(each, people.by_hand))
    return [*map(_extension, extensions), *_new_blocks(story)]


def _by_hand(people):
    return {each.offering_id: each for each in map(_extension, people.by_hand)}


def _extension(each):
    offering = each.offering
    return Bought(
        _key(*_end(offering)), each, offering.offering_id, Decimal(offering.fee), each.purchased,
        each.status == "payment-failed", *_end(offering), offering.hours, offering.end,
    )  # fmt: skip


def _new_blocks(story):
    """By the calls that EC2 took, each with the block that it made."""
    blocks = {}
    for block in story.world.market.blocks.all():
        blocks.setdefault(block.tags.get("blockkeeper:purchase"), []).append(block)
    for key in filter(None, blocks):
        taken = [call for call in _block_orders(story, key) if call.error in _PERHAPS_TAKEN]
        for block in blocks[key]:
            call = next(call for call in taken if call.at == block.created)
            offering = story.world.market.offerings._shown[call.params["CapacityBlockOfferingId"]]
            # As it was sold: it may have been extended since.
            start, sold_until = offering.supply.start, offering.supply.end
            reservation_id, end, _ = key.split("#")
            yield Bought(
                key, block, offering.offering_id, Decimal(offering.fee), block.created, block.state == "payment-failed",
                reservation_id, instant(end), (sold_until - start) / timedelta(hours=1), sold_until, start,
                block.availability_zone,
            )  # fmt: skip


def _block_orders(story, key=None):
    """Live orders of a new block, under one ledger entry's id or under any."""
    for call in story.world.market.calls:
        if call.operation == PURCHASE_BLOCK and not call.params.get("DryRun") and key in (None, _tag(call)):
            yield call


def _tag(call):
    tags = [tag for spec in call.params.get("TagSpecifications", []) for tag in spec["Tags"]]
    return next((tag["Value"] for tag in tags if tag["Key"] == "blockkeeper:purchase"), None)


def broken_rules(story, people, *, live=True, limit=Decimal(50000), final=False, tended=False):
    """Every rule that is broken now, in words.

    `final`: nothing is on its way any more; `tended`: and a person has done what docs/operations.md says.
    """
    return [
        *_bought_once(story, people),
        *_allowed(story, people, live=live, limit=limit),
        *_ledger_and_ec2(story, people, final=final, tended=tended),
        *_budget(story, people, limit=limit, final=final),
        *people.lies,
        *_records(story),
        *_only_the_buyer(story),
        *_repeated_by_step_functions(story),
        *_no_secret(story),
        *(_nothing_left_open(story) if final else ()),
    ]


def _bought_once(story, people):
    """Rule 1: and after an order that EC2 may have taken, none is sent for the same block and end."""
    bought = ours(story, people)
    for key, count in Counter(each.key for each in bought).items():
        if count > 1:
            yield f"rule 1: {key} was bought {count} times"
    yield from _not_both(bought, people)
    yield from _blocks_ordered_once(story)
    offerings = story.world.market.extensions._offerings
    perhaps_taken = set()
    for call in story.world.market.calls:
        if call.operation != PURCHASE or call.params.get("DryRun") or _among(call, people.calls_by_hand):
            continue
        offering = offerings.get(call.params["CapacityBlockExtensionOfferingId"])
        if offering is None:
            continue
        if _end(offering) in perhaps_taken:
            yield f"rule 1: an order for {_end(offering)} was sent again at {call.at:%H:%M}"
        if call.error in _PERHAPS_TAKEN:
            perhaps_taken.add(_end(offering))


def _blocks_ordered_once(story):
    perhaps_taken = set()
    for call in _block_orders(story):
        if _tag(call) is None or _tag(call) in perhaps_taken:
            yield f"rule 1: an order for {_tag(call)} was sent again at {call.at:%H:%M}, or nobody could find it again"
        if call.error in _PERHAPS_TAKEN:
            perhaps_taken.add(_tag(call))


def _not_both(bought, people):
    """No extension and a new block for the same end, but for one that was not paid; somebody may extend by hand afterwards."""
    extensions = [*(each for each in bought if each.new_start is None), *map(_extension, people.by_hand)]
    for block in bought:
        for other in extensions if block.new_start and not block.failed else ():
            same = (other.block, other.end) == (block.block, block.end) and not other.failed
            before = other.at < block.at or _among(other.thing, people.before_a_new_block)
            if same and (before or not _among(other.thing, people.by_hand)):
                yield f"rule 1: {block}, and {other}"


def _allowed(story, people, *, live, limit):
    """Rules 2, 6, 7: a policy allowed it at that moment, people said yes to exactly it, and it fits into the limit."""
    months = Counter()
    for each in ours(story, people):
        if not each.failed:
            months[f"{each.at:%Y-%m}"] += each.fee
        if _among(each.thing, people.judged):
            continue
        policies = [policy for policy in people.policies.values() if policy["capacity_block_id"] == each.block]
        reasons = [_refusal(each, policy, people) for policy in policies]
        if not live:
            yield f"rule 7: {each} in a dry run"
        if None not in reasons:
            yield f"rule 2: {each}: {reasons or 'no record is about the block'}"
        if live and None in reasons:
            people.judged.append(each.thing)
    yield from (f"rule 2: {month} cost {spent}, above {limit}" for month, spent in months.items() if spent > limit)


def _refusal(bought, policy, people):
    rules = policy if bought.new_start is None else policy.get("replace") or {}
    misfit = _misfit(bought, policy, rules)
    if misfit:
        return misfit
    if rules.get("max_upfront_fee") is None or bought.fee > Decimal(rules["max_upfront_fee"]):
        return f"above the ceiling {rules.get('max_upfront_fee')}"
    if policy.get("extend_until") and bought.new_end > instant(policy["extend_until"]):
        return f"past extend_until {policy['extend_until']}"
    if policy.get("require_approval") is False:
        return None
    votes = [
        vote
        for vote in people.votes
        if (vote.reservation_id, vote.current_end, vote.new_end) == (bought.block, bought.end, bought.new_end)
        and (vote.new_start, vote.zone) == (bought.new_start, bought.zone)
        and vote.at <= bought.at
        and bought.fee <= vote.ceiling
        and not vote.dry_run
    ]
    for approval in {vote.approval_id for vote in votes} - people.used:
        here = [vote for vote in votes if vote.approval_id == approval]
        yes = {vote.who for vote in here if vote.decision == "approve"}
        rejected = any(vote.decision == "reject" for vote in here)
        if not rejected and len(yes) >= (policy.get("quorum") or 1):
            people.used.add(approval)
            return None
    return "nobody had said yes to it (or the yes was used before)"


def _misfit(bought, policy, rules):
    nearly = 0 if bought.new_start is None else 23
    hours = [24 * days for days in (policy["extend_by_days"], *(policy.get("fallback_days") or ()))]
    if not any(abs(bought.hours - wanted) <= nearly for wanted in hours):
        return f"{bought.hours} hours were not wanted"
    if bought.new_start and bought.new_start > bought.end + timedelta(hours=rules.get("max_gap_hours", 0)):
        return f"it starts at {bought.new_start}"
    if bought.zone not in rules.get("availability_zones", [bought.zone]):
        return f"it is in {bought.zone}"
    return None


def _ledger_and_ec2(story, people, *, final, tended):
    """Rule 3: an entry says what EC2 shows, and every order of ours has its entry."""
    entries = {entry["id"]: entry for entry in story.items("purchase")}
    # What somebody bought in the console under the very offering that we had ordered cannot be told from our own order.
    taken = _by_hand(people)
    for each in ours(story, people):
        entry = entries.get(each.key)
        if entry is None or entry["state"] in ("INTENT", "REFUSED") or entry["offering_id"] != each.offering_id:
            yield f"ledger: EC2 took {each}, the entry is {entry and (entry['state'], entry['offering_id'])}"
        elif Decimal(entry["upfront_fee"]) != each.fee:
            yield f"ledger: {each}; the entry says {entry['upfront_fee']}"
        elif tended and entry["state"] != "BOUGHT":
            yield f"ledger: EC2 took {each}, and the entry is still {entry['state']}"
        taken[each.offering_id] = each
    for key, entry in entries.items():
        approval = entry.get("approval_id") and story.item("approval", entry["approval_id"])
        if approval and entry["state"] != "REFUSED" and approval.get("used_for") != key:
            yield f"rule 2: {key} used {entry['approval_id']}, which is bound to {approval.get('used_for')}"
        if entry["state"] == "BOUGHT" and entry["offering_id"] not in taken:
            yield f"ledger: {key} is BOUGHT, and EC2 shows nothing of {entry['offering_id']}"
        if final and entry["state"] in ("INTENT", "SENT"):
            yield f"ledger: {key} was left as {entry['state']}"


def _budget(story, people, *, limit, final):
    """What is reserved is what was bought, or may have been; once all is over it is exactly that, whoever died on the way."""
    least, most = Counter(), Counter()
    by_hand, taken = _by_hand(people), {each.offering_id: each for each in ours(story, people)}
    for entry in story.items("purchase"):
        if entry["state"] == "REFUSED":
            continue
        # What is not known may have been bought, whatever became of what somebody bought in the console.
        adopted = by_hand if entry["state"] == "BOUGHT" else {}
        fee, bought = Decimal(entry["upfront_fee"]), (adopted | taken).get(entry["offering_id"])
        spent = Decimal(0) if bought is not None and bought.failed else fee
        for budget in entry["budgets"]:
            most[budget] += spent if final else fee
            least[budget] += spent
    reserved = {item["id"]: Decimal(item.get("reserved", 0)) / 1_000_000 for item in story.items("budget")}
    for budget in {*reserved, *most}:
        held = reserved.get(budget, Decimal(0))
        if not least[budget] <= held <= most[budget]:
            yield f"budget: {budget} has {held} reserved; bought or perhaps bought is {least[budget]} to {most[budget]}"
        if "#" not in budget and held > limit:
            yield f"budget: {budget} has {held} reserved, above {limit}"


def _records(story):
    """Rule 3: no record shows an end that EC2 does not; and a new block has one record of its own."""
    records = story.items("environment")
    for block, count in Counter(record["capacity_block_id"] for record in records).items():
        if count > 1:
            yield f"{block} is enrolled {count} times"
    for record in records:
        end = story.world.market.blocks.get(record["capacity_block_id"], "us-east-1").end
        if record.get("end_time") and record.get("status") == "EXTENDED" and instant(record["end_time"]) > end:
            yield f"rule 3: {record['id']} shows {record['end_time']}, EC2 {end}"


def _only_the_buyer(story):
    callers = {call.caller for call in story.world.calls if call.operation.startswith("Purchase")}
    if callers - {"BuyExtension", "BuyBlock"}:
        yield f"purchases were made by {sorted(callers)}"


def _repeated_by_step_functions(story):
    """The buyer reconciles on each visit of its state; Step Functions must not run it again by itself."""
    for execution in story.world.engine.executions.values():
        calls = Counter()
        for event in execution.history:
            if event.type == "TaskStateEntered":
                calls[event.state] = 0
            elif event.type == "TaskScheduled":
                calls[event.state] += 1
                if calls[event.state] > 1 and event.state.startswith("Buy"):
                    yield f"rule 1: Step Functions repeated {event.state!r}"


def _no_secret(story):
    """Rule 8."""
    secrets = [*story.world.engine._calls, story.world.api_key()]
    secrets += [query["signature"] for _, query in story.links()]
    seen = story.world.logs.getvalue() + json.dumps(story.world.events)
    seen += "".join(each.input_text for each in story.world.engine.executions.values())
    if any(secret in seen for secret in secrets):
        yield "rule 8: a task token, key or link is in a log, an event or an input"


def _nothing_left_open(story):
    for approval in story.items("approval"):
        if approval["status"] == "OPEN":
            yield f"{approval['id']} was left open"
    yield from (f"{marker['id']} was never delivered" for marker in story.items("undelivered"))


def told(story):
    """How somebody heard that something went wrong: alarms that rang, and outcome mails."""
    failed = [
        f"alarm: {name} {execution.error or execution.status}"
        for name in _ALARMED
        if name in story.world.engine.machines
        for execution in story.world.executions(name)
        if execution.status in ("FAILED", "TIMED_OUT")
    ]
    metrics = [name for name in ("PurchaseUnknown", "NeedsAttention") if f'"{name}"' in story.world.logs.getvalue()]
    lost = [f"alarm: LostEvents {function}" for function, _ in story.world.failures]
    bad = [
        event["detail-type"]
        for event in story.world.events
        if event["source"] == "blockkeeper"
        and event["detail-type"] in ("Extension Failed", "Block Expiring", "Replacement Failed")
    ]
    # An outcome that nobody could be mailed rings NeedsAttention or LostEvents.
    mails = bad if len(story.world.mails()) > len(story.links()) else []
    return failed + metrics + lost + mails


def groups_follow(story, group, end, *, at):
    """Rule 5: before EC2 starts to terminate, the group is at zero; None when it is, or when the end is far."""
    if at < end - timedelta(minutes=30):
        return None
    size = story.world.market.groups.get(story.world.market.account_id, "us-east-1", group).size()
    return (
        None
        if size == 0
        else f"rule 5: {group} has {size} instances at {at:%H:%M}; EC2 terminates them from {end:%H:%M} - 30"
    )


def _key(block, end):
    return f"{block}#{end:%Y-%m-%dT%H:%M:%SZ}"


def _end(offering):
    return offering.block.reservation_id, offering.start


def _among(one, many):
    return any(one is each for each in many)
