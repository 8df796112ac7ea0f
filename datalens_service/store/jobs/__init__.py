"""Jobs, leases, events and released models."""
