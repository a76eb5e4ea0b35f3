"""Problems to solve, from wherever they come.

| module | job |
|---|---|
| load | a dataset by its name or file: `load_dataset`, `load_problems` |
| options | what is read of a dataset, and the part that is taken: draws by level, shards |
| hub | public datasets that are pinned, and any other of the Hugging Face hub, by its name |
| files, rows | problems of a JSONL, CSV or Parquet file; its rows, and which column is what |
| answers | what the cell of an answer means: numbers with separators, letters of choices |
| demo | the generated demo problems; questions that the demo pair understands |
"""
