"""A custom metric in one file: the number of words in an answer, and the share of answers that are too long.

`python examples/a_metric_of_your_own.py evaluate --metrics answer_length ...` adds this metric; `compare` and `report`
work too. Installed packages register it as an entry point: group `atwu.metrics`, `answer_length = "module:AnswerLength"`.
"""

from atwu import Column, Metric, MetricSetting, register_metric
from atwu.evaluation.columns import FORGET_OR_RETAIN


def words(answer):
    """Number of words in an answer."""
    return len(answer.split())


@register_metric
class AnswerLength(Metric):
    name, about = "answer_length", "words in the greedy answer"
    needs, needs_weights, asks = (FORGET_OR_RETAIN,), False, True
    settings = (MetricSetting("most_words", int, 20, "Maximum number of words of an answer.", least=1),)
    columns = (
        Column("answer_words", words, "words", "words in the answer", direction="none", range=(0, None), digits=1),
        Column("too_long", words, "too long", "share of answers that are too long", direction="down"),
    )

    def record(self):
        most = self.session.config.most_words
        self.record_answers(
            answer_words=lambda row, answer: words(answer),
            too_long=lambda row, answer: words(answer) > most,
        )


if __name__ == "__main__":
    from atwu.cli import main

    main()
