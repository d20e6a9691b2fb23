"""The `blockkeeper` command."""
