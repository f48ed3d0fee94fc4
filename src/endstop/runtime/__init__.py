"""What turns the wheel: decide, journal, perform, journal, apply."""
