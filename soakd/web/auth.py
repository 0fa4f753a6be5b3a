"""The token that everything which changes state needs; from the configuration, or made once in the data directory."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from soakd.config import WebConfig, read_secret
from soakd.errors import SoakdError

FILE = "token"


def own_token(config: WebConfig, directory: Path) -> str:
    """The configured token, else that of the data directory, made with mode 0600 if there is none yet."""
    configured = read_secret(config.token_env, config.token_file, "web token")
    if configured:
        return configured
    path = directory / FILE
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    except OSError as error:
        raise SoakdError(f"{path}: {error.strerror}", hint="give a data_dir that soakd may write to") from None
    token = secrets.token_urlsafe(32)
    with os.fdopen(handle, "w") as file:
        file.write(token + "\n")
    return token


def allowed(header: str | None, token: str) -> bool:
    """Compares in constant time. ``header`` is the request's Authorization."""
    given = (header or "").removeprefix("Bearer ").strip()
    return hmac.compare_digest(given.encode(), token.encode())
