"""The mutations must not rot: each still finds its text, and makes a program that differs in that and can be run."""

import ast
import json

import pytest

from tests.mutations import MUTATIONS, ROOT, mutated


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_applies_to_the_code(name):
    for path, text in mutated(ROOT, name).items():
        (json.loads if path.suffix == ".json" else ast.parse)(text)


def test_a_text_that_is_not_there_is_told(tmp_path):
    (tmp_path / "functions/blockkeeper/domain").mkdir(parents=True)
    (tmp_path / "functions/blockkeeper/domain/extension.py").write_text("")
    with pytest.raises(ValueError, match="has 0 times"):
        mutated(tmp_path, "the purchase's answer is trusted")
