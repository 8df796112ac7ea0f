"""Released classifiers: architectures, files and predictions."""
