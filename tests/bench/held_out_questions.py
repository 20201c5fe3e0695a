"""Paraphrases that are held out: domains, glosses and phrases on which nothing is tuned.

`question_goals.py` measures them with `--domain clinic`, `shipping` or `film`. They were written
before the product was changed for paraphrases, glosses first, each as a person would describe the
predicate, then phrases and whole questions as people ask, with and without words of the gloss.
Please do not look at single questions to change the product: only at the table. If you did, write
another file like this one, and say so.
"""

from __future__ import annotations

from question_relations import Domain, Relation

CLINIC = Domain(
    (
        Relation(
            "attending_doctor", ("patient", "doctor"), "doctor who is in charge of the treatment of a patient",
            ("the attending doctor of {}", "{}'s attending doctor"),
            ("the physician of {}", "the doctor treating {}", "the medic who looks after {}"),
            ("Who treats {}?", "Which doctor is in charge of {}?", "Who is {} under the care of?"),
        ),
        Relation(
            "ward", ("patient", "ward"), "ward of the hospital in which a patient lies",
            ("the ward of {}", "{}'s ward"),
            ("the unit {} was admitted to", "the ward where {} is staying", "the station {} lies in"),
            ("Where does {} lie?", "To which ward was {} admitted?", "Which ward is {} in?"),
        ),
        Relation(
            "head_nurse", ("ward", "nurse"), "nurse who leads a ward",
            ("the head nurse of {}", "{}'s head nurse"),
            ("the nurse in charge of {}", "the chief nurse of {}", "the person who runs {}"),
            ("Who leads {}?", "Who is the boss of {}?", "Which nurse manages {}?"),
        ),
        Relation(
            "allergy", ("patient", "substance"), "substance that a patient does not tolerate",
            ("the allergy of {}", "{}'s allergy"),
            ("the substance {} is allergic to", "what {} cannot tolerate", "the thing {} reacts badly to"),
            ("What is {} allergic to?", "Which substance must {} avoid?", "What does {} not tolerate?"),
        ),
        Relation(
            "prescribed", ("patient", "drug"), "drug that a doctor has ordered for a patient",
            ("the drug prescribed to {}", "the drug {} was prescribed"),
            ("the medicine {} takes", "the medication of {}", "the prescription of {}"),
            ("What does {} take?", "Which medicine is {} on?", "What drug has been ordered for {}?"),
        ),
        Relation(
            "manufacturer", ("drug", "company"), "company that produces a drug",
            ("the manufacturer of {}", "{}'s manufacturer"),
            ("the maker of {}", "the company that makes {}", "the producer of {}"),
            ("Who makes {}?", "Which company produces {}?", "Who manufactures {}?"),
        ),
        Relation(
            "registered_in", ("company", "town"), "town in whose commercial register a company is entered",
            ("the town {} is registered in", "the town where {} is registered"),
            ("the seat of {}", "the place of registration of {}", "the town {} is incorporated in"),
            ("Where is {} registered?", "Where is {} based?", "In which town is {} incorporated?"),
        ),
        Relation(
            "specialty", ("doctor", "field"), "branch of medicine in which a doctor is trained",
            ("the specialty of {}", "{}'s specialty"),
            ("the field {} specializes in", "the speciality of {}", "the discipline of {}"),
            ("What does {} specialize in?", "What is {} a specialist in?", "In which field does {} practise?"),
        ),
        Relation(
            "supervisor", ("nurse", "doctor"), "doctor to whom a nurse reports",
            ("the supervisor of {}", "{}'s supervisor"),
            ("the superior of {}", "the boss of {}", "the doctor {} reports to"),
            ("Who supervises {}?", "To whom does {} report?", "Who does {} answer to?"),
        ),
        Relation(
            "home_town", ("doctor", "town"), "town in which a doctor lives",
            ("the home town of {}", "{}'s home town"),
            ("the town where {} lives", "the place of residence of {}", "the town {} resides in"),
            ("Where does {} live?", "In which town does {} reside?", "Where is {} at home?"),
        ),
    ),
    {
        "patient": ["Agda", "Bertil", "Cecily", "Dorian", "Edda", "Fausto", "Greta"],
        "doctor": ["Doctor Imre", "Doctor Juno", "Doctor Kasper", "Doctor Lidia"],
        "ward": ["Ward East", "Ward Pine", "Ward Nine", "Ward Delta"],
        "nurse": ["Nurse Odile", "Nurse Pavel", "Nurse Rhea", "Nurse Signe"],
        "substance": ["latex", "penicillin", "iodine", "pollen"],
        "drug": ["Zelvorin", "Matrifex", "Calmiton", "Ostradol"],
        "company": ["Biorance", "Farmexa", "Helvipharm"],
        "town": ["Alby", "Brask", "Corvo", "Dunmere"],
        "field": ["cardiology", "neurology", "oncology"],
    },
    "patient",
    frozenset(("doctor", "nurse", "patient")),
    (
        "the dentist of {}", "the age of {}", "the brother of {}", "the insurer of {}", "the favourite meal of {}",
        "the doctor {} is afraid of", "the ward {} would rather be in", "the town {} went to school in",
        "the nurse {} complained about", "the drug {} refuses",
    ),
    (
        ("ward", ("How many patients are in {}?", "How many patients lie in {}?", "What is the number of patients in {}?")),
        ("manufacturer", ("How many drugs does {} make?", "How many drugs does {} produce?")),
        ("home_town", ("How many doctors live in {}?", "How many doctors have {} as home town?")),
    ),
)  # fmt: skip

