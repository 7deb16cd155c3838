"""Check that no text uses a phrase for which the glossary has a term: `python scripts/check_words.py [ROOT]`.

Searches code, documents and configuration for the phrases of scripts/words.yaml, ignoring case, line breaks, comment markers
and quotes between the words. Recorded results keep the words of their time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

WORDS = "scripts/words.yaml"
FOLDERS = ("src", "docs", "benchmarks", "examples", "scripts", "theory", ".github", ".ci")
FILES = ("README.md", "CONTRIBUTING.md", "Makefile", ".ci/run")
SUFFIXES = {".py", ".md", ".html", ".css", ".js", ".yaml", ".yml", ".ipynb"}
EXEMPT = {
    WORDS,  # the phrases
    "scripts/same_numbers.yaml",  # the old names of flags and keys
    "src/atwu/data/english_verbs.yaml",  # words of the language itself
    "src/atwu/benchmarks/people_facts.yaml",  # these four hold text for models
    "src/atwu/data/alternates.py",
    "src/atwu/evaluation/shipped_texts.yaml",
    "src/atwu/judge/rubrics.yaml",
    "src/atwu/judge/rules/normalized_words.yaml",
}
RESULTS = "benchmarks/results/"
BETWEEN = r"""(?:[\s#*>/]|["']\s*\n\s*[fr]?["'])+"""


def found(root: Path) -> Iterator[str]:
    """One line per phrase found: file, line, phrase, and the term to use instead."""
    terms = yaml.safe_load((root / WORDS).read_text(encoding="utf-8"))
    instead = {phrase: term for term, replaced in terms.items() for phrase in replaced}
    patterns = {
        phrase: re.compile(rf"(?<![\w-]){BETWEEN.join(map(re.escape, phrase.split()))}(?![\w-])", re.IGNORECASE)
        for phrase in instead
    }
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES]
    for path in [*paths, *(root / name for name in FILES if (root / name).is_file())]:
        name = path.relative_to(root).as_posix()
        text = "" if name in EXEMPT or name.startswith(RESULTS) else path.read_text(encoding="utf-8")
        for phrase, pattern in patterns.items():
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                if "# old name" in text.split("\n")[line - 1]:  # a seed or a key that must stay what it was
                    continue
                yield f"{name}:{line}: {phrase!r} (use: {instead[phrase]})"


if __name__ == "__main__":
    lines = list(found(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))
