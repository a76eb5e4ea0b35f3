"""Problems to solve, from wherever they come.

| module | job |
|---|---|
| load | a dataset by its name or file: `load_dataset`, `load_problems` |
| options | what a user may say of a dataset: columns, kind of answers, a draw by level, a seed |
| known | public datasets that are pinned: where they are, and their files on disk |
| hub | any other of the Hugging Face hub, by its name |
| files, rows, columns | problems of a JSONL, CSV or Parquet file; its rows; which column is what |
| answers | what the cell of an answer means: numbers with separators, letters of choices |
| levels | so many problems of each level, drawn by a seed |
| demo, demo_questions | the generated demo problems; questions that the demo pair understands |
"""
