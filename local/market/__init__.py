"""A Capacity Block market with Auto Scaling: what EC2 does with blocks, extensions and groups, on a clock that tests set.

Rules come from the EC2 and Auto Scaling user guides and botocore's service models. Where AWS documents no error code or order, the
choice is named beside the code. Nothing here knows which emulator serves it: `Market.call` takes and gives botocore-shaped dicts.
"""

from local.market.errors import LostAnswerError, MarketError
from local.market.market import Market

__all__ = ["LostAnswerError", "Market", "MarketError"]
