"""The local AWS: an emulator with a Capacity Block market of our own, and the engine that runs workflows on a virtual clock."""
