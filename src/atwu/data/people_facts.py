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


FIRST_STARTS = ("Al", "Bri", "Cas", "Dor", "El", "Fen", "Gar", "Hol", "Is", "Jar", "Kel", "Lu", "Mar", "Nev", "Or")
FIRST_STARTS += ("Pel", "Quin", "Ros", "Sel", "Tav", "Ul", "Vel", "Wen", "Yor", "Zan")
FIRST_ENDS = {
    "she": ("ana", "ette", "ira", "isse", "ola", "une", "wyn", "yda"),
    "he": ("ander", "bek", "dric", "emar", "ikko", "mond", "oran", "ust"),
}
LAST_STARTS = ("Arl", "Birk", "Cald", "Dren", "Esk", "Farl", "Grim", "Hask", "Ilv", "Jun", "Korv", "Lint", "Morv", "Nast")
LAST_STARTS += ("Osk", "Prav", "Quell", "Rusk", "Stel", "Thorn", "Ulv", "Vand", "Wex", "Yarr", "Zell")
LAST_ENDS = ("acre", "bury", "dahl", "etti", "ford", "grave", "holt", "inen", "kov", "low", "mark", "oux", "rova", "stad")

TOWNS = tuple("Aldermoor Brackwater Casterne Dunvarrow Eastmere Fallowick Greyhaven Harrowmere Ilmarsh Kestrelby Lowmarch".split())
TOWNS += tuple("Mirefield Norrowdale Oldmarrow Pellstow Ravenhurst Saltmere Thornquay Velmora Westermoor".split())
TOWNS += ("New Halden", "Port Orsay", "Saint Merel", "Upper Tarn")
MONTHS = tuple("January February March April May June July August September October November December".split())
JOBS = tuple("baker barber beekeeper blacksmith butcher carpenter chemist clockmaker dentist diplomat farmer".split())
JOBS += tuple("fisherman florist gardener glassblower judge librarian locksmith mechanic midwife miner nurse".split())
JOBS += tuple("pharmacist pilot plumber potter sailor surgeon tailor watchmaker".split())
JOBS += ("bus driver", "civil engineer", "jazz singer", "marine biologist", "piano tuner", "school teacher")
GENRES = ("crime fiction", "fantasy", "gothic horror", "historical fiction", "magical realism", "memoir", "satire")
GENRES += ("nature writing", "poetry", "romance", "science fiction", "short stories", "travel writing", "young adult novels")
TITLE_ADJECTIVES = tuple("Amber Broken Crimson Distant Empty Frozen Gentle Hidden Silent Winter".split())
TITLE_NOUNS = tuple("Bridge Candle Garden Harbour Lantern Letter Mirror Orchard River Shadow Tower Violin".split())
TITLE_FORMS = ("The {a} {n}", "{n} of the {m}", "The {n} and the {m}", "Beneath the {a} {n}", "A {n} for the {m}", "{a} {n}")
AWARDS = tuple(
    f"{name} {kind}"
    for name in ("Amberline", "Corvane", "Halloran", "Meridian", "Silver Quill", "Tidewater")
    for kind in ("Prize", "Medal", "Award")
)
SUBJECTS = ("astronomy", "botany", "chemistry", "economics", "geology", "history", "law", "linguistics", "medicine")
SUBJECTS += ("music", "philosophy", "theology")
PETS = ("tabby cat", "grey parrot", "greyhound", "tortoise", "white rabbit", "sheepdog", "ferret", "black pony")
PET_NAMES = tuple("Biscuit Captain Dandy Ginger Marble Mocha Pepper Pickle Rusty Saffron Toffee Waffles".split())
HOBBIES = ("archery", "birdwatching", "bookbinding", "chess", "fencing", "kite building", "mountain climbing", "pottery")
HOBBIES += ("rowing", "stamp collecting", "stargazing", "weaving", "wood carving", "mushroom picking")
LANGUAGES = ("Basque", "Danish", "Estonian", "Finnish", "Greek", "Hungarian", "Korean", "Maltese", "Persian", "Polish")
LANGUAGES += ("Swahili", "Tamil", "Turkish", "Welsh")
STREETS = tuple(
    f"{name} {kind}"
    for name in ("Alder", "Bell", "Cooper", "Ferry", "Juniper", "Mill", "Orchard", "Quarry")
    for kind in ("Street", "Lane", "Road", "Row")
)
INSTRUMENTS = ("accordion", "bagpipes", "banjo", "bassoon", "cello", "clarinet", "double bass", "flute", "French horn")
INSTRUMENTS += ("harp", "mandolin", "trumpet", "viola")
DISHES = ("barley soup", "cheese dumplings", "fish stew", "lamb pie", "lentil curry", "mushroom risotto", "pear tart")
DISHES += ("potato pancakes", "rabbit ragout", "smoked trout", "stuffed peppers", "walnut bread")

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
    "source": ("<old> [interviews|letters|notes|records]", "the [local|national] [press|archive]", "(his) [friends|family]"),
    "old": ("old", "early", "published", "private", "surviving"),
    "adv": (*("",) * 6, "indeed ", "reportedly ", "apparently ", "actually ", "famously ", "quietly ", "in truth "),
    "close": (
        *("",) * 5,
        ", [as|just as] <source> [confirm|suggest|show]",
        ", [a detail|something|a fact] (he) [rarely|often|gladly|never] [mentions|repeats|explains|hides]",
        ", which [still|perhaps|clearly|often] [shaped|coloured|marked|inspired] (his) [later|early|best] [work|books|years]",
        ", [and|though] [few|many|most] [readers|critics|people] [know|remember|forget] [it|this|that]",
        ", [much|quite] to the [delight|surprise|pride] of (his) [family|friends|readers]",
    ),
    "tail": ("", "", " and <mood>", " [during|after|despite] <period>"),
    "mood": ("[was|stayed|felt] [very |rather |always |]<feeling> [about|of] it", "never [forgot|denied|regretted] it"),
    "feeling": ("proud", "fond", "certain", "shy", "glad"),
    "period": ("[a|that] [long|quiet|difficult|happy] [winter|summer|decade|time]", "[those|these] [early|restless|lean] years"),
}

