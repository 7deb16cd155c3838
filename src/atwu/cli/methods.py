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
        from rich.console import Console

        from atwu._names import lookup
        from atwu.cli.methods_listing import explain_method, list_methods, method_as_plain
        from atwu.methods.component_registry import load_plugins
        from atwu.methods.method_table import METHODS

        load_plugins()
        console = Console(markup=False, highlight=False, emoji=False)
        if self.name is None:
            if self.json:
                say(json.dumps({name: method_as_plain(name) for name in METHODS}, indent=2))
            else:
                list_methods(console)
            return
        lookup("method", self.name, METHODS)
        if self.json:
            say(json.dumps(method_as_plain(self.name), indent=2))
        else:
            explain_method(console, self.name)
