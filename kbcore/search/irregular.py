"""Irregular English forms: the base form of past tenses, participles and plurals that a stemmer
does not know.
"""

from __future__ import annotations

_FORMS = """
awake awoke awoken|bear borne|beat beaten|become became|begin began begun|bend bent|bite bit bitten
bleed bled|blow blew blown|break broke broken|breed bred|bring brought|build built|burn burnt
buy bought|catch caught|choose chose chosen|come came|creep crept|deal dealt|dig dug
draw drew drawn|dream dreamt|drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen
feed fed|feel felt|fight fought|find found|flee fled|fly flew flown|forbid forbade forbidden
forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|get got gotten|give gave given
go went gone goes|grow grew grown|hang hung|hear heard|hide hid hidden|hold held|keep kept
kneel knelt|know knew known|lay laid|lead led|lean leant|leap leapt|learn learnt|leave left|lend lent
lie lain|light lit|lose lost|make made|mean meant|meet met|overcome overcame|pay paid|prove proven
ride rode ridden|ring rang rung|rise risen|run ran|say said says|see saw seen|seek sought|sell sold
send sent|sew sewn|shake shook shaken|shine shone|shoot shot|show shown|shrink shrank shrunk
sing sang sung|sink sank sunk|sit sat|sleep slept|slide slid|smell smelt|sow sown|speak spoke spoken
spell spelt|spend spent|spill spilt|spin spun|spoil spoilt|spring sprang sprung|stand stood
steal stole stolen|stick stuck|sting stung|strike struck|swear swore sworn|sweep swept
swell swollen|swim swam swum|swing swung|take took taken|teach taught|tear tore torn|tell told
think thought|throw threw thrown|understand understood|wake woke woken|wear wore worn|weave wove woven
weep wept|win won|withdraw withdrew withdrawn|write wrote written
child children|foot feet|goose geese|half halves|knife knives|loaf loaves
man men|mouse mice|ox oxen|person people|shelf shelves|thief thieves|tooth teeth|wife wives
wolf wolves|woman women
good better best|bad worse worst|far farther further
"""
# Left out are forms that are often another word, such as `rose`, `ground`, `lives` and `leaves`.

BASE_FORMS: dict[str, str] = {
    form: base
    for entry in _FORMS.replace("\n", "|").split("|")
    if entry
    for base, *forms in [entry.split()]
    for form in forms
}
"""The base form of each irregular form, in lower case."""
