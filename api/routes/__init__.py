"""The operations, one module per resource."""
