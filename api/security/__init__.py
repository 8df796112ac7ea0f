"""Access: keys, browser sessions, permissions, rate limits, signed addresses."""
