"""Sample continuations of any number of prompts in batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from glassformer.config import DecodeConfig
from glassformer.decode.incremental import lm_decoder
from glassformer.decode.parallel import map_forked, n_workers_for
from glassformer.decode.sampling import EMPTY_PROMPT_HINT, sample
from glassformer.errors import UsageError
from glassformer.models import LanguageModel
from glassformer.models.ensemble import Ensemble
from glassformer.models.inference import evaluation_mode
from glassformer.utils.device import many_shapes
from glassformer.utils.process_settings import turns

BATCH_ROWS = 64
"""Maximum number of prompts per batch."""
MIN_ROWS_PER_WORKER = 16


def generate_ids(
    model: LanguageModel | Ensemble,
    prompts: Sequence[Sequence[int]],
    config: DecodeConfig,
    *,
    eos: int | None = None,
    suppress_tokens: Sequence[int] = (),
    first_row: int = 0,
    batch_rows: int = BATCH_ROWS,
    use_cache: bool = True,
) -> list[list[int]]:
    """Return the ids that the model generates after each prompt, without the prompt.

    A continuation depends on its prompt, the settings and its row number (`first_row` + its index), not on the other
    prompts. Beyond the model's context it continues in a window (`limits.window_start`).

    Args:
        model: the language model, or an ensemble; set to evaluation mode meanwhile.
        prompts: at least one id each; of a prompt longer than the context only the end is read.
        config: `max_new_tokens`, `temperature` (0 is greedy), `top_k`, `top_p`, `min_p`, `decode_seed`.
        eos: token that ends a continuation, not returned.
        suppress_tokens: tokens that are never generated (padding, BOS).
        first_row: row number of the first prompt, for callers that pass prompts in parts.
        batch_rows: maximum number of prompts per batch.
        use_cache: False recomputes every prefix, for tests.

    Raises:
        UsageError: an empty prompt or a setting out of range.
    """
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise UsageError(f"prompt {number} is empty", EMPTY_PROMPT_HINT)
    # Prompts of similar length go together, so that few steps only read a longer prompt.
    order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
    device = next(model.parameters()).device
    n_workers = n_workers_for(len(order), device, MIN_ROWS_PER_WORKER)
    size = min(batch_rows, math.ceil(len(order) / n_workers)) or 1
    batches = [order[i : i + size] for i in range(0, len(order), size)]

    def continue_batch(batch: list[int]) -> list[list[int]]:
        turns.give_way()
        hypotheses = sample(
            lm_decoder(model, use_cache),
            [prompts[i] for i in batch],
            config,
            limits=[config.max_new_tokens] * len(batch),
            rows=[first_row + i for i in batch],
            eos=eos,
            suppress_tokens=suppress_tokens,
        )
        return [hypothesis.ids for hypothesis in hypotheses]

    with evaluation_mode(model), many_shapes(device):
        results = map_forked(continue_batch, batches, n_workers)
    generated = dict(zip(itertools.chain(*batches), itertools.chain(*results), strict=True))
    return [generated[i] for i in range(len(prompts))]
