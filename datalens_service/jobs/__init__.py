"""Runs one job: train, evaluate, report, package; errors of `store` pass through."""
