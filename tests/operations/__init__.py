"""What an operator relies on, shown with real processes and servers: `scripts/operations NAME`."""
