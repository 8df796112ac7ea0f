"""Jobs, leases, events and generators."""
