"""What every room uses: errors and their wording, settings, fields, clock, logs. It imports no other room."""
