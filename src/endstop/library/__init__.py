"""Goals from Python; the public names are those of ``endstop`` itself."""
