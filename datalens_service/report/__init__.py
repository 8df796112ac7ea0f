"""The privacy report and the model card, as documents and pages."""
