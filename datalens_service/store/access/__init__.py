"""Keys, roles, browser sessions, tenants, webhooks, and who did what."""
