"""Receiving files: resumable (tus) and multipart."""
