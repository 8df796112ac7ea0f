"""RFC 9457 problem documents and their types."""
