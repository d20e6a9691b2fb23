"""The link that lets one approver answer one request: possession of it is the permission, so it is signed and ends.

``<base>/decide/<approval id>?approver=<id>&expires=<epoch>&signature=<HMAC-SHA256>`` over approval, approver and end. The approver
stands in it as a digest, so that no mail address gets into an access log (case B41).
"""

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

# The first line of what is signed: a change of the format gets another one, and the key may sign other things.
_FORMAT = "blockkeeper decision link 1"
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_SHAPES = {
    "approver": re.compile(r"[A-Za-z0-9_-]{22}"),
    "expires": re.compile(r"[1-9][0-9]{0,10}"),
    "signature": re.compile(r"[A-Za-z0-9_-]{43}"),
}


class IncompleteLinkError(ValueError):
    """A part of the link is missing or cut off; the message names it. Nothing was compared."""


class AlteredLinkError(ValueError):
    """No accepted key has signed this link as it is. Which part differs is not said: a forger would learn from it."""


@dataclass(frozen=True, slots=True)
class SignedLink:
    """A link whose signature is right.

    Attributes:
        approver: the approver's `approver_id`.
        expires: from this moment on it shows, but no longer decides; aware UTC.
    """

    approval_id: str
    approver: str
    expires: datetime

    def expired(self, now: datetime) -> bool:
        """Whether it no longer decides."""
        return now >= self.expires


def approver_id(approver: str) -> str:
    """How an approver is named in links and logs: 22 characters of the address's SHA-256, in base64url."""
    return _base64url(hashlib.sha256(approver.lower().encode()).digest())[:22]


def is_approval_id(text: str) -> bool:
    """Whether it has the shape of a request's id."""
    return _ID.fullmatch(text) is not None


def request_address(base: str, approval_id: str) -> str:
    """The address that shows only whether a request is open: for notices that many can read."""
    return f"{base}/decide/{approval_id}"


def voice(who: str) -> str:
    """How whoever answers is named in logs: an address, also one behind `api:`, as its `approver_id`, anything else as it is."""
    way, _, name = who.rpartition(":") if "@" in who else ("", "", who)
    return f"{way}:{approver_id(name)}" if way else approver_id(name) if "@" in name else name


def signed_link(base: str, approval_id: str, approver: str, expires: datetime, key: bytes) -> str:
    """The link of one approver.

    Args:
        base: the API's address, without a slash at its end.
        approver: as the record names them.
        expires: from when it no longer decides, aware UTC.
        key: the current signing key.
    """
    who, until = approver_id(approver), str(int(expires.timestamp()))
    signature = _signature(approval_id, who, until, key)
    return f"{request_address(base, approval_id)}?approver={who}&expires={until}&signature={signature}"


def read_link(approval_id: str, parameters: Mapping[str, str], keys: Iterable[bytes]) -> SignedLink:
    """Check a link that came back.

    Args:
        approval_id: from the path.
        parameters: the query, decoded.
        keys: accepted keys, the current one first; one from before a rotation keeps open requests answerable. They are asked for
            one by one, since the older is rarely needed.

    Raises:
        IncompleteLinkError: a parameter is missing or has an impossible shape.
        AlteredLinkError: no key gives this signature.
    """
    if not is_approval_id(approval_id):
        raise IncompleteLinkError("the id of the request is cut off; the link is one line of the mail (copy all of it)")
    for name, shape in _SHAPES.items():
        if not shape.fullmatch(parameters.get(name, "")):
            raise IncompleteLinkError(
                f"{name} is missing or cut off; the link is one line of the mail (copy all of it)"
            )
    who, until = parameters["approver"], parameters["expires"]
    given = parameters["signature"].encode()
    for key in keys:
        if hmac.compare_digest(_signature(approval_id, who, until, key).encode(), given):
            return SignedLink(approval_id, who, datetime.fromtimestamp(int(until), UTC))
    raise AlteredLinkError(
        "the link's signature does not fit; the link was altered or is not ours (open it from the mail)"
    )


def _signature(approval_id: str, approver: str, expires: str, key: bytes) -> str:
    signed = f"{_FORMAT}\n{approval_id}\n{approver}\n{expires}"
    return _base64url(hmac.digest(key, signed.encode(), "sha256"))


def _base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
