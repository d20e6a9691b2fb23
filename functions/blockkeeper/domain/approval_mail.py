"""The mail that asks an approver."""

from blockkeeper.domain.approval import ApprovalRequest, What, facts, question_line
from blockkeeper.domain.mail import Mail, compose, one_line
from blockkeeper.domain.money import format_usd

LONGEST_NAME = 40
DRY_RUN = (
    "This installation is in dry-run mode: a yes runs through everything, but nothing is bought and no money moves."
)


def question(request: ApprovalRequest, link: str, *, dry_run: bool, reminder: bool = False) -> Mail:
    """Ask about one extension or one new block.

    Args:
        link: the recipient's own signed link.
        dry_run: whether PurchaseMode is not `live`, so that a yes moves no money.
        reminder: whether the recipient was asked before and has not answered.
    """
    name = one_line(request.environment, LONGEST_NAME)
    asked = f"New block for {name}" if request.what is What.BLOCK else f"Extend {name}"
    asked = f"Reminder: {asked[0].lower()}{asked[1:]}" if reminder else asked
    closing = [
        "Opening the page decides nothing. The link is yours alone: whoever has it can answer in your name, so don't forward it.",
    ]
    return compose(
        f"{asked} for {format_usd(request.upfront_fee)}? Answer by {request.decide_by:%d %b %H:%M} UTC",
        question_line(request),
        facts(request),
        link=("Look at it and answer", link),
        closing=[DRY_RUN, *closing] if dry_run else closing,
    )
