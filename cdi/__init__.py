"""Container Device Interface specs: models, validation, writing, resolution, application."""
