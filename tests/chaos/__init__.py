"""Random kills of every part of a running service, and a check of its books afterwards."""
