"""Python client of Assay, a metered evaluation platform.

import assay_client as assay

result = assay.evaluate("suite:lunch", predict, label="habit")
"""

from typing import TYPE_CHECKING, Any

from ._errors import (
    ApiError,
    AssayError,
    AssayWarning,
    AuthenticationError,
    Conflict,
    ConnectionFailed,
    FieldError,
    Forbidden,
    Internal,
    InvalidRequest,
    InvalidState,
    InvalidToken,
    JobCancelled,
    JobFailed,
    KeyRevoked,
    NotFound,
    OrgRequired,
    PayloadTooLarge,
    QuotaExceeded,
    RateLimited,
    Regression,
    SessionRequired,
    TermsNotAccepted,
    Unauthenticated,
    Unavailable,
    ValidationFailed,
    WaitTimedOut,
)
from ._items import Item, Items
from ._progress import UploadProgress
from ._raw import RawResponse
from ._results import Check, Comparison, Trial
from ._transport import __version__
from .client import Assay, Evaluation, Job, Pages, Suite, evaluate

if TYPE_CHECKING:
    from ._score import Score, score
    from .aio import AsyncAssay, AsyncEvaluation, AsyncJob, AsyncPages, AsyncSuite, aevaluate

__all__ = [
    "ApiError",
    "Assay",
    "AssayError",
    "AssayWarning",
    "AsyncAssay",
    "AsyncEvaluation",
    "AsyncJob",
    "AsyncPages",
    "AsyncSuite",
    "AuthenticationError",
    "Check",
    "Comparison",
    "Conflict",
    "ConnectionFailed",
    "Evaluation",
    "FieldError",
    "Forbidden",
    "Internal",
    "InvalidRequest",
    "InvalidState",
    "InvalidToken",
    "Item",
    "Items",
    "Job",
    "JobCancelled",
    "JobFailed",
    "KeyRevoked",
    "NotFound",
    "OrgRequired",
    "Pages",
    "PayloadTooLarge",
    "QuotaExceeded",
    "RateLimited",
    "RawResponse",
    "Regression",
    "Score",
    "SessionRequired",
    "Suite",
    "TermsNotAccepted",
    "Trial",
    "Unauthenticated",
    "Unavailable",
    "UploadProgress",
    "ValidationFailed",
    "WaitTimedOut",
    "__version__",
    "aevaluate",
    "evaluate",
    "score",
]


def __getattr__(name: str) -> Any:
    if name in ("Score", "score"):
        from . import _score

        return getattr(_score, name)
    # The async client imports asyncio, which programs without it should not pay for.
    if name in __all__:
        from . import aio

        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
