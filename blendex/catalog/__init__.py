"""The catalog: what is known, in a database. Every query is in a repository of this package."""
