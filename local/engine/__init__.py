"""An in-process Step Functions for tests; see `engine.Engine` and `world.World`."""

from .asl import Machine
from .coverage import branches, missing_branches
from .engine import Engine
from .errors import ApiError, DefinitionError, StateError
from .execution import Event, Execution

__all__ = [
    "ApiError",
    "DefinitionError",
    "Engine",
    "Event",
    "Execution",
    "Machine",
    "StateError",
    "branches",
    "missing_branches",
]
