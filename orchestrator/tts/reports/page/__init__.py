"""`report.html`: figures and search trees on one page that opens offline, from disk, for ever.

    Report.write ─┬─ trees ───────────────► data blocks
                  ├─ figures ─────────────► data blocks
                  └─ static/, templates/ ─► one HTML file with its content-security policy

| module | job |
|---|---|
| page | the page from a title, facts, figures and runs |
| trees | the tree of each problem from the log, packed as text; which is shown first |
| assets | scripts and styles, ours and third parties', and the policy that allows no others |
| of_runs | the page of a run, of a group, of several runs: title, figures, facts, where it lies |
| export | figures as PDF, SVG and PNG files |

In the browser (`static/`): `store.js` reads the data, `charts.js` draws figures, `problems.js`
lists problems, `tree.js` draws a tree, `pane.js` shows one with its times and
answers, `viewer.js` ties them together. `static/vendor/` holds third
parties' builds, which `scripts/run vendor` fetches and verifies.
"""
