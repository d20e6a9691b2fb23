"""The main job before the reader's eyes: a fleet of blocks on the local AWS, the deployed stack, and what becomes of each block."""
