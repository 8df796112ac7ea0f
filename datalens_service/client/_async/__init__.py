"""The asynchronous client, from which `scripts/unasync` generates the synchronous one."""
