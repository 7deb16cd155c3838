"""A report as one page that needs no network, no server and no second file; and the templates that all pages are made of."""
