"""Who may do what: keys, browser sessions, permissions, rate limits, signed addresses."""
