"""Notices to everybody who has subscribed to the topic Notifications (Amazon SNS, Publish)."""

import json
import os

from botocore.exceptions import BotoCoreError, ClientError

from blockkeeper.aws.clients import client
from blockkeeper.aws.mail import MailBusyError
from blockkeeper.domain.mail import Mail

# Publish: a subject is ASCII without line breaks, under 100 characters.
LONGEST_SUBJECT = 99


def publish(mail: Mail) -> None:
    """Publish a notice: text for mail and the like, and what Amazon Q Developer shows in a chat channel for HTTPS.

    Raises:
        MailBusyError: SNS did not take it; trying again may help.
    """
    subject = mail.subject.replace("…", "...").encode("ascii", "replace").decode()[:LONGEST_SUBJECT]
    # "Custom notifications" (Amazon Q Developer in chat applications Administrator Guide): it drops what it does not know.
    chat = {"version": "1.0", "source": "custom"}
    content = {"textType": "client-markdown", "title": mail.subject, "description": mail.text}
    message = {"default": mail.text, "https": json.dumps({**chat, "content": content})}
    try:
        client("sns").publish(
            TopicArn=os.environ["NOTIFICATIONS_TOPIC"],
            Subject=subject,
            Message=json.dumps(message),
            MessageStructure="json",
        )
    except ClientError as error:
        raise MailBusyError(error.response["Error"]["Code"]) from None
    except BotoCoreError as error:
        raise MailBusyError(type(error).__name__) from None