SHIPPING = Domain(
    (
        Relation(
            "captain", ("ship", "sailor"), "sailor who commands a ship",
            ("the captain of {}", "{}'s captain"),
            ("the skipper of {}", "the sailor commanding {}", "the commander of {}"),
            ("Who commands {}?", "Who is in command of {}?", "Who steers {}?"),
        ),
        Relation(
            "home_port", ("ship", "port"), "port in which a ship is registered",
            ("the home port of {}", "{}'s home port"),
            ("the harbour {} is from", "the port of registry of {}", "the port where {} belongs"),
            ("Where is {} registered?", "Which port does {} come from?", "What is the home harbour of {}?"),
        ),
        Relation(
            "carries", ("ship", "cargo"), "goods that a ship has on board",
            ("the cargo {} carries", "the cargo that is carried by {}"),
            ("the freight of {}", "the load of {}", "the goods aboard {}"),
            ("What does {} transport?", "What is on board of {}?", "What is {} loaded with?"),
        ),
        Relation(
            "bound_for", ("ship", "port"), "port to which a ship is sailing",
            ("the port {} is bound for", "the port for which {} is bound"),
            ("the destination of {}", "the port {} is heading to", "the port {} sails to"),
            ("Where is {} going?", "Where is {} heading?", "Which port is {} sailing to?"),
        ),
        Relation(
            "owned_by", ("ship", "line"), "shipping line to which a ship belongs",
            ("the line {} is owned by", "the line by which {} is owned"),
            ("the owner of {}", "the shipping company of {}", "the proprietor of {}"),
            ("Who owns {}?", "Whom does {} belong to?", "Which line possesses {}?"),
        ),
        Relation(
            "director", ("line", "manager"), "manager at the top of a shipping line",
            ("the director of {}", "{}'s director"),
            ("the chief of {}", "the head of {}", "the manager who directs {}"),
            ("Who runs {}?", "Who is at the top of {}?", "Who directs {}?"),
        ),
        Relation(
            "harbour_master", ("port", "official"), "official who is responsible for the traffic in a port",
            ("the harbour master of {}", "{}'s harbour master"),
            ("the official in charge of {}", "the official who runs {}", "the official responsible for {}"),
            ("Who oversees {}?", "Who is responsible for {}?", "Who controls the traffic in {}?"),
        ),
        Relation(
            "located_in", ("port", "country"), "country on whose coast a port lies",
            ("the country {} is located in", "the country where {} is located"),
            ("the country of {}", "the nation {} lies in", "the land {} is situated in"),
            ("Where is {}?", "In which country does {} lie?", "What country is {} part of?"),
        ),
        Relation(
            "currency", ("country", "currency"), "money that is used in a country",
            ("the currency of {}", "{}'s currency"),
            ("the money used in {}", "the legal tender of {}", "the money people pay with in {}"),
            ("What do people pay with in {}?", "Which money does {} use?", "What currency is used in {}?"),
        ),
        Relation(
            "born_in", ("sailor", "country"), "country in which a sailor came into the world",
            ("the country {} was born in", "the country in which {} was born"),
            ("the birthplace of {}", "the native country of {}", "the country {} comes from"),
            ("Where was {} born?", "Where does {} come from?", "What is the birth country of {}?"),
        ),
    ),
    {
        "ship": ["Halcyon", "Borealis", "Petrel", "Sea Thistle", "Marigold", "Grey Heron"],
        "sailor": ["Anders Quist", "Bo Larkin", "Cato Moss", "Dag Elling"],
        "port": ["Port Sorrel", "Vikhavn", "Cape Linden", "Easthaven"],
        "cargo": ["timber", "grain", "copper", "salt"],
        "line": ["Polar Line", "Meridian Line", "Corda Line"],
        "manager": ["Ella Voss", "Finn Harrow", "Gil Tessen"],
        "official": ["Hanne Ruud", "Ivo Bask", "Jette Lorn"],
        "country": ["Norrland", "Pellania", "Quoria"],
        "currency": ["krona", "pell", "quor"],
    },
    "ship",
    frozenset(("sailor", "manager", "official")),
    (
        "the cook of {}", "the length of {}", "the colour of {}", "the insurer of {}", "the builder of {}",
        "the port {} was built in", "the sailor who was rescued by {}", "the country {} fled from",
        "the line that wants to buy {}", "the cargo {} lost",
    ),
    (
        ("owned_by", ("How many ships does {} own?", "How many ships are owned by {}?", "How many ships belong to {}?")),
        ("located_in", ("How many ports are located in {}?", "How many ports lie in {}?")),
        ("bound_for", ("How many ships are bound for {}?", "How many ships sail to {}?", "What is the number of ships bound for {}?")),
    ),
)  # fmt: skip

