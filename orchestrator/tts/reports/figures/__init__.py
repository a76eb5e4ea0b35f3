"""Figures of reports: a Vega-Lite chart, the numbers behind it, and how to read it.

- `figure`: what a figure is
"""
