"""One job: train, evaluate, report, package."""
