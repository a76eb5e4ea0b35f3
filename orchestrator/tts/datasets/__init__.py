"""Problems to solve: the generated demo set and JSONL files."""
