"""Every choice of a run, as frozen dataclasses: a recipe is this in TOML, the flags of `train` this on a command line.

What belongs to one data set or optimizer stands in a section of its own, which counts only while it is chosen; a
number's interval stands at its field. A file a section; reading, writing and checking are in `recipes/`; this module imports only the
standard library, so that `--help` is quick.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from glassformer.config.data import DataConfig, DatesConfig, FilesConfig, Multi30kConfig, TextConfig
from glassformer.config.decoding import DecodeConfig
from glassformer.config.fields import idle
from glassformer.config.model import ModelConfig
from glassformer.config.training import AdamConfig, AdamWConfig, MuonConfig, SGDConfig, TrainConfig

__all__ = [
    "AdamConfig",
    "AdamWConfig",
    "Config",
    "DataConfig",
    "DatesConfig",
    "DecodeConfig",
    "FilesConfig",
    "ModelConfig",
    "Multi30kConfig",
    "MuonConfig",
    "SGDConfig",
    "TextConfig",
    "TrainConfig",
    "idle",
]


@dataclass(frozen=True)
class Config:
    """A whole run."""

    task: str = ""
    """What is learned: the name of a task."""
    recipe: str = ""
    """The recipe this came from; empty where it was made in Python."""
    note: str = ""
    """What a recipe wants said in the report."""
    auto: tuple[str, ...] = ()
    """Settings chosen from the size of the training data; one that is set by hand is removed from here."""
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
