from tests.tasks.heads import load as load
from tests.tasks.heads import runs_of as runs_of
