"""The page at `/`: a question, the tree of its search while it grows, the answer, the report of it.

    browser ──► /v1/chat/completions, streamed ──► steps ──► the report's own tree viewer
            ──► /reports/ID.json, .html: the tree with what became of each step, to keep or to share

| module | job |
|---|---|
| files | the page's files: its own, and the viewer's of `tts.reports.page` |
| kept_reports | reports of searches on disk: written when a request asks; the oldest go |
"""
