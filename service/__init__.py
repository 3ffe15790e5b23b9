"""The HTTP side: FastAPI endpoints that only translate, and text answers for shells."""
