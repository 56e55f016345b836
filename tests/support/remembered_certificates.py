"""Remembers the trusted certificates, so that a process of tests reads them once.

A client without settings reads the hundred and more certificates that it trusts, also if its address begins with
`http:`. Its requests to a server of this machine take a tenth of that time.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def remembered_certificates() -> Iterator[None]:
    """Give clients of this process that trust the same certificates one TLS context.

    `httpx` asks Python for it, and `httpx2` asks `httpcore2`. Other arguments than theirs get a new context.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", _remembering(ssl.create_default_context, "cafile"))
        if httpcore2 := sys.modules.get("httpcore2"):
            create = _remembering(httpcore2.default_ssl_context, "_trust_env")
            patch.setattr(httpcore2, "default_ssl_context", create)
        yield


def _remembering(create: Callable[..., ssl.SSLContext], option: str) -> Callable[..., ssl.SSLContext]:
    contexts: dict[tuple[Any, ...], ssl.SSLContext] = {}

    def remember(*arguments: Any, **options: Any) -> ssl.SSLContext:
        if arguments or options.keys() != {option}:
            return create(*arguments, **options)
        key = (options[option], os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        if key not in contexts:
            contexts[key] = create(**options)
        return contexts[key]

    return remember
