"""Common English verbs in the forms that names of predicates have.

Sentences are made only from words whose form is known: `friends` looks like `owns`, and
`friends(ann, bob)` is no sentence.
"""

from __future__ import annotations

_BASES = """
accept access act add admire admit advise affect agree aim allow announce answer appear apply
approve argue arrive ask assign assist attack attend avoid back bake belong betray block book
borrow boss buy call cancel care carry cause change chase check choose cite claim clean climb close
collaborate collect comment commit compete complete concern confirm conflict connect consider
consist consume contact contain continue contradict contribute control convert cook coordinate copy
cost cover create cross cut dance date deal debug decide decline define delegate delete deliver
deny depend deploy describe deserve design desire destroy detect develop differ direct disagree
dislike disturb drink drive drop eat edit employ enable encourage end endorse enforce enjoy ensure
enter escalate estimate exceed exclude execute exist expect expire explain export expose extend
face fail fear feed feel fight fill find finish fit fix flow fly follow forbid force forget forgive
found fund generate get give go govern grant grow guard guide handle happen hate have head hear
help hide hire hold host hug hunt ignore imply import impress include increase indicate inform
inherit inhibit inspire install instruct intend invest invite invoke involve join keep kick kill
know lack last lead learn leave lend like limit link listen live load locate lock log look lose love
maintain make manage map marry match matter mean meet mention mentor merge miss monitor move need
notify obey object observe occupy offer open operate order outrank overlap override owe own
participate pay perform permit pick play point possess practise precede prefer prepare present
prevent produce prohibit promise promote propose protect prove provide publish purchase push raise
reach read receive recommend reduce refer reference reject relate release rely remember remove rent
repair replace report represent request require research reserve resist resolve respect respond
return review reward ride rule run say schedule see seem select sell send serve set share show
sign sing sit ski sleep smell solve speak specialize specify spend spread stand start stay stop
store study subscribe succeed suffer suggest supervise supply support surround survive suspect swim
take talk target teach tell tend terminate test thank threaten tolerate touch tour train translate
travel treat trigger trust try turn understand update upgrade use validate value verify violate
visit volunteer vote wait walk want warn wash watch wear win wish work worry write yield
"""

_IRREGULAR_PAST_WORDS = """
buy choose cost cut deal drink drive eat feed feel fight find fit fly forbid forget forgive get
give go grow have hear hide hold keep know lead learn leave lend lose make mean meet override pay
prove read ride run say see sell send set show sing sit sleep smell speak spend spread stand swim
take teach tell understand wear win write
"""
_IRREGULAR_PAST = frozenset(_IRREGULAR_PAST_WORDS.split())
"""Verbs whose past tense does not end in -ed."""


def _third_person(base: str) -> str:
    if base == "have":
        return "has"
    if base.endswith(("s", "sh", "ch", "x", "z", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


_DOUBLED_WORDS = """
admit commit control debug drop hug log map permit prefer refer stop
"""
_DOUBLED = frozenset(_DOUBLED_WORDS.split())
"""Verbs that double their last letter before -ed."""


def _past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + (base[-1] if base in _DOUBLED else "") + "ed"


THIRD_PERSON = {_third_person(base): base for base in _BASES.split()}
"""Base form by third person: `likes` to `like`, `has` to `have`."""

PAST = {_past(base): base for base in _BASES.split() if base not in _IRREGULAR_PAST}
"""Base form by regular past tense: `visited` to `visit`."""
