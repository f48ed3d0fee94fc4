"""Runs AI agents unattended and knows when to stop."""
