"""A custom metric in one file: the number of words in an answer, and the share of answers that are too long.

`python examples/a_metric_of_your_own.py evaluate --metrics answer_length ...` adds this metric; `compare` and `report`
work too. Installed packages register it as an entry point: group `atwu.metrics`, `answer_length = "module:AnswerLength"`.
"""

from atwu import Column, Metric, MetricSetting, register_metric
from atwu.evaluation.columns import FORGET_OR_RETAIN
from atwu.evaluation.questions import question_prompt


def words(answer):
    """Number of words in an answer."""
    return len(answer.split())


@register_metric
class AnswerLength(Metric):
    name, about = "answer_length", "words in the greedy answer"
    needs, needs_weights = (FORGET_OR_RETAIN,), False
    settings = (MetricSetting("most_words", int, 20, "Maximum number of words of an answer.", least=1),)
    columns = (
        Column("answer_words", words, "words", "words in the answer", direction="none", range=(0, None), digits=1),
        Column("too_long", words, "too long", "share of answers that are too long", direction="down"),
    )

    def prompts(self):
        return [question_prompt(row) for rows in self.session.forget_and_retain_sets.values() for row in rows]

    def record(self):
        for split, rows in self.session.forget_and_retain_sets.items():
            found = [words(self.session.answer(question_prompt(row))) for row in rows]
            self.record_column(split, "answer_words", found)
            self.record_column(split, "too_long", [number > self.session.config.most_words for number in found])


if __name__ == "__main__":
    from atwu.cli import main

    main()
