"""search-offerings: what extension does EC2 offer now, and is it what was approved?"""

from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper.aws import ec2, rate, table
from blockkeeper.aws.environments import load_environment
from blockkeeper.domain.environment import Environment
from blockkeeper.domain.instants import format_instant, parse_instant
from blockkeeper.domain.offering import Found, Offering, choose_offering, lengths
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.purchase_policy import approval_refusal, missing_policy, past_extend_until
from blockkeeper.domain.quotas import family, maybe_zero_quota, zero_quota
from blockkeeper.domain.rate import throttle_pause
from blockkeeper.telemetry import handler, log

OPERATION = "DescribeCapacityBlockExtensionOfferings"
# botocore tries the first again by itself, some seconds long, and does not know the second for a throttle.
_THROTTLES = frozenset({"RequestLimitExceeded", "CapacityBlockDescribeLimitExceeded"})
_CHANGED, _WAIT = "changed", "wait"
_DECIDED = (Found.OFFERED, _CHANGED)
_BEGINNING: dict[str, Any] = {"searched": [], "first": None, "turn": False, "throttled": 0}


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer ``{found, reason, offering}``.

    `found` is a value of `Found`, ``not_allowed``, ``changed``: not what was approved, or ``wait``: ask again with `search` after
    `wait_seconds`, since EC2 allows a search every seven seconds.

    Args:
        event: ``{"block": <input of extend-block>, "approval_id": str | None, "search": <from a wait> | None, "now": ISO}``.
            With an approval the offering must be the one that was approved, or a cheaper one to the same end; anything else is
            asked again (case B11).
    """
    block = event["block"]
    environment = load_environment(block["environment"])
    if environment is None:
        return _answer(Outcome.NOT_ALLOWED, f"{block['environment']} is not enrolled any more")
    lacking = missing_policy(environment)
    if lacking:
        return _answer(Outcome.NOT_ALLOWED, lacking)
    approval = table.get_item("approval", event["approval_id"]) if event.get("approval_id") else None
    return _search_in_turn(environment, event, approval)


def _search_in_turn(environment: Environment, event: dict[str, Any], approval: dict[str, Any] | None) -> dict[str, Any]:
    """The first length that is to be had, or the word on the first one: that is the one that is wanted."""
    search, block, now = dict(event["search"] or _BEGINNING), event["block"], parse_instant(event["now"])
    for hours in lengths(environment, None if approval is None else approval["duration_hours"]):
        if hours in search["searched"]:
            continue
        if not search["turn"] and (wait := rate.seconds_until_turn(OPERATION, block["region"], block["account"], now)):
            turn = wait < rate.LONGEST_TURN.total_seconds()
            return _wait(wait, "others search too, and EC2 allows a search every 7 seconds", search | {"turn": turn})
        search |= {"turn": False}
        try:
            answer = _search(environment, block, hours, approval)
        except ClientError as error:
            return _throttled(error, environment, block, search, now)
        if answer["found"] in _DECIDED:
            return answer
        search |= {"searched": [*search["searched"], hours], "first": search["first"] or answer}
    first: dict[str, Any] = search["first"]
    return first


def _search(
    environment: Environment, block: dict[str, Any], hours: int, approval: dict[str, Any] | None
) -> dict[str, Any]:
    end = parse_instant(block["end_date"])
    entries = ec2.extension_offerings(block["reservation_id"], hours, block["region"], block["account"])
    ceiling = environment.max_upfront_fee or Decimal(0)
    choice = choose_offering(entries, hours=hours, current_end=end, ceiling=ceiling)
    if choice.found is not Found.OFFERED or choice.offering is None:
        return _answer(choice.found, choice.reason, choice.offering)
    too_long = past_extend_until(environment, choice.offering)
    if too_long:
        return _answer(Outcome.NOT_ALLOWED, too_long, choice.offering)
    differs = approval and approval_refusal(approval, choice.offering, block["reservation_id"], end)
    if differs:
        return _answer(_CHANGED, differs, choice.offering)
    return _answer(choice.found, choice.reason, choice.offering)


def _throttled(
    error: ClientError, environment: Environment, block: dict[str, Any], search: dict[str, Any], now: datetime
) -> dict[str, Any]:
    """Wait longer each time, and everybody with us; in the end it is a search that failed, and made again much later.

    Raises:
        ClientError: it was no throttle.
    """
    code = error.response["Error"]["Code"]
    if code not in _THROTTLES:
        raise error
    kind, limited = family(environment.instance_type), code == "CapacityBlockDescribeLimitExceeded"
    vcpus = _quota(kind, block) if limited else None
    if vcpus == 0:
        return _answer(Outcome.NO_QUOTA, zero_quota(kind, block["region"]))
    rate.note_throttle(OPERATION, block["region"], block["account"], now)
    pause = throttle_pause(search["throttled"])
    if pause is None:
        text = f"EC2 keeps answering {code} to searches in {block['region']}: too many are made"
        return _answer(Outcome.FAILED, f"{text}, {maybe_zero_quota(kind)}" if limited and vcpus is None else text)
    return _wait(int(pause.total_seconds()), f"EC2 answers {code}", search | {"throttled": search["throttled"] + 1})


def _quota(kind: str, block: dict[str, Any]) -> float | None:
    """The same code says that the rate is used up and that the quota is 0, so only now is it read; None when it cannot be."""
    from blockkeeper.aws.quotas import capacity_block_vcpus

    try:
        return capacity_block_vcpus(kind, block["region"], block["account"])
    except (BotoCoreError, ClientError) as error:
        log.warning("a quota could not be read", extra={"family": kind, "error": str(error)})
        return None


def _wait(seconds: int, reason: str, search: dict[str, Any]) -> dict[str, Any]:
    return {**_answer(_WAIT, reason), "wait_seconds": seconds, "search": search}


def _answer(found: str, reason: str | None, offering: Offering | None = None) -> dict[str, Any]:
    facts = None
    if offering is not None:
        facts = {
            "offering_id": offering.offering_id,
            "duration_hours": offering.hours,
            "new_end": format_instant(offering.new_end),
            "upfront_fee": str(offering.fee),
            # Another end or fee is another question, and an answer counts for the question that was asked (case B16).
            "question": sha256(f"{offering.new_end.isoformat()} {offering.fee}".encode()).hexdigest()[:8],
        }
    return {"found": found, "reason": reason, "offering": facts}