FILM = Domain(
    (
        Relation(
            "directed_by", ("film", "artist"), "artist who directed a film",
            ("the artist {} was directed by", "the artist by whom {} was directed"),
            ("the director of {}", "the filmmaker behind {}", "the person who made {}"),
            ("Who directed {}?", "Who is the director of {}?", "Who made {}?"),
        ),
        Relation(
            "composer", ("film", "artist"), "artist who wrote the music of a film",
            ("the composer of {}", "{}'s composer"),
            ("the person who composed the music of {}", "the musician who scored {}", "the writer of the music for {}"),
            ("Who composed the music for {}?", "Who wrote the score of {}?", "Who wrote the music of {}?"),
        ),
        Relation(
            "leading_actor", ("film", "artist"), "artist who plays the main part in a film",
            ("the leading actor of {}", "{}'s leading actor"),
            ("the star of {}", "the lead of {}", "the person playing the main role in {}"),
            ("Who stars in {}?", "Who plays the lead in {}?", "Who has the main role in {}?"),
        ),
        Relation(
            "genre", ("film", "genre"), "kind of story that a film tells",
            ("the genre of {}", "{}'s genre"),
            ("the category of {}", "the type of film {} is", "the kind of movie {} is"),
            ("What kind of film is {}?", "What type of movie is {}?", "What sort of story does {} tell?"),
        ),
        Relation(
            "studio", ("film", "studio"), "studio in which a film was produced",
            ("the studio of {}", "{}'s studio"),
            ("the producer of {}", "the production company of {}", "the studio that produced {}"),
            ("Who produced {}?", "Where was {} produced?", "Where was {} shot?"),
        ),
        Relation(
            "parent_company", ("studio", "group"), "group of companies to which a studio belongs",
            ("the parent company of {}", "{}'s parent company"),
            ("the owner of {}", "the group that owns {}", "the group {} is part of"),
            ("Who owns {}?", "Whom does {} belong to?", "Which group is {} a member of?"),
        ),
        Relation(
            "chairman", ("group", "executive"), "executive who presides over the board of a group",
            ("the chairman of {}", "{}'s chairman"),
            ("the chairperson of {}", "the president of {}", "the chair of the board of {}"),
            ("Who chairs {}?", "Who presides over {}?", "Who is the head of {}?"),
        ),
        Relation(
            "agent", ("artist", "agency"), "agency that finds work for an artist",
            ("the agent of {}", "{}'s agent"),
            ("the agency representing {}", "the representative of {}", "the agency that {} signed with"),
            ("Who represents {}?", "Which agency is {} with?", "Who finds work for {}?"),
        ),
        Relation(
            "based_in", ("agency", "city"), "city in which an agency has its office",
            ("the city {} is based in", "the city in which {} is based"),
            ("the location of {}", "the city where {} has its headquarters", "the home city of {}"),
            ("Where is {} located?", "Where is the office of {}?", "Where can one find {}?"),
        ),
        Relation(
            "married_to", ("artist", "other_artist"), "artist who is the husband or wife of another one",
            ("the artist {} is married to", "the artist to whom {} is married"),
            ("the spouse of {}", "the partner of {}", "the wife or husband of {}"),
            ("Who is {} married to?", "Whom did {} marry?", "Who is the spouse of {}?"),
        ),
    ),
    {
        "film": ["Amber Tide", "The Ninth Lantern", "Cold Meadow", "Ferryman", "Long Shadows"],
        "artist": ["Alma Ferro", "Bruno Castell", "Clio Brandt", "Dario Nunn", "Esme Vale", "Felix Orr"],
        "genre": ["thriller", "comedy", "western"],
        "studio": ["Blackbird Studio", "Lumen Works", "Seventh Gate"],
        "group": ["Orbis Group", "Tandem Group"],
        "executive": ["Gerda Pohl", "Hugo Lind", "Ilse Marr"],
        "agency": ["Marquee", "Spotlight West", "Firm Nine"],
        "city": ["Vantor", "Selby", "Ocalla"],
    },
    "film",
    frozenset(("artist", "executive")),
    (
        "the budget of {}", "the length of {}", "the sequel of {}", "the cinema showing {}", "the editor of {}",
        "the artist who turned down {}", "the city {} is set in", "the studio {} was stolen from",
        "the award {} won", "the critic who hated {}",
    ),
    (
        ("directed_by", ("How many films did {} direct?", "How many films were directed by {}?")),
        ("based_in", ("How many agencies are based in {}?", "How many agencies are there in {}?")),
        ("genre", ("How many films have the genre {}?", "What is the number of films of the genre {}?")),
    ),
)  # fmt: skip

