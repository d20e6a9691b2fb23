"""Pure decisions. Nothing here imports boto3, reads a clock or looks at the environment: the clock is an argument."""
