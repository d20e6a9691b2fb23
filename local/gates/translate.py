"""Writes the template as CloudFormation will see it: the SAM transform applied, offline, by the library that AWS itself uses.

python -m local.gates.translate OUT.json
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

ROOT = Path(__file__).resolve().parents[2]
# Where `sam package` would have put code and definitions; the transform refuses local paths.
PACKAGED = "s3://bucket/key"
LOCAL_PATHS = {"AWS::Serverless::StateMachine": "DefinitionUri", "AWS::Serverless::LayerVersion": "ContentUri"}


class _NoManagedPolicies:
    """The transform asks IAM for managed policies by name; the template names none, so there is nothing to ask."""

    def load(self) -> dict[str, str]:
        return {}


def translated(path: Path) -> dict[str, Any]:
    """The template with the transform applied. Raises samtranslator's InvalidDocumentException with all that is wrong."""
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")  # the transform looks nowhere else
    document: dict[str, Any] = yaml_parse(path.read_text("utf-8"))
    document["Globals"]["Function"]["CodeUri"] = PACKAGED
    for resource in document["Resources"].values():
        if (local_path := LOCAL_PATHS.get(resource["Type"])) is not None:
            resource["Properties"][local_path] = PACKAGED
    result: dict[str, Any] = transform(document, {}, _NoManagedPolicies(), passthrough_metadata=True)
    return result


def main() -> int:
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(translated(ROOT / "template.yaml"), indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