HELD_OUT = {"clinic": CLINIC, "shipping": SHIPPING, "film": FILM}

PAST = (
    "What was {phrase} in {year}?",
    "In {year}, what was {phrase}?",
    "What was {phrase} on 5 March {year}?",
    "What was {phrase} at the end of {year}?",
)
PREVIOUS = ("What was {phrase} before {value}?", "What was {phrase} previously?")
SINCE = ("Since when is {value} {phrase}?", "When did {value} become {phrase}?")
WHETHER = ("Is {value} {phrase}?", "Is it true that {phrase} is {value}?")
WHETHER_PAST = ("Was {value} {phrase} in {year}?",)
"""Questions about the value of a phrase at other times. A value changes at the start of a year."""

TOTALS = (
    ("owned_by", "tonnage", "What is the total tonnage of the ships owned by {}?"),
    ("owned_by", "tonnage", "What is the sum of the tonnage of the ships of {}?"),
    ("ward", "weight", "What is the average weight of the patients in {}?"),
    ("ward", "weight", "What is the total weight of the patients in {}?"),
    ("directed_by", "budget", "What is the total budget of the films directed by {}?"),
    ("directed_by", "budget", "What was the highest budget of the films directed by {}?"),
)
"""A relation of which the second argument is known, a relation with numbers, and a text."""
