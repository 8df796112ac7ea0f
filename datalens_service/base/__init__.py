"""Modules that every room uses: errors and their wording, settings, fields, clock and logs. They import no room."""
