"""`atwu methods`: list methods and components, or describe one method."""

from __future__ import annotations

import json
from dataclasses import dataclass

from atwu.cli.cli_options import cli_option
from atwu.cli.output import say


@dataclass(kw_only=True)
class MethodsCommand:
    """List all methods and their components, or describe one method.

    Example: atwu methods atwu
    """

    name: str | None = cli_option("Name of the method to describe.", None, positional=True)
    json: bool = cli_option("Print JSON instead of tables.", False)

    def run(self) -> None:
        """Print the tables, or the description of one method."""
        from rich.console import Console

        from atwu._names import lookup
        from atwu.cli.methods_listing import explain_method, list_methods
        from atwu.methods.method_facts import as_plain
        from atwu.methods.method_table import METHODS
        from atwu.methods.plugins import load_plugins

        load_plugins()
        if self.name is not None:
            lookup("method", self.name, METHODS)
        console = Console(markup=False, highlight=False, emoji=False)
        if self.json:
            plain = {name: as_plain(name, row) for name, row in METHODS.items() if self.name in (None, name)}
            say(json.dumps(plain if self.name is None else plain[self.name], indent=2))
        elif self.name is None:
            list_methods(console)
        else:
            explain_method(console, self.name)
