"""The kernel: pure functions over events. No clock, no randomness, no files, no sockets, no threads."""
