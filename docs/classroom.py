"""Write the bundle for a classroom without network: site, notebooks, trained runs, saved pages, data and the package.

python docs/classroom.py      # `make classroom` builds the site and the wheel first
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS / "book")]

import runs  # noqa: E402
from sentences import write_sentences  # noqa: E402

import glassformer  # noqa: E402
from glassformer.data.datasets.local_files import load_text_data  # noqa: E402

MAX_BYTES = 40_000_000
TEXTS = {"dates": "[fr_FR] 14 juillet 1989", "topics": "the board sold the sheep", "stories": "she ate a"}
README = """Glassformer for a classroom

site/index.html     the documentation and the book; open it in a browser
pages/*.html        three trained models, each with every number of one text; open them in a browser
notebooks/          the chapters with their exercises: jupyter lab notebooks
runs/               the trained models: glassformer explain runs/dates "[en_US] March 5, 2021"
data/               what they were trained on
*.whl               the package: pip install --no-deps FILE (it needs Python 3.11, torch and its other requirements)

Nothing here needs a network. Licences and a plan of six lessons: site/how-to/teach.html
"""


def write_bundle(folder: Path) -> Path:
    """Write the bundle as a folder and as a zip file with its name; returns the zip file.

    Raises:
        SystemExit: the zip file has more than 40 MB.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "README.txt").write_text(README, encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", folder)
    shutil.copytree(DOCS / "_build" / "html", folder / "site", ignore=shutil.ignore_patterns(".doctrees", "*.ipynb"))
    write_notebooks(folder / "notebooks")
    (folder / "pages").mkdir()
    for make in runs.RUNS:
        run = make()
        skipped = shutil.ignore_patterns("checkpoints")  # the optimizer's state: only a training needs it
        shutil.copytree(run.path, folder / "runs" / run.path.name, ignore=skipped)
        if text := TEXTS.get(run.path.name):
            run.explain(text).save(folder / "pages" / f"{run.path.name}.html")
    write_data(folder / "data")
    for wheel in (ROOT / "build" / "wheel").glob(f"glassformer-{glassformer.__version__}-*.whl"):
        shutil.copy(wheel, folder)
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, Path("glassformer-classroom") / file.relative_to(folder))
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{path} has {size:,} bytes, and at most {MAX_BYTES:,} were expected")
    return path


def write_notebooks(folder: Path) -> None:
    """Copy notebooks and what their cells import; the solutions of the exercises stay in, as their checks need them."""
    shutil.copytree(DOCS / "book" / "exercises", folder / "exercises", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(DOCS / "book" / "results", folder / "results")
    site = DOCS / "_build" / "html" / "book"
    for path in [*site.glob("*.ipynb"), *site.glob("*.py"), *(DOCS / "book").glob("*.py")]:
        shutil.copy(path, folder)
    shutil.copy(ROOT / "benchmarks" / "results.json", folder / "results" / "all.json")
    (folder / runs.NEXT_TO_NOTEBOOKS).write_text("../runs\n", encoding="utf-8")


def write_data(folder: Path) -> None:
    """Write the sentences, and the dates as tables of source and target."""
    write_sentences(folder / "sentences")
    run = runs.dates()
    for name, split in load_text_data(run.task.schema, run.config.data).splits().items():
        path = folder / "dates" / f"{name}.tsv"
        path.parent.mkdir(exist_ok=True)
        pairs = zip(split.text, split.answers, strict=True)
        path.write_text("source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")


if __name__ == "__main__":
    path = write_bundle(ROOT / "build" / "classroom")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")
