"""Mail through Amazon SES (API version 2, SendEmail)."""

import os

from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper.aws.clients import client
from blockkeeper.domain.mail import Mail

# SendEmail, "Errors"; everything else that SES refuses stays refused until somebody changes something.
_PASSING = frozenset(
    {"TooManyRequestsException", "LimitExceededException", "InternalServiceErrorException", "ThrottlingException"}
)
_SERVER_ERROR = 500


class MailRefusedError(Exception):
    """SES will not take this mail; trying again does not help. The text never holds an address."""


class MailBusyError(Exception):
    """SES could not be reached, or is busy, even after the SDK's own retries; trying again later may help."""


def send(recipient: str, mail: Mail) -> None:
    """Send one mail to one person.

    Raises:
        MailRefusedError, MailBusyError: it was not sent.
    """
    sender = os.environ.get("SENDER_EMAIL")
    if not sender:
        raise MailRefusedError("SenderEmail is not set; no mail can be sent (set it to an identity verified in SES)")
    simple = {
        "Subject": {"Data": mail.subject, "Charset": "UTF-8"},
        "Body": {"Text": {"Data": mail.text, "Charset": "UTF-8"}, "Html": {"Data": mail.html, "Charset": "UTF-8"}},
    }
    try:
        client("sesv2").send_email(
            FromEmailAddress=sender, Destination={"ToAddresses": [recipient]}, Content={"Simple": simple}
        )
    except ClientError as error:
        code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        # SES quotes addresses in its messages, and whatever is raised here ends in a log; so no cause either.
        if code in _PASSING or status >= _SERVER_ERROR:
            raise MailBusyError(code) from None
        raise MailRefusedError(code) from None
    except BotoCoreError as error:
        raise MailBusyError(type(error).__name__) from None
