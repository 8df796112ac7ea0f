"""Reading of uploads in a confined process."""
