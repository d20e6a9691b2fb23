"""A Slack on this machine: one workspace with one channel, as far as Blockkeeper uses it, for tests and for `./dev up`."""

from .workspace import BOT_TOKEN, CHANNEL, SIGNING_SECRET, TEAM, Message, Pressed, Workspace, secret

__all__ = ["BOT_TOKEN", "CHANNEL", "SIGNING_SECRET", "TEAM", "Message", "Pressed", "Workspace", "secret"]
