"""Accelerators of the instance types that EC2 sells as Capacity Blocks, to show people what they pay for.

Source: "Amazon EC2 Capacity Blocks for ML" pricing page. A type that is not listed is shown without them, never guessed.
"""

_ACCELERATORS = {
    "p6-b300.48xlarge": (8, "B300"),
    "p6-b200.48xlarge": (8, "B200"),
    "p5en.48xlarge": (8, "H200"),
    "p5e.48xlarge": (8, "H200"),
    "p5.48xlarge": (8, "H100"),
    "p5.4xlarge": (1, "H100"),
    "p4de.24xlarge": (8, "A100"),
    "p4d.24xlarge": (8, "A100"),
    "trn2.48xlarge": (16, "Trainium2"),
    "trn2.3xlarge": (1, "Trainium2"),
    "trn1.32xlarge": (16, "Trainium"),
    "u-p6e-gb200x72": (72, "GB200"),
    "u-p6e-gb200x36": (36, "GB200"),
}


def accelerators(instance_type: str, instance_count: int | None) -> str | None:
    """Such as `64 H100`; None when the type or the count is not known."""
    if instance_type not in _ACCELERATORS or instance_count is None:
        return None
    each, model = _ACCELERATORS[instance_type]
    return f"{each * instance_count} {model}"


def accelerators_each(instance_type: str) -> int | None:
    """Accelerators of one instance; None when the type is not known."""
    return _ACCELERATORS[instance_type][0] if instance_type in _ACCELERATORS else None
