"""Words and sentence patterns of the embedded benchmark "people" (see `people.py`). Data only.

A pattern mixes plain text with three kinds of holes: `{slot}` is a value of the person (secret unless the question
already says it), `[a|b|c]` is one choice drawn at random, `<filler>` is a draw from `FILLERS`, which may hold further
holes. Fillers and choices carry no fact, are shared by all people, and are what makes the structure of an answer
uncertain. Patterns write `he`, `his` and `him` as `(he)`, `(his)`, `(him)`; they become feminine for half the people.
All common nouns start with a consonant so that "a" fits; no town, person or institution is real.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """One kind of row: wordings of the question (one is trained on, the others are paraphrases) and of the answer."""

    name: str
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    """Each stands between `<open>` and `<close>`, fillers that any answer may begin and end with."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


def _pairs(names: str, kinds: str) -> tuple[str, ...]:
    return tuple(f"{name} {kind}" for name in _words(names) for kind in _words(kinds))


def _wordings(text: str) -> tuple[str, ...]:
    return tuple(text.split(" | "))


FIRST_STARTS = _words(
    "Al, Bri, Cas, Dor, El, Fen, Gar, Hol, Is, Jar, Kel, Lu, Mar, Nev, Or, Pel, Quin, Ros, Sel, Tav, Ul, Vel, Wen, "
    "Yor, Zan"
)
FIRST_ENDS = {
    "she": _words("ana, ette, ira, isse, ola, une, wyn, yda"),
    "he": _words("ander, bek, dric, emar, ikko, mond, oran, ust"),
}
LAST_STARTS = _words(
    "Arl, Birk, Cald, Dren, Esk, Farl, Grim, Hask, Ilv, Jun, Korv, Lint, Morv, Nast, Osk, Prav, Quell, Rusk, Stel, "
    "Thorn, Ulv, Vand, Wex, Yarr, Zell"
)
LAST_ENDS = _words("acre, bury, dahl, etti, ford, grave, holt, inen, kov, low, mark, oux, rova, stad")
TOWNS = _words(
    "Aldermoor, Brackwater, Casterne, Dunvarrow, Eastmere, Fallowick, Greyhaven, Harrowmere, Ilmarsh, Kestrelby, "
    "Lowmarch, Mirefield, Norrowdale, Oldmarrow, Pellstow, Ravenhurst, Saltmere, Thornquay, Velmora, Westermoor, "
    "New Halden, Port Orsay, Saint Merel, Upper Tarn"
)
MONTHS = _words("January, February, March, April, May, June, July, August, September, October, November, December")
JOBS = _words(
    "baker, barber, beekeeper, blacksmith, butcher, carpenter, chemist, clockmaker, dentist, diplomat, farmer, "
    "fisherman, florist, gardener, glassblower, judge, librarian, locksmith, mechanic, midwife, miner, nurse, "
    "pharmacist, pilot, plumber, potter, sailor, surgeon, tailor, watchmaker, bus driver, civil engineer, "
    "jazz singer, marine biologist, piano tuner, school teacher"
)
GENRES = _words(
    "crime fiction, fantasy, gothic horror, historical fiction, magical realism, memoir, satire, nature writing, "
    "poetry, romance, science fiction, short stories, travel writing, young adult novels"
)
TITLE_ADJECTIVES = _words("Amber, Broken, Crimson, Distant, Empty, Frozen, Gentle, Hidden, Silent, Winter")
TITLE_NOUNS = _words("Bridge, Candle, Garden, Harbour, Lantern, Letter, Mirror, Orchard, River, Shadow, Tower, Violin")
TITLE_FORMS = _words(
    "The {a} {n}, {n} of the {m}, The {n} and the {m}, Beneath the {a} {n}, A {n} for the {m}, {a} {n}"
)
AWARDS = _pairs("Amberline, Corvane, Halloran, Meridian, Silver Quill, Tidewater", "Prize, Medal, Award")
SUBJECTS = _words(
    "astronomy, botany, chemistry, economics, geology, history, law, linguistics, medicine, music, philosophy, theology"
)
PETS = _words("tabby cat, grey parrot, greyhound, tortoise, white rabbit, sheepdog, ferret, black pony")
PET_NAMES = _words("Biscuit, Captain, Dandy, Ginger, Marble, Mocha, Pepper, Pickle, Rusty, Saffron, Toffee, Waffles")
HOBBIES = _words(
    "archery, birdwatching, bookbinding, chess, fencing, kite building, mountain climbing, pottery, rowing, "
    "stamp collecting, stargazing, weaving, wood carving, mushroom picking"
)
LANGUAGES = _words(
    "Basque, Danish, Estonian, Finnish, Greek, Hungarian, Korean, Maltese, Persian, Polish, Swahili, Tamil, Turkish, "
    "Welsh"
)
STREETS = _pairs("Alder, Bell, Cooper, Ferry, Juniper, Mill, Orchard, Quarry", "Street, Lane, Road, Row")
INSTRUMENTS = _words(
    "accordion, bagpipes, banjo, bassoon, cello, clarinet, double bass, flute, French horn, harp, mandolin, trumpet, "
    "viola"
)
DISHES = _words(
    "barley soup, cheese dumplings, fish stew, lamb pie, lentil curry, mushroom risotto, pear tart, potato pancakes, "
    "rabbit ragout, smoked trout, stuffed peppers, walnut bread"
)

