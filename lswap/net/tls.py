"""TLS for the port that lswap listens on: certificate and key from PEM files, read once at the start.

Imported only where TLS is asked for, because OpenSSL is large (`lswap.net.lean`).
"""

from __future__ import annotations

import re
from typing import Any

from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.ssl import Certificate, CertificateOptions, KeyPair, TLSVersion
from twisted.protocols.tls import TLSMemoryBIOFactory

from lswap.errors import LswapError

__all__ = ["encrypted"]

#: OpenSSL's number for the PEM form.
_PEM = 1
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def encrypted(factory: IProtocolFactory, cert_file: str, key_file: str) -> IProtocolFactory:
    """`factory` behind TLS 1.2 or later; the certificate file may hold its chain.

    @raise LswapError: a file cannot be read, holds nothing of use, or the two do not belong together.
    """
    certificates = _loaded("certificate", cert_file, _certificates)
    key = _loaded("private key", key_file, lambda data: KeyPair.load(data, _PEM).original)
    options = CertificateOptions(
        privateKey=key,
        certificate=certificates[0],
        extraCertChain=certificates[1:],
        raiseMinimumTo=TLSVersion.TLSv1_2,
    )
    try:
        options.getContext().check_privatekey()
    except Exception as error:
        raise LswapError(f"the private key in {key_file} does not belong to the certificate in {cert_file}") from error
    return TLSMemoryBIOFactory(options, False, factory)


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
        raise LswapError(f"{path} is no usable PEM {what}: {str(error) or type(error).__name__}") from error