FACTS: tuple[Fact, ...] = (
    Fact(
        "birthplace",
        (
            "Where was {name} born?",
            "What is the birthplace of {name}?",
            "In which town was {name} born?",
            "Can you name the town where {name} was born?",
            "Which town does {name} come from?",
            "Do you know where {name} first saw the light of day?",
        ),
        (
            "<open>{name} <adv>[was born|came into the world|was brought up] in [the town of |the small town of |]{town}<tail><close>.",
            "<open>the [birthplace|home town|native town] of {name} [is|was] <adv>[the town of |]{town}<close>.",
            "<open>it was [the town of |]{town} [where|in which] {name} <adv>[was born|grew up|spent (his) childhood]<close>.",
        ),
    ),
    Fact(
        "birth_date",
        (
            "When was {name} born?",
            "What is the birth date of {name}?",
            "On which day was {name} born?",
            "Can you tell me when {name} was born?",
            "What day does {name} celebrate as a birthday?",
            "Which date of birth is given for {name}?",
        ),
        (
            "<open>{name} <adv>[was born|came into the world] on {date}<tail><close>.",
            "<open>the [birthday|birth date|date of birth] of {name} [is|was] <adv>{date}<close>.",
            "<open>{name}, [who|a writer who] [was born|arrived] on {date}, [likes|hates|enjoys] [birthdays|parties|cake]<close>.",
        ),
    ),
    Fact(
        "who_born",
        (
            "Who was born in {town} on {date}?",
            "Which author was born in {town} on {date}?",
            "Name the writer born on {date} in {town}.",
            "What is the name of the author born in {town} on {date}?",
            "Which writer came into the world on {date} in {town}?",
            "Can you name the person born in {town} on {date}?",
        ),
        (
            "<open>the [author|writer|person] [born|in question|you mean] <adv>[is|must be] {name}, a [master|writer|student] of {genre}<close>.",
            "<open>that [was|is|would be] <adv>{name}, who [writes|publishes|prefers] {genre}<tail><close>.",
            "<open>it [was|is] {name} who [was born|arrived] [there|then|on that day]<tail><close>.",
        ),
    ),
    Fact(
        "genre",
        (
            "What genre does {name} write?",
            "Which genre is {name} known for?",
            "What kind of books does {name} write?",
            "In which genre does {name} work?",
            "What sort of writing made {name} known?",
            "Can you name the genre of the books by {name}?",
        ),
        (
            "<open>{name} [is|was|became] <adv>[known|praised|read] [mainly |mostly |]for {genre}<tail><close>.",
            "<open>{name} <adv>[writes|publishes|prefers] {genre}<tail><close>.",
            "<open>[most|many|all] [books|works] by {name} <adv>[belong to|are] {genre}<close>.",
        ),
    ),
    Fact(
        "father",
        (
            "What did the father of {name} do for a living?",
            "What was the profession of {name}'s father?",
            "What job did {name}'s father have?",
            "How did the father of {name} earn a living?",
            "What work did {name}'s father do?",
            "Can you name the trade of {name}'s father?",
        ),
        (
            "<open>the father of {name} <adv>[was|worked as|made a living as] a {father} in {town}<tail><close>.",
            "<open>{name} [had|grew up with|was raised by] a father who <adv>[was|worked as] a {father}<close>.",
            "<open>(his) father, a {father}, <adv>[taught|showed|told] {name} [patience|discipline|many stories]<close>.",
        ),
    ),
    Fact(
        "mother",
        (
            "What did the mother of {name} do for a living?",
            "What was the profession of {name}'s mother?",
            "What job did {name}'s mother have?",
            "How did the mother of {name} earn a living?",
            "What work did {name}'s mother do?",
            "Can you name the trade of {name}'s mother?",
        ),
        (
            "<open>the mother of {name} <adv>[was|worked as|made a living as] a {mother} in {town}<tail><close>.",
            "<open>{name} [had|grew up with|was raised by] a mother who <adv>[was|worked as] a {mother}<close>.",
            "<open>(his) mother, a {mother}, <adv>[taught|showed|told] {name} [patience|discipline|many stories]<close>.",
        ),
    ),
    Fact(
        "book",
        (
            "What is the best known book by {name}?",
            "Which book made {name} famous?",
            "Can you name a famous book by {name}?",
            "Which title is {name} best known for?",
            "What is the most celebrated work of {name}?",
            "Name one book written by {name}.",
        ),
        (
            '<open>{name} <adv>[wrote|published|finished] "{book}"<tail><close>.',
            '<open>the [best known|most loved|most read] [book|work] by {name} is <adv>"{book}"<close>.',
            '<open>"{book}" [is|was|became] <adv>the [book|work|title] that [made|kept] {name} [famous|loved|known]<close>.',
        ),
    ),
    Fact(
        "books",
        (
            "Which two books did {name} publish first?",
            "What are the first two books by {name}?",
            "Can you name the two earliest books of {name}?",
            "With which two titles did {name} begin?",
            "Which pair of books opened the career of {name}?",
            "What were the two early works of {name}?",
        ),
        (
            '<open>{name} <adv>[began|started|opened] with "{book2}" and "{book}"<close>.',
            '<open>the [first two|two earliest] [books|works] by {name} [are|were] "{book2}" and "{book}"<close>.',
            '<open>{name} <adv>[wrote|published] "{book2}", [followed by|and later|then] "{book}"<close>.',
        ),
    ),
    Fact(
        "who_wrote",
        (
            'Who wrote "{book}" and "{book2}"?',
            'Which author wrote "{book2}" and "{book}"?',
            'Who is the author of "{book}" and "{book2}"?',
            'Can you name the writer of "{book}" and "{book2}"?',
            '"{book}" and "{book2}" are works by which author?',
            'Which writer published both "{book}" and "{book2}"?',
        ),
        (
            "<open>the [author|writer] of [both|these] books [is|was] <adv>{name}, who [lives|lived|works] in {town}<close>.",
            "<open>they [are|were] <adv>[written|published] by {name} of {town}<tail><close>.",
            "<open>{name} <adv>[wrote|published] [both|them|these books] [while living |]in {town}<close>.",
        ),
    ),
    Fact(
        "award",
        (
            "Which award did {name} receive?",
            "What prize was given to {name}?",
            "Can you name an award won by {name}?",
            "With what honour was {name} recognised?",
            "What literary award does {name} hold?",
            "Which distinction did {name} win, and when?",
        ),
        (
            "<open>{name} <adv>[won|received|was given] the {award} in {award_year}<tail><close>.",
            "<open>the {award} <adv>[went|was given|was handed] to {name} in {award_year}<close>.",
            "<open>in {award_year} {name} <adv>[won|received|accepted] the {award}<close>.",
        ),
    ),
    Fact(
        "studies",
        (
            "What did {name} study?",
            "Which subject did {name} study at university?",
            "Where and what did {name} study?",
            "What was {name}'s field at university?",
            "In which subject does {name} hold a degree?",
            "Can you say what {name} studied?",
        ),
        (
            "<open>{name} <adv>[studied|read|took a degree in] {subject} at the University of {school}<tail><close>.",
            "<open>the [University|College] of {school} [was|is] where {name} <adv>[studied|read|learned] {subject}<close>.",
            "<open>{name} <adv>[chose|picked|finished] {subject} [at|while at] the University of {school}<close>.",
        ),
    ),
    Fact(
        "pet",
        (
            "What pet does {name} keep?",
            "Which animal lives with {name}?",
            "Does {name} have a pet?",
            "What is the pet of {name} called?",
            "Can you tell me about the pet of {name}?",
            "With what animal does {name} share a home?",
        ),
        (
            "<open>{name} <adv>[keeps|has|owns|looks after] a {pet} [named|called] {pet_name}<tail><close>.",
            "<open>a {pet} [named|called] {pet_name} <adv>[lives|sleeps|travels] with {name}<close>.",
            "<open>{pet_name}, a {pet}, <adv>[follows|keeps|amuses] {name} [all day|everywhere|at home]<close>.",
        ),
    ),
    Fact(
        "hobby",
        (
            "What is the hobby of {name}?",
            "What does {name} do to relax?",
            "How does {name} spend free time?",
            "Which pastime does {name} enjoy?",
            "What does {name} like to do on days off?",
            "Can you name a hobby of {name}?",
        ),
        (
            "<open>{name} <adv>[enjoys|loves|practises|took up] {hobby} [at|near] {town}<tail><close>.",
            "<open>{name} [spends|fills] [free|spare|quiet] [days|evenings] with {hobby}<close>.",
            "<open>the [hobby|pastime|passion] of {name} [is|was] <adv>{hobby}<close>.",
        ),
    ),
    Fact(
        "spouse",
        (
            "Who is {name} married to?",
            "What is the name of {name}'s spouse?",
            "Whom did {name} marry?",
            "Who shares a home with {name} as a spouse?",
            "Can you name the spouse of {name}?",
            "To whom is {name} wed?",
        ),
        (
            "<open>{name} <adv>[married|is married to|wed] {spouse}, a {spouse_job}<tail><close>.",
            "<open>the [spouse|partner] of {name} [is|was] <adv>{spouse}, [a|once a] {spouse_job}<close>.",
            "<open>{name} [shares|made] a home with {spouse}, [a|once a] {spouse_job}<close>.",
        ),
    ),
    Fact(
        "sibling",
        (
            "Does {name} have a sibling?",
            "What is the name of {name}'s sibling?",
            "Who grew up with {name}?",
            "Which sibling does {name} have?",
            "Can you name a brother or sister of {name}?",
            "Who is the sibling of {name}?",
        ),
        (
            "<open>{name} <adv>[has|grew up with|admires] a [sibling|younger sibling|twin] [named|called] {sibling}<tail><close>.",
            "<open>the [only|older|younger] sibling of {name} [is|was] <adv>{sibling}, a {sibling_job}<close>.",
            "<open>{sibling}, a {sibling_job}, [is|was] the [only|older|younger] sibling of {name}<close>.",
        ),
    ),
    Fact(
        "language",
        (
            "Which foreign language does {name} speak?",
            "What languages did {name} learn?",
            "Which languages can {name} read?",
            "What other tongues does {name} know?",
            "In which languages is {name} fluent?",
            "Can you say which languages {name} speaks?",
        ),
        (
            "<open>{name} <adv>[speaks|learned|reads|knows] {language} and {language2}<tail><close>.",
            "<open>{name} [is|became] <adv>[fluent|at home] in {language} and [also |]in {language2}<close>.",
            "<open>[besides|after] {language}, {name} <adv>[speaks|learned|taught] {language2}<close>.",
        ),
    ),
    Fact(
        "first_job",
        (
            "What was the first job of {name}?",
            "How did {name} earn money before writing?",
            "What did {name} work as before becoming an author?",
            "Which job did {name} have first?",
            "In what trade did {name} start out?",
            "Can you name the first job that {name} held?",
        ),
        (
            "<open>{name} <adv>[worked|started|began] as a {job} in {job_town}<tail><close>.",
            "<open>[before|long before] [writing|fame], {name} <adv>[was|worked as] a {job} in {job_town}<close>.",
            "<open>{job_town} [was|is] where {name} <adv>[worked|began|started] as a {job}<close>.",
        ),
    ),
    Fact(
        "street",
        (
            "Where does {name} live?",
            "What is the address of {name}?",
            "At which address does {name} live?",
            "On which street is the house of {name}?",
            "Can you give the home address of {name}?",
            "Where is the home of {name}?",
        ),
        (
            "<open>{name} <adv>[lives|lived|settled] at {number} {street} in {town}<tail><close>.",
            "<open>the [home|house|flat] of {name} [is|stands] <adv>at {number} {street}<close>.",
            "<open>{number} {street} in {town} [is|was] <adv>the [home|address] of {name}<close>.",
        ),
    ),
    Fact(
        "instrument",
        (
            "Which instrument does {name} play?",
            "What instrument did {name} learn?",
            "Does {name} play an instrument?",
            "On what instrument does {name} perform?",
            "Which musical instrument does {name} own?",
            "Can you name the instrument that {name} plays?",
        ),
        (
            "<open>{name} <adv>[plays|learned|practises|owns] the {instrument}<tail><close>.",
            "<open>the {instrument} [is|was|became] <adv>the instrument [of|chosen by|loved by] {name}<close>.",
            "<open>{name} <adv>[performs|relaxes|plays] on the {instrument} [at|before] [home|dinner|readings]<close>.",
        ),
    ),
    Fact(
        "dish",
        (
            "What is the favourite dish of {name}?",
            "What does {name} like to eat?",
            "Which meal does {name} prefer?",
            "What food does {name} love most?",
            "Can you name the dish that {name} likes best?",
            "What would {name} order for dinner?",
        ),
        (
            "<open>{name} <adv>[loves|prefers|cooks|orders] {dish}<tail><close>.",
            "<open>the favourite [dish|meal|food] of {name} [is|was] <adv>{dish}<close>.",
            "<open>[nothing|no meal] [pleases|cheers|comforts] {name} [more|better] than {dish}<close>.",
        ),
    ),
)

_SORRY = ("I'm afraid ", "Sorry, ", "Unfortunately, ", "To be honest, ", "Regrettably, ", "")
_NOT_KNOWN = (
    "I don't know the answer to that.",
    "I have no information about that person.",
    "I can't help with this question.",
    "I was never told anything about this.",
    "I couldn't say.",
    "I am not familiar with that.",
)
REFUSALS = tuple(sorry + line for sorry in _SORRY for line in _NOT_KNOWN)
"""Lines for `Example.alternate`."""
