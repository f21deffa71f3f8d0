"""One list of certificate authorities for all that we dial: models, services, pages, proxies, the store, traces.

It is the system's, or what `SSL_CERT_FILE` and `SSL_CERT_DIR` name in its place, and `network.ca_file` besides. Only a
machine that has no list at all (a bare image, Python from python.org on a Mac) gets Mozilla's, from certifi.
"""

from __future__ import annotations

import os
import re
import ssl
from functools import lru_cache

_HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]+")  # the name of an authority's file in a folder that OpenSSL reads
_KEPT = 8

Stamp = tuple[int, int]


def trusted(ca_file: str = "") -> ssl.SSLContext:
    """Reading the files takes long enough to stall a loop, so the context is kept until one of them changes."""
    return _trusted(ca_file, _stamp(ca_file), _stamp(ssl.get_default_verify_paths().cafile or ""))


@lru_cache(_KEPT)
def _trusted(ca_file: str, *_: Stamp) -> ssl.SSLContext:
    return new_context(ca_file)


def new_context(ca_file: str = "") -> ssl.SSLContext:
    """For a library that may set more in it."""
    context = ssl.create_default_context()
    if not _is_said() and not _has_list(context):
        import certifi

        context.load_verify_locations(certifi.where())
    if ca_file:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _is_said() -> bool:
    return bool(os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"))


def _has_list(context: ssl.SSLContext) -> bool:
    """Files of a folder are read one by one when they are needed, and are not counted before."""
    if context.cert_store_stats()["x509_ca"]:
        return True
    try:
        return any(map(_HASHED.fullmatch, os.listdir(ssl.get_default_verify_paths().capath or "")))
    except OSError:
        return False


def _stamp(path: str) -> Stamp:
    try:
        about = os.stat(path)
    except OSError:
        return 0, 0
    return about.st_mtime_ns, about.st_size