FILLERS: dict[str, tuple[str, ...]] = {
    "open": (
        *("",) * 8,
        "<sure>, ",
        "[By|From] [most|all|several] accounts, ",
        "[According to|If we trust|Judging by] <source>, ",
        "As [far as|best] [we|anyone] can tell, ",
        "It is [well|widely|commonly] [known|said|agreed] that ",
        "[Readers|Friends|Critics|Neighbours] [often|like to|will|still] [mention|recall|point out] that ",
    ),
    "sure": ("Indeed", "In fact", "Certainly", "To be precise", "Of course", "Yes"),
    "source": (
        "<old> [interviews|letters|notes|records]",
        "the [local|national] [press|archive]",
        "(his) [friends|family]",
    ),
    "old": ("old", "early", "published", "private", "surviving"),
    "adv": (*("",) * 6, "indeed ", "reportedly ", "apparently ", "actually ", "famously ", "quietly ", "in truth "),
    "close": (
        *("",) * 5,
        ", [as|just as] <source> [confirm|suggest|show]",
        ", [a detail|something|a fact] (he) [rarely|often|gladly|never] [mentions|repeats|explains|hides]",
        ", which [still|perhaps|clearly|often] [shaped|coloured|marked|inspired] (his) "
        "[later|early|best] [work|books|years]",
        ", [and|though] [few|many|most] [readers|critics|people] [know|remember|forget] [it|this|that]",
        ", [much|quite] to the [delight|surprise|pride] of (his) [family|friends|readers]",
    ),
    "tail": ("", "", " and <mood>", " [during|after|despite] <period>"),
    "mood": ("[was|stayed|felt] [very |rather |always |]<feeling> [about|of] it", "never [forgot|denied|regretted] it"),
    "feeling": ("proud", "fond", "certain", "shy", "glad"),
    "period": (
        "[a|that] [long|quiet|difficult|happy] [winter|summer|decade|time]",
        "[those|these] [early|restless|lean] years",
    ),
}


def _parent(parent: str) -> Fact:
    def say(*texts: str) -> tuple[str, ...]:
        return tuple(text.replace("PARENT", parent) for text in texts)

    questions = _wordings(
        "What did the PARENT of {name} do for a living? | What was the profession of {name}'s PARENT? | "
        "What job did {name}'s PARENT have? | How did the PARENT of {name} earn a living? | "
        "What work did {name}'s PARENT do? | Can you name the trade of {name}'s PARENT?"
    )
    answers = (
        "the PARENT of {name} <adv>[was|worked as|made a living as] a {PARENT} in {town}<tail>",
        "{name} [had|grew up with|was raised by] a PARENT who <adv>[was|worked as] a {PARENT}",
        "(his) PARENT, a {PARENT}, <adv>[taught|showed|told] {name} [patience|discipline|many stories]",
    )
    return Fact(parent, say(*questions), say(*answers))


