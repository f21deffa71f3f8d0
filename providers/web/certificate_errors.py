"""Says what is wrong with a certificate that was refused, and what an operator can do about it.

OpenSSL's own words name an extension at best, and private authorities that were made by hand are refused for lack of
one: since Python 3.13 chains are verified strictly (`VERIFY_X509_STRICT`, RFC 5280).
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

# Of OpenSSL's x509_vfy.h.
_EARLY, _EXPIRED = 9, 10
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 64})
_STRICT = range(79, 95)

_REISSUE = (
    "have the authority and its certificates issued anew: the authority's needs basicConstraints (critical, CA:TRUE), "
    "keyUsage (critical, keyCertSign) and subjectKeyIdentifier, a server's needs authorityKeyIdentifier and "
    'subjectAltName (docs/configuration.md, "A private certificate authority")'
)


class CertificateTrouble(NamedTuple):
    """`problem` goes on after "it is not valid: "; `advice` is an imperative. Neither holds an address."""

    problem: str
    advice: str

    @property
    def sentence(self) -> str:
        """After the name of who showed it."""
        return f"has a certificate that is not valid: {self.problem}"


def certificate_trouble(error: BaseException | None) -> CertificateTrouble | None:
    """What is wrong, if `error` or what it was raised from is the refusal of a certificate."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, ssl.SSLCertVerificationError) and hasattr(error, "verify_code"):  # aiohttp's has none
            return _trouble(error.verify_code, error.verify_message)
        seen.append(error)
        error = error.__cause__ or error.__context__
    return None


def _trouble(code: int, said: str) -> CertificateTrouble:
    if code in _UNKNOWN_ISSUER:
        advice = "let `network.ca_file` name a PEM file with the certificate of the authority that signed it"
        return CertificateTrouble("no authority that is trusted here has signed it", advice)
    if code in _OTHER_NAME:  # OpenSSL repeats the name, which clients need not read
        advice = "correct the address, or have the certificate issued for that host (subjectAltName)"
        return CertificateTrouble("it is for another host", advice)
    if code == _EXPIRED:
        return CertificateTrouble("it has expired", "renew it")
    if code == _EARLY:
        return CertificateTrouble("it is not valid yet", "see that the clocks of both machines are right")
    return CertificateTrouble(said.rstrip("."), _REISSUE if code in _STRICT else "have it issued anew")
