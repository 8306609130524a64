import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import glassformer
from glassformer import config
from glassformer.cli.main import HELP

PUBLIC = (
    "Config LanguageModel MultiHeadAttention Run TextClassifier Tokenizer Translator attention dry_run errors "
    "import_model load load_recipe overfit_batch resume trace train"
)


def test_the_public_names_are_sorted_and_all_there_and_another_is_an_attribute_error():
    assert glassformer.__all__ == sorted(glassformer.__all__) == PUBLIC.split() == dir(glassformer)
    for name in glassformer.__all__:
        assert getattr(glassformer, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = glassformer.trian  # type: ignore[attr-defined]


def test_one_sentence_says_everywhere_what_the_library_is():
    root = Path(__file__).parents[2]
    sentence = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["description"]
    assert (glassformer.__doc__ or "").startswith(f"{sentence}\n") and HELP.startswith(f"{sentence}\n")
    assert f"\n\n{sentence}\n\n" in (root / "README.md").read_text("utf-8")


def test_the_package_and_its_help_import_nothing_heavy():
    heavy = {"torch", "numpy", "sklearn", "matplotlib", "sacrebleu", "tokenizers", "babel", "rich"}
    modules = "glassformer, glassformer.config.recipes, glassformer.errors, glassformer.utils.console"
    script = f"import sys, {modules}; from glassformer.cli.main import main; main(['--help'])"
    subprocess.run([sys.executable, "-c", f"{script}; assert not {heavy} & sys.modules.keys()"], check=True)


def test_no_public_name_hides_a_module():
    """`glassformer.train` is the function, whichever submodules were imported before: none has its name."""
    package = Path(glassformer.__file__).parent
    modules = {p.stem for p in package.glob("*.py")} | {p.name for p in package.iterdir() if p.is_dir()}
    assert set(glassformer.__all__) & modules == {"errors"}  # which is the module itself


def test_every_config_field_is_described():
    """The docstring under a field is its help on the command line."""
    for file in sorted(Path(config.__file__).parent.glob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name != "Config":
                # A plain assignment is no field: it names the field that chooses a section of this one.
                body = [type(statement) for statement in node.body[1:] if not isinstance(statement, ast.Assign)]
                n_fields = len(getattr(config, node.name).__annotations__)
                assert body == [ast.AnnAssign, ast.Expr] * n_fields, node.name
