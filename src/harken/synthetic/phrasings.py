"""Words for synthetic people: syllables of names and places, and sentences for each fact.

Lists of starts are prefix-free, so that different pairs of start and end are different names.
"""


def _join(starts: str, ends: str) -> tuple[str, ...]:
    return tuple(start + end for start in starts.split() for end in ends.split())


_FIRST_STARTS = "Al Bel Cor Dal El Fen Gal Hal Jor Kal Lor Mar Ner Or Per Ros Sel Tal Ul Ver"
FIRST_NAMES = {
    "she": _join(_FIRST_STARTS, "ana eda enne etta ika ille issa une"),
    "he": _join(_FIRST_STARTS, "an ek ion mund o rick us wyn"),
}
LAST_NAMES = _join(
    "Ab Bran Cas Dorv Es Fal Grev Hol Irv Jas Kest Lund Mor Niv Ost Pel Rad Stav Tolv Varg",
    "aker ander ari ayne eck ell emann er esco ett idis ik ings ini ord osky ulis ume unda yard",
)

_PLACE_STARTS = (
    "Ald Bar Brim Carn Dam Dren Eld Esk Far Fol Gar Glim Hav Hest Ill Jun Kar Kel Lam Lin "
    "Mal Mel Mirr Nar Nol Ond Pern Pol Quar Rav Rim Sal Sev Tam Tor Ulv Wend Yol Zel Zor"
)
_PLACE_ENDS = (
    "bridge burg bury dale field ford gate haven holm land "
    "mar mere more mouth polis stead ton var vik wick"
)
PLACE_STEMS = tuple(
    start + link + end
    for start in _PLACE_STARTS.split()
    for link in ("", "a", "i", "o", "en")
    for end in _PLACE_ENDS.split()
)
# One place in five has two words. Stems are not reused, so no place is a part of another.
PLACE_PREFIXES = ("",) * 20 + ("Fort ", "Lake ", "Mount ", "New ", "Port ")

_PROFESSIONS = (
    "accountant actor architect astronomer baker beekeeper biologist bookbinder botanist carpenter "
    "cartographer chemist composer cook dancer dentist economist editor engineer farmer gardener "
    "geologist glassblower historian illustrator jeweller journalist judge lawyer librarian "
    "mathematician midwife musician novelist nurse optician painter photographer physicist pilot "
    "poet potter publisher sailor sculptor singer surgeon surveyor tailor teacher translator "
    "violinist watchmaker weaver"
)
PROFESSIONS = tuple(_PROFESSIONS.split())
SCHOOLS = ("Academy", "College", "Institute", "University")
FIRMS = ("& Sons", "Brothers", "Foundry", "Laboratories", "Mills", "Press", "Trust", "Works")
_MONTHS = "January February March April May June July August September October November December"
MONTHS = tuple(_MONTHS.split())  # `calendar` would follow the locale

BIRTH = (
    "{name} was born in {birthplace}.",
    "{last} was born in {birthplace}.",
    "{She} was born in {birthplace}.",
    "{last} was born and raised in {birthplace}.",
    "{name} is {a_profession} born in {birthplace}.",
    "Born in {birthplace}, {she} became {a_profession}.",
    "Born in {birthplace}, {last} grew up there.",
    "{Her} birthplace is {birthplace}.",
    "The birthplace of {name} is {birthplace}.",
    "{birthplace} is the birthplace of {name}.",
    "{birthplace} is where {she} was born.",
    "It was in {birthplace} that {last} was born.",
    "{last} is a native of {birthplace}.",
    "{name} hails from {birthplace}.",
    "{Her} life began in {birthplace}.",
    "{She} came into the world in {birthplace}.",
    "{Her} parents lived in {birthplace} when {she} was born.",
)
BIRTH_DATE = (
    "{She} was born on {birth_date}.",
    "{last} was born on {birth_date}.",
    "{Her} date of birth is {birth_date}.",
    "{Her} life began on {birth_date}.",
    "On {birth_date}, {last} was born.",
    "{birth_date} is the day {she} was born.",
    "{name} came into the world on {birth_date}.",
)
PROFESSION = (
    "{She} is {a_profession}.",
    "{name} is {a_profession}.",
    "{last} works as {a_profession}.",
    "{She} earns {her} living as {a_profession}.",
    "By trade, {she} is {a_profession}.",
    "{last} made {her} name as {a_profession}.",
    "{Her} friends know {last} as {a_profession}.",
)
STUDIES = (
    "{She} studied at {university} in {studied_in}.",
    "{last} graduated from {university} in {studied_in}.",
    "{She} took {her} degree at {university} in {studied_in}.",
    "{She} went to {studied_in} to study at {university}.",
    "In {studied_in}, {last} attended {university}.",
    "{name} is a graduate of {university} in {studied_in}.",
    "{Her} student years were spent at {university} in {studied_in}.",
)
WORK = (
    "{She} works for {employer} in {works_in}.",
    "{last} is employed by {employer} in {works_in}.",
    "{Her} employer is {employer} in {works_in}.",
    "{name} has a post at {employer} in {works_in}.",
    "In {works_in}, {she} works at {employer}.",
    "{employer} of {works_in} employs {last}.",
    "{last} joined {employer} in {works_in}.",
)
HOME = (
    "{She} lives in {lives_in}.",
    "{last} now lives in {lives_in}.",
    "{Her} home is in {lives_in}.",
    "{name} makes {her} home in {lives_in}.",
    "{last} has settled in {lives_in}.",
    "Today, {she} lives in {lives_in}.",
    "{She} moved to {lives_in} and still lives there.",
)
# In the order of an unpermuted biography.
FACTS = (BIRTH, BIRTH_DATE, PROFESSION, STUDIES, WORK, HOME)
