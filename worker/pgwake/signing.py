"""Signatures of what is sent out, by the specification of Standard Webhooks.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"


def parse_secrets(text: str) -> tuple[bytes, ...]:
    """Return the keys of secrets that are separated by commas.

    Raises:
        ValueError: One is no base64 of 24 to 64 bytes, with or without whsec_ before
            it; the message does not show it.
    """
    return tuple(_parse(word.strip()) for word in text.split(",") if word.strip())


def _parse(word: str) -> bytes:
    try:
        key = base64.b64decode(word.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not 24 <= len(key) <= 64:
        raise ValueError(
            "each secret must be base64 of 24 to 64 bytes, with or without whsec_ "
            "before it: make one with `openssl rand -base64 32`"
        )
    return key


def sign(
    keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """Return the headers of a message: id, time and a signature by each key.

    A receiver takes a message if one of the signatures is right, so that a secret is
    replaced by having both for a while. Without keys there is no signature.

    Args:
        keys: What parse_secrets returns.
        message_id: The same for each attempt to deliver the message.
        timestamp: Seconds since 1970. Receivers refuse what is some minutes off.
        body: What is sent, byte by byte.
    """
    headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    if keys:
        signed = f"{message_id}.{timestamp}.".encode() + body
        headers["webhook-signature"] = " ".join(
            "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
            for key in keys
        )
    return headers
