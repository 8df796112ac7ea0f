# Generated from _async by scripts/unasync. Do not edit.
"""The asynchronous client, from which `scripts/unasync` generates the synchronous one."""
