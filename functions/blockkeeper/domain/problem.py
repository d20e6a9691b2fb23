"""What is wrong with something that came from outside: the field, the rule and the remedy."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of one field.

    Attributes:
        field: where, such as `groups[0].drain_minutes`; `body` for the whole.
        found: what stands there, in words, short and never a secret, such as `is 15` or `is missing`.
        rule: what is right, such as `EC2 sells 1 to 14 days, then whole weeks up to 26`.
        remedy: what to do, such as `use 14 or 21`.
    """

    field: str
    found: str
    rule: str
    remedy: str

    def __str__(self) -> str:
        """One sentence: `extend_by_days is 15; EC2 sells 1 to 14 days, then whole weeks up to 26 (use 14 or 21)`."""
        return f"{self.field} {self.found}; {self.rule} ({self.remedy})"

    def as_json(self) -> dict[str, str]:
        """The form that the API answers."""
        return {"field": self.field, "rule": self.rule, "remedy": self.remedy, "message": str(self)}
