"""How the demo models were made: tokenizer, model, data, sampling, training, evaluation."""
