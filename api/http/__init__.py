"""What every request passes, and answers that are files or streams."""
