"""Blockkeeper: keeps EC2 Capacity Blocks running for as long as a team needs them, and not a day longer.

``domain`` decides (pure: no boto3, no clock, no environment), ``aws`` adapts; handlers in the sibling folders join the two.
"""

import gc

# boto3 and its service models are up to a hundred thousand objects that live as long as the process. With Python's threshold of
# 700 new objects a start looks through them for garbage again and again, a fifth of its time or more (`bench.cold_start`).
gc.set_threshold(50_000)
