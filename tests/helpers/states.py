"""One hash of a whole training state, by which tests see that two are the same to the last bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from glassformer.runs.model_folder import tensor_chunks


def state_sha256(tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> str:
    """One SHA-256 of a whole state: equal exactly when every bit of it is."""
    digest = hashlib.sha256(json.dumps(state, sort_keys=True, indent=1).encode("utf-8"))
    for chunk in tensor_chunks(tensors):
        digest.update(chunk)
    return digest.hexdigest()
