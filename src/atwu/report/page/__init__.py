"""The report as one self-contained HTML page, and the templates of all pages."""
