"""Makes the bundled target from nothing, on a CPU: tokenizer, text, copying heads, training, evaluation."""
