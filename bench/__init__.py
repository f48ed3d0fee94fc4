"""What a turn costs, measured beside a bare loop that does the same requests. ``python -m bench.run --help``."""
