"""Checks of what surrounds the blocks: quotas, mail, roles, permissions, and the SDK.

Sources: EC2 User Guide, "Capacity Blocks quotas"; Amazon SES Developer Guide, "Verified identities", "Moving out of the sandbox",
"Suppression list"; IAM API Reference, SimulatePrincipalPolicy.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from blockkeeper.domain.doctor import STACK, Check, Finding, Severity, account_subject, finding, record_subject
from blockkeeper.domain.environment import Environment
from blockkeeper.domain.quotas import QUOTA_CODES, quota_name

# What each of the two buyers must be allowed.
BUY_EXTENSION, BUY_BLOCK = "ec2:PurchaseCapacityBlockExtension", "ec2:PurchaseCapacityBlock"


@dataclass(frozen=True, slots=True)
class Mailbox:
    """What SES says of one approver's address.

    Attributes:
        verified: the address or its domain is a verified identity; None when it was not looked at (outside the sandbox).
        suppressed: why SES keeps the address on its suppression list; None when it does not.
    """

    verified: bool | None = None
    suppressed: str | None = None


@dataclass(frozen=True, slots=True)
class Mailing:
    """What SES says of the stack's account and sender."""

    sender: str
    sender_verified: bool
    sending: bool
    production: bool
    mailboxes: Mapping[str, Mailbox]


def quota(account: str, region: str, kind: str, vcpus: int, limit: float | None) -> Iterator[Finding]:
    """The quota of a family against the vCPUs of its largest enrolled block.

    Args:
        kind: a family of `QUOTA_CODES`, or another: then its quota is said to be unknown.
        limit: vCPUs; None for a family without a code.
    """
    subject = f"{account_subject(account, region)}/{kind}"
    name = quota_name(kind)
    if limit is None:
        problem = f"the quota of family {kind} has no code on AWS's page, so it is not compared with the {vcpus} vCPUs of a block"
        remedy = "look for Concurrent ... Capacity Blocks under Service Quotas, Amazon EC2"
        yield finding(Check.QUOTA, subject, problem, remedy, Severity.NOTE)
    elif limit < vcpus:
        problem = f"{name} is {limit:g} vCPUs; one enrolled block has {vcpus}"
        remedy = (
            f"`aws service-quotas request-service-quota-increase --region {region} --service-code ec2"
            f" --quota-code {QUOTA_CODES[kind]} --desired-value {vcpus}`"
        )
        yield finding(Check.QUOTA, subject, problem, remedy, Severity.WARNING)


def sender(mailing: Mailing) -> Iterator[Finding]:
    """Whether mail can be sent at all."""
    if not mailing.sender:
        remedy = "`sam deploy --parameter-overrides SenderEmail=...`, with an identity verified in Amazon SES"
        yield finding(Check.SENDER, STACK, "SenderEmail is not set", remedy)
        return
    if not mailing.sender_verified:
        problem = f"neither {mailing.sender} nor its domain is a verified identity in Amazon SES"
        remedy = (
            f"`aws sesv2 create-email-identity --email-identity {mailing.sender}`, then follow the link in its mail"
        )
        yield finding(Check.SENDER, STACK, problem, remedy)
    if not mailing.sending:
        problem = "Amazon SES has paused sending for this account"
        yield finding(Check.SENDER, STACK, problem, "see the account dashboard of Amazon SES, and its mail to you")


def slack(problem: str) -> Finding:
    """Slack is set up, and does not work as it is.

    Args:
        problem: in words, with its remedy in parentheses behind it.
    """
    what, _, remedy = problem.partition(" (")
    return finding(Check.SLACK, STACK, what, remedy.removesuffix(")"))


def approvers(environment: Environment, mailing: Mailing, *, slack: bool) -> Iterator[Finding]:
    """Whether enough approvers of a record can be reached.

    Args:
        slack: whether Slack is configured and its secret will do.
    """
    problems = dict(_unreachable(environment.approvers, mailing, slack=slack))
    if not problems or not environment.require_approval:
        return
    enough = len(environment.approvers) - len(problems) >= environment.quorum
    for text, remedy in dict.fromkeys(problems.values()):
        who = ", ".join(approver for approver, why in problems.items() if why == (text, remedy))
        yield finding(
            Check.APPROVER,
            record_subject(environment.pk),
            f"{who}: {text}",
            remedy.replace("ADDRESS", who.split(", ", maxsplit=1)[0]),
            Severity.WARNING if enough else Severity.ERROR,
        )


def _unreachable(named: Sequence[str], mailing: Mailing, *, slack: bool) -> Iterator[tuple[str, tuple[str, str]]]:
    for approver in named:
        if "@" not in approver:
            if not slack:
                yield (
                    approver,
                    (
                        "a Slack user, and Slack is not set up",
                        "set SlackSecretName and SlackChannel, or name an e-mail address",
                    ),
                )
            continue
        mailbox = mailing.mailboxes.get(approver, Mailbox())
        if mailbox.suppressed:
            remedy = "once the mailbox works: `aws sesv2 delete-suppressed-destination --email-address ADDRESS`"
            yield approver, (f"on the suppression list of Amazon SES ({mailbox.suppressed.lower()})", remedy)
        elif not mailing.production and mailbox.verified is False:
            remedy = (
                "request production access for Amazon SES (`aws sesv2 put-account-details`), or verify each recipient:"
                " `aws sesv2 create-email-identity --email-identity ADDRESS`"
            )
            yield approver, ("not verified, and the account is in the sandbox of Amazon SES", remedy)


def member_role(account: str, role: str, reason: str) -> Finding:
    """The role of another account cannot be assumed."""
    remedy = f"deploy docs/member-account.yaml in {account} with this stack's account and name, or take {account} out of Targets"
    return finding(Check.MEMBER_ROLE, account_subject(account), f"role {role} cannot be assumed: {reason}", remedy)


def purchase_permission(
    account: str, role_arn: str, action: str, decision: str, *, organization: bool
) -> Iterator[Finding]:
    """IAM's own word on whether a buyer's role may order.

    Args:
        action: `BUY_EXTENSION` or `BUY_BLOCK`.
        decision: EvalDecision of SimulatePrincipalPolicy: `allowed`, `explicitDeny` or `implicitDeny`; or why there is none.
        organization: whether the organization's service control policies allow it.
    """
    if decision == "allowed":
        return
    whose = "" if organization else ", by a service control policy of the organization"
    problem = f"{role_arn} may not {action}: {decision}{whose}"
    remedy = (
        "see the role's permissions boundary and the policies above it, and in another account whether docs/member-account.yaml is"
        " deployed there as it is now"
    )
    subject = account_subject(account) + ("/new-blocks" if action == BUY_BLOCK else "")
    yield finding(Check.PURCHASE_PERMISSION, subject, problem, remedy)


def sdk(missing: Collection[str], version: str) -> Iterator[Finding]:
    """Calls that the packaged boto3 does not know (case B40)."""
    if missing:
        problem = f"boto3 {version} does not know {', '.join(sorted(missing))}"
        remedy = "`sam build` and `sam deploy` pack the pinned one; for the command line `pip install -U boto3`"
        yield finding(Check.SDK, STACK, problem, remedy)
