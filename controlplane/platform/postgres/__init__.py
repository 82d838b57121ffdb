"""Django's PostgreSQL, with connections that outlive a request."""
