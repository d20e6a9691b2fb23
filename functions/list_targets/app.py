"""list-targets: which accounts and Regions does this run of detect-expiry look at?"""

from typing import Any

from blockkeeper.aws.approvals import redeliver_decisions
from blockkeeper.aws.environments import list_environments
from blockkeeper.aws.ledger import count_unknown
from blockkeeper.domain.instants import parse_instant
from blockkeeper.domain.sweep import unswept
from blockkeeper.domain.triggers import read_trigger
from blockkeeper.settings import own_targets
from blockkeeper.telemetry import count, handler, log


@handler
def lambda_handler(event: dict[str, Any], _context: Any) -> list[dict[str, Any]]:
    """Answer a list of ``{account, region, trigger}``, the input of the distributed Map.

    Args:
        event: ``{"input": <whatever started detect-expiry>, "now": ISO}``: an EventBridge event in either spelling, a schedule's
            event, or ``{}``. An event narrows the run to its own account and Region; one that is not understood is counted,
            alarmed, and still leads to a full sweep, since a sweep is never wrong (case B01).
            Records that no target reaches are counted and alarmed each time, since nothing else would ever look at them.
    """
    redeliver_decisions(parse_instant(event["now"]))
    # Also when there is none: that ends the alarm.
    count("PurchaseUnknown", count_unknown(parse_instant(event["now"])))
    every = own_targets()
    trigger = read_trigger(event["input"])
    if trigger.name == "unknown":
        count("UnknownEvent")
        log.warning("an event of an unknown kind started a full sweep", extra={"kind": trigger.kind})
    if forgotten := unswept(list_environments(), every):
        count("NotInTargets", len(forgotten))
        log.error(
            "records of an account or Region that is in no target are never swept", extra={"environments": forgotten}
        )
    named = [target for target in every if target == (trigger.account, trigger.region)]
    return [{"account": account, "region": region, "trigger": trigger.name} for account, region in named or every]
