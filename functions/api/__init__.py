"""The REST API: one function behind the routes of ``api.routes``."""
