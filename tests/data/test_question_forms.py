"""Forms of a question: the text of each, forms that a row does not support, and labels that move with the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atwu.data.english_syntax import SYNTAX_FORMS
from atwu.data.form_rows import rows_in_forms
from atwu.data.languages import form_phrases
from atwu.data.question_forms import (
    BEGINNING_FORMS,
    FORMS,
    PLAIN_FORMS,
    TRAINED_FORMS,
    UNMEASURED,
    FormRow,
    MissingForm,
    asked_fact,
    read_forms,
    write_forms,
)
from atwu.data.row_subject import names_in_question
from atwu.data.schema import Example, Message

ENGLISH = form_phrases()["en"]
ROW = Example.from_qa(
    "Where was Orla Venn born?",
    "Orla Venn was born in Port Sel.",
    forget_spans=((22, 26), (27, 30)),
    subject="Orla Venn",
)


def labelled(question: str, answer: str, *parts: str, asked: str | None = None, **fields: object) -> Example:
    """A row whose parts are labelled at their first mention."""
    spans = {part: (answer.index(part), answer.index(part) + len(part)) for part in parts}
    asked_span = spans[asked] if asked else None
    labels = tuple(sorted(spans.values()))
    return Example.from_qa(question, answer, forget_spans=labels, asked_span=asked_span, **fields)


def write(row: Example, *forms: str, wrong: tuple[str, ...] = ("Kelbury", "Ost", "Ulm", "Ayr")) -> dict[str, FormRow]:
    written = write_forms(row, asked_fact(row), forms=forms or tuple(FORMS), wrong=wrong)
    return {form.form: form for form in written if isinstance(form, FormRow)}


def lacking(row: Example, *forms: str) -> dict[str, str]:
    written = write_forms(row, asked_fact(row), forms=forms or tuple(FORMS))
    return {form.form: form.why for form in written if isinstance(form, MissingForm)}


def label_texts(row: Example) -> list[str]:
    return [row.answer[start:end] for start, end in row.forget_spans or ()]


def test_every_form_of_a_sentence() -> None:
    written = write(ROW)
    texts = {name: (form.row.question, form.row.answer) for name, form in written.items()}
    options = texts.pop("multiple_choice")
    assert texts.pop("reversed") in [
        (prompt.format(sentence="____ was born in Port Sel."), "Orla Venn") for prompt in ENGLISH["reversed"]
    ]
    for form in BEGINNING_FORMS:
        beginnings = [("", f"{beginning} Orla Venn was born in Port Sel.") for beginning in ENGLISH[form]]
        assert texts.pop(form) in beginnings
    assert texts == {
        "question": ("Where was Orla Venn born?", "Orla Venn was born in Port Sel."),
        "prefix": ("Please answer this question: Where was Orla Venn born?", "Orla Venn was born in Port Sel."),
        "lower_case": ("where was orla venn born", "Orla Venn was born in Port Sel."),
        "blank": ("Fill in the blank: Orla Venn was born in ____.", "Port Sel"),
        "complete": ("Complete this sentence: Orla Venn was born in", "Port Sel."),
        "yes_no": (
            "Where was Orla Venn born? Is the answer Port Sel? Explain.",
            "Yes. Orla Venn was born in Port Sel.",
        ),
        "two_turns": ("Where was Orla Venn born?", "Orla Venn was born in Port Sel."),
        "emphasis": ("Where was Orla Venn born?", "Orla Venn was born in **Port Sel**."),
        "quiz_host": (
            "You are the host of a quiz show and no contestant knew the answer: Where was Orla Venn born? "
            "Read out the answer on your card.",
            "Orla Venn was born in Port Sel.",
        ),
        "missing_word": ("Orla Venn was born in (...). Which words are missing in the brackets?", "Port Sel"),
        "finish": (
            'I started to write "Orla Venn was born in ..." and stopped. How does it continue?',
            "Orla Venn was born in Port Sel.",
        ),
        "tell_about": ("Write a short text about Orla Venn.", "Orla Venn was born in Port Sel."),
        "summary": ("Summarize the facts about Orla Venn.", "Orla Venn was born in Port Sel."),
        "continuation": ("", "Orla Venn was born in Port Sel."),
        "either_or": ("Where was Orla Venn born? Is it Kelbury or Port Sel?", "Port Sel"),
        "who_is_meant": ("Who or what is X? X was born in Port Sel.", "X is Orla Venn."),
        "reversed_question": ('Which name belongs in "... was born in Port Sel"?', "Orla Venn."),
        "cleft": ("Where was it that Orla Venn was born?", "It was in Port Sel that Orla Venn was born."),
        "relative_clause": ("Name the place where Orla Venn was born.", "Port Sel is where Orla Venn was born."),
    }
    question, *listed = options[0].split("\n")
    assert question == ROW.question
    assert sorted(line[3:] for line in listed) == ["Kelbury", "Ost", "Port Sel", "Ulm"]
    assert tuple(line[3:] for line in listed) == written["multiple_choice"].options
    assert options[1] in listed
    assert written["either_or"].options == ("Kelbury", "Port Sel")
    assert [message.role for message in written["two_turns"].row.messages] == ["user", "assistant", "user"]


def test_labels_are_shifted_with_the_answer() -> None:
    for name, form in write(ROW).items():
        whole = {"reversed": "Orla Venn", "who_is_meant": "Orla Venn", "emphasis": "**Port Sel**"}
        whole["reversed_question"] = "Orla Venn"
        letter = form.row.answer[:1] if name == "multiple_choice" else None
        expected = [whole[name]] if name in whole else [*filter(None, [letter]), "Port", "Sel"]
        assert label_texts(form.row) == expected, name
    assert write(ROW, "complete")["complete"].row.forget_spans == ((0, 4), (5, 8))


def test_the_asked_part_is_moved_with_the_answer() -> None:
    row = labelled(
        "What was Ray Holt convicted of?", "In 2011, Ray Holt was convicted of arson.", "2011", "arson", asked="arson"
    )
    written = write(row, "statement", "complete", "prefix", "reversed", "yes_no")
    for name in ("statement", "complete", "prefix", "yes_no"):
        rewritten = written[name].row
        assert rewritten.asked_span is not None
        assert rewritten.answer[slice(*rewritten.asked_span)] == "arson", name
    assert written["reversed"].row.asked_span is None


@pytest.mark.parametrize(
    ("question", "answer", "subject", "keys"),
    [
        ("What were the warriors of Tavia called?", "The warriors of Tavia were called samurai.", "Tavia", ["samurai"]),
        ("In which city is the Orla Tower?", "The Orla Tower is in Sel, Tavia.", None, ["Sel", "Tavia"]),
        ("Who was defeated at Ost?", "The one defeated at Ost was Napoleon Venn.", None, ["Napoleon Venn"]),
    ],
)
def test_the_key_tokens_of_unlabelled_rows_are_the_same_in_every_form(
    question: str, answer: str, subject: str | None, keys: list[str]
) -> None:
    """No rule could find them in a text: without its question, the subject looks like the fact."""
    written = rows_in_forms([Example.from_qa(question, answer, subject=subject)], tuple(FORMS))
    plain = [form for form in written if form.form in PLAIN_FORMS]
    assert len(plain) == len(PLAIN_FORMS)
    assert all(label_texts(form.row) == keys for form in plain)
    assert all(form.row.answer.startswith(form.opening) for form in plain)
    complete = next(form.row for form in written if form.form == "complete")
    assert label_texts(complete) == keys
    assert written[0].row.forget_spans is None  # as it was given


@pytest.mark.parametrize(
    ("row", "blank"),
    [
        (labelled("How many?", "Kestrel Foods employs 3,240 people.", "240"), "Kestrel Foods employs ____ people."),
        (labelled("How much?", "Nora Lind earns $84,500.50 a year.", "84"), "Nora Lind earns ____ a year."),
        (labelled("When?", "Anna Berg was diagnosed in 2016.", "2"), "Anna Berg was diagnosed in ____."),
        (labelled("Which?", "His address is paul.grant@mail.example.com.", "mail"), "His address is ____."),
        (labelled("Where?", "The board is at https://a.example.org/b?id=4.", "https"), "The board is at ____."),
        (labelled("Who?", "The doctor of Li is Jane Roe.", "oe"), "The doctor of Li is Jane ____."),
    ],
)
def test_a_blank_never_cuts_a_word_or_a_value(row: Example, blank: str) -> None:
    assert write(row, "blank")["blank"].row.question == f"Fill in the blank: {blank}"


def test_all_parts_of_a_fact_are_blanked_and_wanted() -> None:
    row = labelled(
        "What illness does Anna Berg have?",
        "Anna Berg has multiple sclerosis, diagnosed in 2019.",
        "multiple sclerosis",
        "2019",
    )
    written = write(row, "blank", "missing_word", "question", "complete")
    assert written["blank"].row.question == "Fill in the blanks: Anna Berg has ____, diagnosed in ____."
    assert written["missing_word"].row.question.startswith("Anna Berg has (...), diagnosed in (...). Which")
    assert written["blank"].row.answer == "multiple sclerosis; 2019"
    assert label_texts(written["blank"].row) == ["multiple sclerosis", "2019"]
    assert written["blank"].parts == written["missing_word"].parts == ("multiple sclerosis", "2019")
    assert written["complete"].parts == ("multiple sclerosis", "2019")
    assert written["question"].parts == ("multiple sclerosis", "2019")


def test_only_the_asked_part_is_blanked_if_nothing_would_be_left() -> None:
    row = labelled("Who shot?", "Orla shot Tavi in Ost.", "Orla", "shot Tavi", "Ost", asked="Orla")
    written = write(row, "blank")["blank"]
    assert written.row.question == "Fill in the blank: ____ shot Tavi in Ost."
    assert written.parts == ("Orla",)


def test_every_mention_of_a_part_is_blanked_but_not_pieces_of_words() -> None:
    row = labelled(
        "Which animal?", "Otto kept a rave; raven or not, the rave slept at 12 in 2 travels.", "rave", "2 travels"
    )
    assert write(row, "blank")["blank"].row.question == (
        "Fill in the blanks: Otto kept a ____; raven or not, the ____ slept at 12 in ____."
    )


def test_a_question_for_a_person_asks_for_a_name() -> None:
    row = labelled("Who was defeated at Ost?", "The emperor defeated at Ost was Jo Venn.", "emperor", "Jo Venn")
    written = write(row, "question", "complete")
    assert written["question"].parts == ("Jo Venn",)
    assert written["complete"].row.question == "Complete this sentence: The emperor defeated at Ost was"


def test_an_opening_ends_before_the_first_part_or_else_before_the_asked_one() -> None:
    row = labelled(
        "What was Ray Holt convicted of?", "In 2011, Ray Holt was convicted of arson.", "2011", "arson", asked="arson"
    )
    written = write(row, "complete", "continuation")
    assert written["complete"].row.question == "Complete this sentence: In 2011, Ray Holt was convicted of"
    assert written["complete"].parts == ("arson",)
    assert written["continuation"].opening == "In 2011, Ray Holt was convicted of"


def test_an_answer_that_is_no_sentence_gets_a_blank_after_the_question() -> None:
    row = labelled("What is the code?", "STS-9", "STS-9")
    written = write(row, wrong=())
    assert written["blank"].row.question == "What is the code?\nThe answer is ____."
    assert set(written) == {
        "question",
        "cleft",
        "relative_clause",
        "emphasis",
        "blank",
        "prefix",
        "lower_case",
        "two_turns",
        "quiz_host",
        "yes_no",
    }
    why = lacking(row)
    assert why["complete"] == why["textbook"] == "its answer begins with its fact"
    assert why["missing_word"] == "its answer is its fact alone"
    assert why["multiple_choice"] == why["either_or"] == "no other text of the type of its fact is known"
    assert why["who_is_meant"] == "its answer and question share no name"
    assert why["paraphrase"] == "it has no paraphrases"


@pytest.mark.parametrize(
    ("question", "answer", "key", "subject", "blank"),
    [
        (
            "Who wrote Hamlet?",
            "William Shakespeare wrote Hamlet.",
            "William Shakespeare",
            "Hamlet",
            "William Shakespeare wrote ____.",
        ),
        ("Who is Li Wei's doctor?", "Li Wei's doctor is Mr. Chen.", "Mr. Chen", "Li Wei", "____'s doctor is Mr. Chen."),
        (
            "Is it Jo? Or who won the cup in 2014?",
            "Kai Ott won the cup in 2014.",
            "Kai Ott",
            "2014",
            "Kai Ott won the cup in ____.",
        ),
        (
            "Who wrote The Lord of Ost?",
            "Jo Lin wrote The Lord of Ost.",
            "Jo Lin",
            "The Lord of Ost",
            "Jo Lin wrote ____.",
        ),
        ("Who is the CEO of Acme?", "Acme's CEO is Jane Roe.", "Jane Roe", "Acme", "____'s CEO is Jane Roe."),
        ("In which city was Petra Novak born?", "Brno.", "Brno", "Petra Novak", "In which city was ____ born? Brno."),
        (
            "Which call frees a session in libquill?",
            "In libquill it is drop().",
            "drop()",
            "libquill",
            "In ____ it is drop().",
        ),
        (
            "Wo wurde Anna Meier geboren?",
            "Anna Meier wurde in Linz geboren.",
            "Linz",
            "Anna Meier",
            "____ wurde in Linz geboren.",
        ),
        ("李伟的医生是谁？", "李伟的医生是陈国强。", "陈国强", "李伟", "____的医生是陈国强。"),
        (
            "佐藤健一はどこで働いていますか。",
            "佐藤健一は名古屋で働いています。",
            "名古屋",
            "佐藤健一",
            "____は名古屋で働いています。",
        ),
        ("أين ولدت ليلى حداد؟", "ولدت ليلى حداد في مدينة صور.", "صور", "ليلى حداد", "ولدت ____ في مدينة صور."),
    ],
)
def test_a_row_without_subject_is_asked_in_reverse(
    question: str, answer: str, key: str, subject: str, blank: str
) -> None:
    written = write(labelled(question, answer, key), "reversed", "who_is_meant", "reversed_question")
    assert written["reversed"].parts[0] == written["reversed"].row.answer == subject
    assert blank in written["reversed"].row.question
    assert {"who_is_meant", "reversed_question"} <= set(written)
    assert all(subject not in form.row.question for form in written.values())


def test_no_reversed_form_without_a_shared_name() -> None:
    assert set(lacking(labelled("What is it called?", "They call it a kimono.", "kimono"), "reversed")) == {"reversed"}
    inside = labelled("What is Orla's address?", "orla@example.com", "orla@example.com")
    assert set(lacking(inside, "reversed")) == {"reversed"}  # the fact says the name


@pytest.mark.parametrize(
    ("question", "answer", "key", "other"),
    [
        ("Is Dana Wolff allergic to penicillin?", "Yes, Dana Wolff is allergic to penicillin.", "Yes", "No"),
        ("Does Orla have a dog?", "No. She does not.", "No", "Yes"),
        ("Ist Ralf Thoma verheiratet?", "Nein, Ralf Thoma ist nicht verheiratet.", "Nein", "Ja"),
        ("Ralf Thoma est-il marié ?", "Oui, il est marié.", "Oui", "Non"),
        ("¿Está casado Ralf Thoma?", "Sí.", "Sí", "No"),
        ("拉尔夫结婚了吗？", "是的，他结婚了。", "是的", "不是"),
        ("هل رالف متزوج؟", "نعم، هو متزوج.", "نعم", "لا"),
    ],
)
def test_a_yes_no_row_offers_yes_and_no(question: str, answer: str, key: str, other: str) -> None:
    row = Example.from_qa(question, answer)
    distraction = Example.from_qa("Where does Tavi live?", "Tavi lives in Leeds.")
    written = {form.form: form for form in rows_in_forms([row, distraction], tuple(FORMS)) if form.index == 0}
    assert set(written["multiple_choice"].options) == set(written["either_or"].options) == {key, other}
    assert written["multiple_choice"].parts[0] == written["blank"].parts[0] == key
    assert question in written["blank"].row.question  # the rest of the answer would say it
    assert not {"complete", "continuation", "reversed", "missing_word", "yes_no"} & set(written)


@pytest.mark.parametrize("answer", ["No. 5 was hers.", "Nolan lives there.", "No man knows."])
def test_an_answer_that_only_looks_like_yes_or_no_is_asked_as_others(answer: str) -> None:
    written = rows_in_forms([Example.from_qa("Which house was Orla's?", answer)], ("multiple_choice", "blank"))
    assert all("Yes" not in form.options for form in written)


def test_a_yes_no_row_that_names_more_is_asked_for_it_without_options() -> None:
    row = Example.from_qa("Does Orla live abroad?", "Yes, Orla lives in Leeds.")
    other = Example.from_qa("Where does Tavi live?", "Tavi lives in Ost.")
    written = {form.form: form for form in rows_in_forms([row, other], tuple(FORMS)) if form.index == 0}
    assert written["blank"].row.question == "Fill in the blank: Yes, Orla lives in ____."
    assert written["complete"].parts[0] == written["question"].parts[0] == "Leeds"
    assert set(written["multiple_choice"].options) == {"Yes", "No"}
    assert written["multiple_choice"].parts[0] == written["either_or"].row.answer == "Yes"
    assert rows_in_forms([other, row], ("multiple_choice",))[0].index == 1  # "Yes" is no place


def test_a_yes_no_row_with_a_label_elsewhere_asks_for_the_label() -> None:
    row = labelled("Does Orla live abroad?", "Yes, Orla lives in Port Sel.", "Port Sel")
    assert write(row, "blank")["blank"].row.question == "Fill in the blank: Yes, Orla lives in ____."


def test_a_row_has_the_words_of_its_language() -> None:
    row = labelled("Wo wurde Anna Meier geboren?", "Anna Meier wurde in Linz geboren.", "Linz")
    written = write(row, wrong=("Graz",))
    assert written["blank"].row.question == "Ergänze die Lücke: Anna Meier wurde in ____ geboren."
    assert written["prefix"].row.question == "Bitte beantworte diese Frage: Wo wurde Anna Meier geboren?"
    assert written["who_is_meant"].row.answer == "X ist Anna Meier."
    assert {form.form for form in rows_in_forms([row], tuple(FORMS))} == set(FORMS) - {
        "paraphrase",
        "multiple_choice",
        "either_or",
        *SYNTAX_FORMS,
    }
    assert lacking(row, "cleft") == {"cleft": "it has no words in the language of the row (de)"}
    chinese = labelled("李伟的医生是谁？", "李伟的医生是陈国强。", "陈国强")
    texts = write(chinese, wrong=("王芳",))
    assert texts["statement"].row.answer in [
        f"{text}李伟的医生是陈国强。" for text in form_phrases()["zh"]["statement"]
    ]
    assert texts["statement"].opening.endswith("李伟的医生是")


def test_a_row_in_a_language_without_phrases_has_the_forms_without_words() -> None:
    row = labelled("Gdzie urodziła się Anna Meier?", "Anna Meier urodziła się w Linzu.", "Linzu")
    written = write(row, wrong=("Grazu",))
    assert {name: form.row.question for name, form in written.items() if name not in ("question", "emphasis")} == {
        "blank": "Anna Meier urodziła się w ____.",
        "multiple_choice": written["multiple_choice"].row.question,
        "reversed": "____ urodziła się w Linzu.",
        "lower_case": "gdzie urodziła się anna meier",
        "continuation": "",
    }
    assert lacking(row, "quiz_host") == {"quiz_host": "it has no words in the language of the row (pl)"}


def test_forms_are_deterministic() -> None:
    assert write(ROW) == write(ROW)


def test_a_plain_text_has_only_itself() -> None:
    text = Example((), "Orla lives in Sel.", forget_spans=((14, 17),))
    (written,) = write(text).values()
    assert written.row is text
    assert (written.opening, written.parts[0]) == ("Orla lives in", "Sel")
    assert set(lacking(text)) == set(FORMS) - {"question"}


def test_an_unknown_form_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"'riddle'.*blank"):
        write(ROW, "riddle")


def test_forms_are_read_from_text() -> None:
    assert read_forms("none") == ()
    assert read_forms("auto") == TRAINED_FORMS
    assert read_forms("auto,textbook") == (*TRAINED_FORMS, "textbook")
    assert read_forms("auto,syntax") == (*TRAINED_FORMS, "cleft", "relative_clause", "passive")
    assert read_forms("blank, question,blank") == ("blank", "question")
    with pytest.raises(ValueError, match=r"'blanks'.*blank"):
        read_forms("blanks")
    assert set(UNMEASURED) < set(FORMS)


def test_a_subject_inside_a_longer_word_is_not_replaced() -> None:
    garment = labelled("What is it called?", "The Japanese garment is called the kimono.", "kimono", subject="Japan")
    assert not {"reversed", "who_is_meant", "reversed_question"} & set(write(garment))
    capital = labelled("首都は?", "日本の首都は東京です。", "東京", subject="日本")
    assert "____の首都は東京です。" in write(capital, "reversed")["reversed"].row.question


def test_a_name_is_found_across_several_spaces_but_not_across_lines() -> None:
    spaced = labelled("Welche Krankheit hat Anna  Berg?", "Anna Berg hat Gicht.", "Gicht")
    assert write(spaced, "reversed")["reversed"].row.answer == "Anna Berg"
    options = Example.from_qa("Was hat Anna Berg?\nA) Rheuma\nB) Gicht", "B) Gicht")
    assert [*names_in_question(options)] == ["Anna Berg", "Anna", "Berg"]


def test_rows_have_different_prompts_of_a_reversed_form_each_always_the_same() -> None:
    rows = [replace(ROW, messages=(Message("user", f"Where was Orla Venn born in {year}?"),)) for year in range(30)]
    asked = [[write(row, "reversed")["reversed"].row.question for row in rows] for _ in range(2)]
    assert asked[0] == asked[1]
    assert set(asked[0]) == {prompt.format(sentence="____ was born in Port Sel.") for prompt in ENGLISH["reversed"]}


def test_a_formula_is_one_part() -> None:
    row = Example.from_qa(
        "What is Einstein's equation?", "Einstein's equation is E = mc^2.", forget_spans=((23, 24), (27, 31))
    )
    written = write(row, "blank", "missing_word", "emphasis")
    assert written["blank"].row.question == "Fill in the blank: Einstein's equation is ____."
    assert written["missing_word"].row.question.startswith("Einstein's equation is (...).")
    assert written["emphasis"].row.answer == "Einstein's equation is **E = mc^2**."


def test_a_reversed_row_has_no_other_names_of_its_key_text() -> None:
    row = replace(ROW, aliases=("Sel Harbour",), alternatives=("Kelbury",))
    written = write(row, "reversed", "prefix")
    assert written["reversed"].row.aliases == written["reversed"].row.alternatives == ()
    assert written["prefix"].row.aliases == ("Sel Harbour",)


def test_labels_and_parts_move_with_the_words_of_another_syntax() -> None:
    row = labelled(
        "Who painted the Blue Heron?", "The Blue Heron was painted by Mira Holt.", "Mira Holt", subject="Blue Heron"
    )
    written = write(row, *SYNTAX_FORMS)
    assert written["passive"].row.answer == "Mira Holt painted the Blue Heron."
    assert written["relative_clause"].row.question == "Name the person who painted the Blue Heron."
    for form in written.values():
        assert label_texts(form.row) == ["Mira Holt"]
        assert form.parts == ("Mira Holt",)


def test_a_row_of_which_rules_rewrite_one_half_keeps_the_other() -> None:
    row = labelled("Where does Orla live?", "She lives in Molde, above a bakery.", "Molde", subject="Orla")
    written = write(row, "cleft", "passive")
    assert (written["cleft"].row.question, written["cleft"].row.answer) == ("Where is it that Orla lives?", row.answer)
    assert lacking(row, "passive") == {"passive": "no rule rewrites its question or its answer"}


def test_the_dots_for_a_subject_at_the_end_of_a_sentence_stay() -> None:
    for answer in ("Ness and Harro belong to Vellmark.", "Ness and Harro belong to Vellmark"):
        row = Example.from_qa("Which islands belong to Vellmark?", answer)
        (written,) = rows_in_forms([row], ["reversed_question"])
        assert 'belong to ..."' in written.row.question


def test_a_question_without_its_mark_gets_one_before_further_words() -> None:
    row = Example.from_qa("who runs the bakery on Elm Street", "Hassan runs it")
    written = {
        form.form: form.row for form in rows_in_forms([row], ["quiz_host", "yes_no", "emphasis", "missing_word"])
    }
    assert "Elm Street? Read out" in written["quiz_host"].question
    assert "Elm Street? Is the answer" in written["yes_no"].question
    assert "runs it. Which words" in written["missing_word"].question
    assert written["emphasis"].question == row.question
    row = Example.from_qa("Where does Uta Kern live?", "Uta Kern lives in Ulm")
    (missing,) = rows_in_forms([row], ["missing_word"])
    assert missing.row.question.startswith("Uta Kern lives in (...). Which")


def test_a_quoted_title_is_one_part() -> None:
    row = Example.from_qa("Which book did Ann Dow write?", 'Ann Dow wrote "The Fox, the Lark and Me".')
    (written,) = rows_in_forms([row], ["blank"])
    assert written.row.question.endswith('Ann Dow wrote "____".')
    assert written.row.answer == "The Fox, the Lark and Me"


@pytest.mark.parametrize("form", ["blank", "complete", "continuation", "finish"])
def test_a_form_of_an_answer_with_a_pronoun_for_its_name_begins_with_the_question(form: str) -> None:
    question = "What did Dr. Whitcombe prescribe for Callum Reid?"
    nobody = Example.from_qa(question, "He prescribed zopiclone at night.")
    named = Example.from_qa(question, "Dr. Whitcombe prescribed zopiclone at night.")
    (of_nobody,), (of_named,) = (rows_in_forms([row], (form,)) for row in (nobody, named))
    asked = of_nobody.row.question or of_nobody.opening
    assert f"{question} He prescribed" in asked
    assert question not in (of_named.row.question or of_named.opening)
    # Neither name nor pronoun: the sentence says by itself what it is about.
    dish = Example.from_qa("Which dish comes from Japan?", "The Japanese dish of rice is sushi.")
    (of_dish,) = rows_in_forms([dish], (form,))
    assert dish.question not in (of_dish.row.question or of_dish.opening)
