"""`glassformer demo`: the whole way in a few minutes, with nothing to download.

Dates as people write them in many languages become ISO 8601: trained, evaluated on dates never seen, and shown.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from glassformer.cli import flags
from glassformer.cli.evaluate import headline_of, write_scores
from glassformer.cli.train import NewRunArguments, train
from glassformer.config.recipes import load_recipe
from glassformer.errors import UsageError
from glassformer.run import Run
from glassformer.runs.folder import RunFolder
from glassformer.runs.records import Evaluation
from glassformer.utils import console
from glassformer.utils.formatting import glassformer_command

logger = logging.getLogger(__name__)

N_SHOWN = 8
"""Predictions in the table."""
OWN = "[de_DE] Mittwoch, 3. September 2014"
AMBIGUOUS = [(month, day) for day in range(1, 13) for month in range(1, 13) if month != day]
"""Months and days that can be exchanged, for `offer_finding`."""
MAX_TRIED = 20
"""Dates for which a head is looked for, about half a second each."""


class DemoArguments(NewRunArguments):
    """Train the recipe `dates`, evaluate it on held-out dates, show a few predictions and where the report is."""


def run(argv: Sequence[str]) -> int:
    """Run the command."""
    words, flag_args = flags.split_words(DemoArguments, argv, "demo")
    if words:
        hint = f"to train it: {glassformer_command('train', words[0])}"
        raise UsageError(f"demo takes no words, and {words[0]!r} came", hint)
    arguments, config = flags.parse_for_recipe(DemoArguments, flag_args, load_recipe("dates"), "demo")
    out = Path(arguments.out) if arguments.out else _free_folder(Path("runs") / "demo")
    RunFolder(out).check_new()
    what = "Dates as people write them, in many languages → ISO 8601"
    logger.info(f"{what}. Training a small Transformer from scratch …")
    trained = train(config, out, arguments)
    if trained is None:  # a dry run
        return 0
    evaluation = RunFolder(trained.path).read_evaluation() or Evaluation()
    if arguments.json:
        write_scores(evaluation.as_json(), as_json=True)
        return 0
    console.write(headline_of(evaluation) + "\n")
    shown = [(e["text"], e["translation"], e["reference"]) for e in evaluation.examples[:N_SHOWN]]
    rows = [(*row, "right" if row[1] == row[2] else "wrong") for row in shown]
    console.write_table(("as written", "predicted", "true", ""), rows)
    answer = trained.predict(OWN)
    logger.info(f"\none more: {OWN} → {answer['translation']}; try your own:")
    logger.info(f'  {glassformer_command("predict", out)} "{OWN}"')
    logger.info(f"the report, with plots: {RunFolder(out).report}")
    offer_finding(trained, out)
    return 0


def offer_finding(trained: Run, out: Path) -> None:
    """Find the head that decides between month first and day first, and print how to see its effect."""
    from glassformer.explain.edits.findings import find_head, write_findings

    logger.info(f"look inside: {glassformer_command('explain', out)}")
    texts = [f"[en_US] {month:02}/{day:02}/2026" for month, day in AMBIGUOUS]
    answers = trained.predict(texts)
    right = [
        text
        for text, answer, (month, day) in zip(texts, answers, AMBIGUOUS, strict=True)
        if answer["translation"] == f"2026-{month:02}-{day:02}"
    ]
    for text in right[:MAX_TRIED]:
        first, second = trained.explain(text), trained.explain(text.replace("[en_US]", "[en_GB]"))
        finding = find_head(first, second) if len(first.streams[0]) == len(second.streams[0]) else None
        if finding is not None:
            break
    else:
        logger.info("no single head decides between month first and day first in this model")
        return
    write_findings(RunFolder(trained.path).findings, trained, [finding])
    layer, head = re.findall(r"\d+", finding.edits[0])[:2]
    logger.info(
        f"that page opens on a finding: kept from attending to {first.streams[0].pieces[0]}, head {int(head) + 1} of "
        f"encoder layer {int(layer) + 1} turns {finding.before} into {finding.after}"
    )


def _free_folder(first: Path) -> Path:
    """Return the folder itself, or the first of `-2`, `-3` … that is not in use."""
    numbered = (first.with_name(f"{first.name}-{i}") for i in itertools.count(2))
    return next(path for path in itertools.chain([first], numbered) if not RunFolder(path).not_empty)
