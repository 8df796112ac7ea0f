"""Released generators. Nothing in here may import `datalens_service.models.teachers` (import-linter)."""
