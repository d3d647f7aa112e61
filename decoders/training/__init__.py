"""Training of the parts that specviz brings along."""
