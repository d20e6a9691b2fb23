"""Blockkeeper: keeps EC2 Capacity Blocks running for as long as a team needs them, and not a day longer.

``domain`` decides (pure: no boto3, no clock, no environment), ``aws`` adapts; handlers in the sibling folders join the two.
"""
