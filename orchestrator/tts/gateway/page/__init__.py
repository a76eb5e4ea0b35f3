"""The page at `/`: chats and searches, with the trees that grow, and scores.

    browser ──► /v1/models/NAME: what can be set, as a form
            ──► /v1/chat/completions, streamed ──► text, or steps ──► the report's own tree viewer
            ──► /pooling: the scores of an answer that has none

| module | job |
|---|---|
| files | the page's files: its own, and the viewer's of `tts.reports.page` |

In the browser (`static/`, modules): `main.js` holds the conversation, `settings.js` the form,
`asking.js` gets an answer through `api.js`, `turn.js` and `live_tree.js` show it, `markdown.js` and
`math.js` draw a model's text, `history.js` and `history_list.js` keep conversations.
`static/vendor/` holds third parties' builds, which `scripts/run vendor` fetches and verifies.

A model's text never becomes HTML: tokens of Markdown make elements of known names, and the policy
of `files` (trusted types) forbids any script to set HTML.
"""
