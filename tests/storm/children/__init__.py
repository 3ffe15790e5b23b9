"""What children of a storm run: the functions of the product, with sources that are poison, and a journal."""
