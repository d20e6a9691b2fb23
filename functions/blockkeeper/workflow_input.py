"""What a workflow is started with, checked once: people start workflows by hand."""

from typing import Any


class InputRefusedError(ValueError):
    """Somebody started the workflow with an input that it cannot work on; the message names field, rule and remedy."""


def refuse_malformed(block: Any) -> None:
    """Check the input of extend-block or replace-block: one block and the end that it is about.

    Raises:
        InputRefusedError: it is not as schemas/extend-block.schema.json says.
    """
    # In its own time: the checker takes longer to import than the rest of a function.
    from blockkeeper.schema_check import schema_problems

    if problems := schema_problems("extend-block", block):
        raise InputRefusedError("; ".join(str(problem) for problem in problems))
