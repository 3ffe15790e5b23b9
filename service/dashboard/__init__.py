"""The pages: what the API says, for eyes. They read the catalog, act through the API, and decide nothing."""
