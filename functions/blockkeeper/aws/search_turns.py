"""Searches of offerings, one length after the other, each in its turn: EC2 allows a search every seven seconds."""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper.aws import rate
from blockkeeper.domain.outcome import Outcome
from blockkeeper.domain.quotas import family, maybe_zero_quota, zero_quota
from blockkeeper.domain.rate import throttle_pause
from blockkeeper.telemetry import log

Answer = dict[str, Any]

WAIT = "wait"
# botocore tries the first again by itself, some seconds long, and does not know the second for a throttle.
_THROTTLES = frozenset({"RequestLimitExceeded", "CapacityBlockDescribeLimitExceeded"})
_BEGINNING: Answer = {"searched": [], "first": None, "turn": False, "throttled": 0}


def search_in_turn(
    operation: str,
    place: tuple[str, str],
    instance_type: str,
    lengths: Iterable[int],
    search: Callable[[int], Answer],
    *,
    decided: Collection[str],
    state: Answer | None,
    now: datetime,
) -> Answer:
    """The first length that is to be had, or the word on the first one: that is the one that is wanted.

    Or ``{"found": "wait", "wait_seconds": int, "search": state}``: call again with that state, after that time.

    Args:
        operation: EC2's name of the call that `search` makes.
        place: Region and account.
        instance_type: what is searched for; its quota is read when EC2 may mean that it is 0.
        lengths: hours, in order.
        search: searches one length and answers ``{found, reason, offering}``.
        decided: values of `found` after which no further length is searched.

    Raises:
        ClientError: a search failed, and it was no throttle.
    """
    so_far = dict(state or _BEGINNING)
    for hours in lengths:
        if hours in so_far["searched"]:
            continue
        if not so_far["turn"] and (turn := rate.take_turn(operation, *place, now)).seconds:
            text = "others search too, and EC2 allows a search every 7 seconds"
            return _wait(turn.seconds, text, so_far | {"turn": turn.own})
        so_far |= {"turn": False}
        try:
            answer = search(hours)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code not in _THROTTLES:
                raise
            return _throttled(operation, place, instance_type, code, so_far, now)
        if answer["found"] in decided:
            return answer
        so_far |= {"searched": [*so_far["searched"], hours], "first": so_far["first"] or answer}
    first: Answer = so_far["first"]
    return first


def _throttled(  # noqa: PLR0917 - called from one place
    operation: str, place: tuple[str, str], instance_type: str, code: str, so_far: Answer, now: datetime
) -> Answer:
    """Wait longer each time, and everybody with us; in the end it is a search that failed, and made again much later."""
    kind, limited = family(instance_type), code == "CapacityBlockDescribeLimitExceeded"
    vcpus = _quota(kind, place) if limited else None
    if vcpus == 0:
        return {"found": Outcome.NO_QUOTA, "reason": zero_quota(kind, place[0]), "offering": None}
    rate.note_throttle(operation, *place, now)
    pause = throttle_pause(so_far["throttled"])
    if pause is None:
        text = f"EC2 keeps answering {code} to searches in {place[0]}: too many are made"
        text = f"{text}, {maybe_zero_quota(kind)}" if limited and vcpus is None else text
        return {"found": Outcome.FAILED, "reason": text, "offering": None}
    return _wait(int(pause.total_seconds()), f"EC2 answers {code}", so_far | {"throttled": so_far["throttled"] + 1})


def _quota(kind: str, place: tuple[str, str]) -> float | None:
    """The same code says that the rate is used up and that the quota is 0, so only now is it read; None when it cannot be."""
    from blockkeeper.aws.quotas import capacity_block_vcpus

    try:
        return capacity_block_vcpus(kind, *place)
    except (BotoCoreError, ClientError) as error:
        log.warning("a quota could not be read", extra={"family": kind, "error": str(error)})
        return None


def _wait(seconds: int, reason: str, state: Answer) -> Answer:
    return {"found": WAIT, "reason": reason, "offering": None, "wait_seconds": seconds, "search": state}
