"""Logs, metrics and the wrapper around every handler.

Events are never logged whole: they can hold task tokens and signatures (case B41).
"""

import functools
from collections.abc import Callable
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import Metrics, MetricUnit

log = Logger(service="blockkeeper")
metrics = Metrics(namespace="Blockkeeper", service="blockkeeper")

Handler = Callable[[dict[str, Any], Any], Any]


def handler(function: Handler) -> Handler:
    """Give a handler its logging context, flush its metrics, and let its errors through to the caller."""

    @functools.wraps(function)
    def wrapped(event: dict[str, Any], context: Any) -> Any:
        log.structure_logs(append=False, function=function.__module__.removesuffix(".app"))
        if context is not None:
            log.append_keys(request_id=context.aws_request_id)
        try:
            return function(event, context)
        finally:
            if metrics.provider.metric_set:
                metrics.flush_metrics()

    return wrapped


# Metrics after which a person should look; one alarm watches their sum, and the log says which it was.
ATTENTION = frozenset(
    {
        "ApiFailed",
        "ApproverNotTold",
        "BoundariesMissed",
        "DecisionNotDelivered",
        "EventNotPublished",
        "Extension_end_not_moved",
        "FindingsNew",
        "GroupsNotArranged",
        "InstancesLeftAtEnd",
        "InstancesMissing",
        "NobodyTold",
        "NotInTargets",
        "SlackFailed",
        "UnknownEvent",
        "Unreadable",
    }
)


def count(name: str, amount: int = 1) -> None:
    """Add to a CloudWatch metric, and to `NeedsAttention` if a person should look."""
    metrics.add_metric(name=name, unit=MetricUnit.Count, value=amount)
    if name in ATTENTION and amount:
        metrics.add_metric(name="NeedsAttention", unit=MetricUnit.Count, value=amount)
