"""`generate_ids`: any number of prompts, cut into batches, continued by sampling, and put back in order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from glassformer.config import DecodeConfig
from glassformer.decode.incremental import lm_decoder
from glassformer.decode.parallel import map_forked, n_workers_for
from glassformer.decode.sampling import BEGIN_WITH, sample
from glassformer.errors import UsageError
from glassformer.models import LanguageModel
from glassformer.models.ensemble import Ensemble
from glassformer.models.inference import evaluation_mode
from glassformer.utils.cpu_threads import make_room
from glassformer.utils.device import many_shapes

BATCH_ROWS = 64
"""Most prompts in a batch."""
FEWEST_ROWS = 16
"""Prompts that are worth a process of their own."""


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
    """What the model writes after each prompt (the prompt itself is not repeated).

    The text of a prompt depends on the prompt, the settings and its row number (`first_row` + its place in
    the list), not on the other prompts. Beyond the model's context it goes on in a window
    (`sampling.window_start`).

    Args:
        model: the language model, or an ensemble of them; it is put in evaluation mode meanwhile.
        prompts: ids, at least one each; of a prompt longer than the context only the end is read.
        config: `max_new_tokens`, `temperature` (0 is greedy), `top_k`, `top_p`, `min_p`, `decode_seed`.
        eos: token that ends a text, not returned. banned: tokens never written (padding, BOS).
        first_row: row number of the first prompt, for callers that hand over prompts in pieces.
        batch_rows: most prompts at once. use_cache: False computes every prefix anew, for tests.

    Raises:
        UsageError: an empty prompt or a setting out of range.
    """
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise UsageError(f"prompt {number} is empty", BEGIN_WITH)
    # Neighbours in length, so that few steps go by with only a prompt to read.
    order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
    device = next(model.parameters()).device
    n_processes = n_workers_for(len(order), device, FEWEST_ROWS)
    rows_each = min(batch_rows, math.ceil(len(order) / n_processes)) or 1
    batches = [order[i : i + rows_each] for i in range(0, len(order), rows_each)]

    def go_on(batch: list[int]) -> list[list[int]]:
        make_room()
        texts = sample(
            lm_decoder(model, use_cache),
            [prompts[i] for i in batch],
            config,
            limits=[config.max_new_tokens] * len(batch),
            rows=[first_row + i for i in batch],
            eos=eos,
            suppress_tokens=suppress_tokens,
        )
        return [text.ids for text in texts]

    with evaluation_mode(model), many_shapes(device):
        found = map_forked(go_on, batches, n_processes)
    written = dict(zip(itertools.chain(*batches), itertools.chain(*found), strict=True))
    return [written[i] for i in range(len(prompts))]