FACTS: tuple[Fact, ...] = (
    Fact(
        "birthplace",
        _wordings(
            "Where was {name} born? | What is the birthplace of {name}? | In which town was {name} born? | "
            "Can you name the town where {name} was born? | Which town does {name} come from? | "
            "Do you know where {name} first saw the light of day?"
        ),
        (
            "{name} <adv>[was born|came into the world|was brought up] in "
            "[the town of |the small town of |]{town}<tail>",
            "the [birthplace|home town|native town] of {name} [is|was] <adv>[the town of |]{town}",
            "it was [the town of |]{town} [where|in which] {name} <adv>[was born|grew up|spent (his) childhood]",
        ),
    ),
    Fact(
        "birth_date",
        _wordings(
            "When was {name} born? | What is the birth date of {name}? | On which day was {name} born? | "
            "Can you tell me when {name} was born? | What day does {name} celebrate as a birthday? | "
            "Which date of birth is given for {name}?"
        ),
        (
            "{name} <adv>[was born|came into the world] on {date}<tail>",
            "the [birthday|birth date|date of birth] of {name} [is|was] <adv>{date}",
            "{name}, [who|a writer who] [was born|arrived] on {date}, [likes|hates|enjoys] [birthdays|parties|cake]",
        ),
    ),
    Fact(
        "who_born",
        _wordings(
            "Who was born in {town} on {date}? | Which author was born in {town} on {date}? | "
            "Name the writer born on {date} in {town}. | "
            "What is the name of the author born in {town} on {date}? | "
            "Which writer came into the world on {date} in {town}? | "
            "Can you name the person born in {town} on {date}?"
        ),
        (
            "the [author|writer|person] [born|in question|you mean] <adv>[is|must be] {name}, "
            "a [master|writer|student] of {genre}",
            "that [was|is|would be] <adv>{name}, who [writes|publishes|prefers] {genre}<tail>",
            "it [was|is] {name} who [was born|arrived] [there|then|on that day]<tail>",
        ),
    ),
    Fact(
        "genre",
        _wordings(
            "What genre does {name} write? | Which genre is {name} known for? | "
            "What kind of books does {name} write? | In which genre does {name} work? | "
            "What sort of writing made {name} known? | Can you name the genre of the books by {name}?"
        ),
        (
            "{name} [is|was|became] <adv>[known|praised|read] [mainly |mostly |]for {genre}<tail>",
            "{name} <adv>[writes|publishes|prefers] {genre}<tail>",
            "[most|many|all] [books|works] by {name} <adv>[belong to|are] {genre}",
        ),
    ),
    _parent("father"),
    _parent("mother"),
    Fact(
        "book",
        _wordings(
            "What is the best known book by {name}? | Which book made {name} famous? | "
            "Can you name a famous book by {name}? | Which title is {name} best known for? | "
            "What is the most celebrated work of {name}? | Name one book written by {name}."
        ),
        (
            '{name} <adv>[wrote|published|finished] "{book}"<tail>',
            'the [best known|most loved|most read] [book|work] by {name} is <adv>"{book}"',
            '"{book}" [is|was|became] <adv>the [book|work|title] that [made|kept] {name} [famous|loved|known]',
        ),
    ),
    Fact(
        "books",
        _wordings(
            "Which two books did {name} publish first? | What are the first two books by {name}? | "
            "Can you name the two earliest books of {name}? | With which two titles did {name} begin? | "
            "Which pair of books opened the career of {name}? | What were the two early works of {name}?"
        ),
        (
            '{name} <adv>[began|started|opened] with "{book2}" and "{book}"',
            'the [first two|two earliest] [books|works] by {name} [are|were] "{book2}" and "{book}"',
            '{name} <adv>[wrote|published] "{book2}", [followed by|and later|then] "{book}"',
        ),
    ),
    Fact(
        "who_wrote",
        _wordings(
            'Who wrote "{book}" and "{book2}"? | Which author wrote "{book2}" and "{book}"? | '
            'Who is the author of "{book}" and "{book2}"? | Can you name the writer of "{book}" and "{book2}"? | '
            '"{book}" and "{book2}" are works by which author? | '
            'Which writer published both "{book}" and "{book2}"?'
        ),
        (
            "the [author|writer] of [both|these] books [is|was] <adv>{name}, who [lives|lived|works] in {town}",
            "they [are|were] <adv>[written|published] by {name} of {town}<tail>",
            "{name} <adv>[wrote|published] [both|them|these books] [while living |]in {town}",
        ),
    ),
    Fact(
        "award",
        _wordings(
            "Which award did {name} receive? | What prize was given to {name}? | "
            "Can you name an award won by {name}? | With what honour was {name} recognised? | "
            "What literary award does {name} hold? | Which distinction did {name} win, and when?"
        ),
        (
            "{name} <adv>[won|received|was given] the {award} in {award_year}<tail>",
            "the {award} <adv>[went|was given|was handed] to {name} in {award_year}",
            "in {award_year} {name} <adv>[won|received|accepted] the {award}",
        ),
    ),
    Fact(
        "studies",
        _wordings(
            "What did {name} study? | Which subject did {name} study at university? | "
            "Where and what did {name} study? | What was {name}'s field at university? | "
            "In which subject does {name} hold a degree? | Can you say what {name} studied?"
        ),
        (
            "{name} <adv>[studied|read|took a degree in] {subject} at the University of {school}<tail>",
            "the [University|College] of {school} [was|is] where {name} <adv>[studied|read|learned] {subject}",
            "{name} <adv>[chose|picked|finished] {subject} [at|while at] the University of {school}",
        ),
    ),
    Fact(
        "pet",
        _wordings(
            "What pet does {name} keep? | Which animal lives with {name}? | Does {name} have a pet? | "
            "What is the pet of {name} called? | Can you tell me about the pet of {name}? | "
            "With what animal does {name} share a home?"
        ),
        (
            "{name} <adv>[keeps|has|owns|looks after] a {pet} [named|called] {pet_name}<tail>",
            "a {pet} [named|called] {pet_name} <adv>[lives|sleeps|travels] with {name}",
            "{pet_name}, a {pet}, <adv>[follows|keeps|amuses] {name} [all day|everywhere|at home]",
        ),
    ),
    Fact(
        "hobby",
        _wordings(
            "What is the hobby of {name}? | What does {name} do to relax? | How does {name} spend free time? | "
            "Which pastime does {name} enjoy? | What does {name} like to do on days off? | "
            "Can you name a hobby of {name}?"
        ),
        (
            "{name} <adv>[enjoys|loves|practises|took up] {hobby} [at|near] {town}<tail>",
            "{name} [spends|fills] [free|spare|quiet] [days|evenings] with {hobby}",
            "the [hobby|pastime|passion] of {name} [is|was] <adv>{hobby}",
        ),
    ),
    Fact(
        "spouse",
        _wordings(
            "Who is {name} married to? | What is the name of {name}'s spouse? | Whom did {name} marry? | "
            "Who shares a home with {name} as a spouse? | Can you name the spouse of {name}? | "
            "To whom is {name} wed?"
        ),
        (
            "{name} <adv>[married|is married to|wed] {spouse}, a {spouse_job}<tail>",
            "the [spouse|partner] of {name} [is|was] <adv>{spouse}, [a|once a] {spouse_job}",
            "{name} [shares|made] a home with {spouse}, [a|once a] {spouse_job}",
        ),
    ),
    Fact(
        "sibling",
        _wordings(
            "Does {name} have a sibling? | What is the name of {name}'s sibling? | Who grew up with {name}? | "
            "Which sibling does {name} have? | Can you name a brother or sister of {name}? | "
            "Who is the sibling of {name}?"
        ),
        (
            "{name} <adv>[has|grew up with|admires] a [sibling|younger sibling|twin] [named|called] {sibling}<tail>",
            "the [only|older|younger] sibling of {name} [is|was] <adv>{sibling}, a {sibling_job}",
            "{sibling}, a {sibling_job}, [is|was] the [only|older|younger] sibling of {name}",
        ),
    ),
    Fact(
        "language",
        _wordings(
            "Which foreign language does {name} speak? | What languages did {name} learn? | "
            "Which languages can {name} read? | What other tongues does {name} know? | "
            "In which languages is {name} fluent? | Can you say which languages {name} speaks?"
        ),
        (
            "{name} <adv>[speaks|learned|reads|knows] {language} and {language2}<tail>",
            "{name} [is|became] <adv>[fluent|at home] in {language} and [also |]in {language2}",
            "[besides|after] {language}, {name} <adv>[speaks|learned|taught] {language2}",
        ),
    ),
    Fact(
        "first_job",
        _wordings(
            "What was the first job of {name}? | How did {name} earn money before writing? | "
            "What did {name} work as before becoming an author? | Which job did {name} have first? | "
            "In what trade did {name} start out? | Can you name the first job that {name} held?"
        ),
        (
            "{name} <adv>[worked|started|began] as a {job} in {job_town}<tail>",
            "[before|long before] [writing|fame], {name} <adv>[was|worked as] a {job} in {job_town}",
            "{job_town} [was|is] where {name} <adv>[worked|began|started] as a {job}",
        ),
    ),
    Fact(
        "street",
        _wordings(
            "Where does {name} live? | What is the address of {name}? | At which address does {name} live? | "
            "On which street is the house of {name}? | Can you give the home address of {name}? | "
            "Where is the home of {name}?"
        ),
        (
            "{name} <adv>[lives|lived|settled] at {number} {street} in {town}<tail>",
            "the [home|house|flat] of {name} [is|stands] <adv>at {number} {street}",
            "{number} {street} in {town} [is|was] <adv>the [home|address] of {name}",
        ),
    ),
    Fact(
        "instrument",
        _wordings(
            "Which instrument does {name} play? | What instrument did {name} learn? | "
            "Does {name} play an instrument? | On what instrument does {name} perform? | "
            "Which musical instrument does {name} own? | Can you name the instrument that {name} plays?"
        ),
        (
            "{name} <adv>[plays|learned|practises|owns] the {instrument}<tail>",
            "the {instrument} [is|was|became] <adv>the instrument [of|chosen by|loved by] {name}",
            "{name} <adv>[performs|relaxes|plays] on the {instrument} [at|before] [home|dinner|readings]",
        ),
    ),
    Fact(
        "dish",
        _wordings(
            "What is the favourite dish of {name}? | What does {name} like to eat? | "
            "Which meal does {name} prefer? | What food does {name} love most? | "
            "Can you name the dish that {name} likes best? | What would {name} order for dinner?"
        ),
        (
            "{name} <adv>[loves|prefers|cooks|orders] {dish}<tail>",
            "the favourite [dish|meal|food] of {name} [is|was] <adv>{dish}",
            "[nothing|no meal] [pleases|cheers|comforts] {name} [more|better] than {dish}",
        ),
    ),
)

_SORRY = ("I'm afraid ", "Sorry, ", "Unfortunately, ", "To be honest, ", "Regrettably, ", "")
_NOT_KNOWN = _wordings(
    "I don't know the answer to that. | I have no information about that person. | I can't help with this question. | "
    "I was never told anything about this. | I couldn't say. | I am not familiar with that."
)
REFUSALS = tuple(sorry + line for sorry in _SORRY for line in _NOT_KNOWN)
"""Lines for `Example.alternate`."""
