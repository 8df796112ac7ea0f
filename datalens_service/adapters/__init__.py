"""Ways to other systems: message broker, mail, webhooks, identity provider, and the state at a start."""
