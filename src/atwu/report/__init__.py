"""Reports of finished runs: tables, figures, exports and the report page."""
