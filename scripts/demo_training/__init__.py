"""The parts of ``train_demo_models.py``: tokenizer, model, data, sampling, evaluation."""
