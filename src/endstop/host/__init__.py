"""The machine under everything that runs: processes, paths, git, fingerprints, the sandbox."""
