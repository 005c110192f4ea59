"""The number of descriptors that the process may have. Touches one limit of the process."""

from __future__ import annotations

import resource

__all__ = ["raise_file_limit"]


def raise_file_limit() -> None:
    """A stream needs two descriptors; take as many as the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass
