"""The processes that `up` and `demo` start and watch: the embedded Valkey, the web, the Celery workers."""
