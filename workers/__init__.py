"""The cluster form: Celery on Redis tells workers that there is work; the catalog says which, and to whom it goes."""
