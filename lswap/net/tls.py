"""TLS for the port that lswap listens on: certificate and key from PEM files, read once at the start.

Imported only where TLS is asked for, because OpenSSL is large (`lswap.net.lean`).
"""

from __future__ import annotations

import re
from typing import Any

from OpenSSL import crypto
from twisted.internet.interfaces import IProtocolFactory, IReactorTime
from twisted.internet.ssl import Certificate, CertificateOptions, TLSVersion
from twisted.protocols.tls import TLSMemoryBIOFactory

from lswap.errors import LswapError

__all__ = ["encrypted"]

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def encrypted(factory: IProtocolFactory, cert_file: str, key_file: str, clock: IReactorTime) -> IProtocolFactory:
    """`factory` behind TLS 1.2 or later; the certificate file may hold its chain. `clock` gathers small writes.

    @raise LswapError: a file cannot be read, holds nothing of use, or the two do not belong together.
    """
    certificates = _loaded("certificate", cert_file, _certificates)
    # The empty phrase: without one OpenSSL asks at the terminal for that of an encrypted key.
    key = _loaded("private key", key_file, lambda data: crypto.load_privatekey(crypto.FILETYPE_PEM, data, b""))
    try:
        options = CertificateOptions(
            privateKey=key,
            certificate=certificates[0],
            extraCertChain=certificates[1:],
            raiseMinimumTo=TLSVersion.TLSv1_2,
        )
        options.getContext().check_privatekey()
    except Exception as error:
        raise LswapError(f"the private key in {key_file} does not belong to the certificate in {cert_file}") from error
    return TLSMemoryBIOFactory(options, False, factory, clock)


def _certificates(data: bytes) -> list[Any]:
    found = [Certificate.loadPEM(block).original for block in _CERTIFICATE.findall(data)]
    if not found:
        raise ValueError("there is none in it")
    return found


def _loaded(what: str, path: str, read: Any) -> Any:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise LswapError(f"cannot read the {what} {path}: {error.strerror}") from error
    try:
        return read(data)
    except Exception as error:
        raise LswapError(f"{path} is no usable PEM {what}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """OpenSSL tells lists of (library, function, reason)."""
    if isinstance(error, crypto.Error):
        found = error.args[0] if error.args else []
        reasons = [str(item[-1]) for item in found if item and item[-1]]
        return reasons[0] if reasons else "it cannot be read"
    return str(error) or type(error).__name__
