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
    if configured is not None:
        return _not_empty(configured, str(config.token_file or config.token_env))
    path = directory / FILE
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _not_empty(path.read_text().strip(), str(path))
    except OSError as error:
        raise SoakdError(f"{path}: {error.strerror}", hint="give a data_dir that soakd may write to") from None
    token = secrets.token_urlsafe(32)
    with os.fdopen(handle, "w") as file:
        file.write(token + "\n")
    return token


def _not_empty(token: str, where: str) -> str:
    if not token:
        raise SoakdError(f"the web token in {where} is empty", hint="everyone would have it: write one, or delete it")
    return token


def allowed(header: str | None, token: str) -> bool:
    """Compares in constant time. ``header`` is the request's Authorization."""
    given = (header or "").removeprefix("Bearer ").strip()
    return bool(token) and hmac.compare_digest(given.encode(), token.encode())
