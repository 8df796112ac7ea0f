"""The web pages of the service: what people see of the same objects that the REST API serves."""
