"""What people say in a second kind of made chats, with other subjects, details and sentences.

It is for checking that a change made with `chat_texts` holds for other words too: leave it alone
while the search is changed.
"""

from __future__ import annotations

from .chat_texts import Detail, Family

FAMILIES = (
    Family(
        ("allotment lease", "car insurance", "tax return", "moving van", "mortgage", "visa application",
         "broadband contract", "washing machine", "heat pump", "tenancy dispute"),
        ("Ugh, the {noun} landed on my desk today.", "Quick rant: my {noun}.",
         "Remember the {noun}? Round two.", "Been dealing with the {noun} since breakfast.",
         "Small win, the {noun} moves forward."),
        ("Paperwork never sleeps.", "Spill.", "Say no more.", "Oof. What happened?"),
        ("cost", "agent", "deadline", "hitch", "document", "provider"),
    ),
    Family(
        ("knee surgery", "marathon plan", "sleep clinic", "yoga retreat", "allergy check", "diet trial",
         "dental implant", "hearing aid", "blood donation", "rowing season"),
        ("So the {noun}, let's talk about it.", "Doctor's orders: {noun}.", "Update from me on my {noun}!",
         "I keep putting off the {noun}.", "Finally tackled the {noun}."),
        ("Proud of you.", "Take it slow, please.", "And how is your body coping?", "Brave soul."),
        ("agent", "feeling", "deadline", "hitch", "meal", "gear"),
    ),
    Family(
        ("robotics club", "debate team", "jazz band", "science fair", "book launch", "podcast",
         "film shoot", "charity auction", "start-up", "photo exhibition"),
        ("The {noun} eats all of my time.", "Big news regarding the {noun}.",
         "Everyone keeps asking about our {noun}.", "Spent the weekend with the {noun} crowd.",
         "We had a meeting for the {noun}."),
        ("Ooh, fancy.", "You are unstoppable.", "Where do you find the hours?", "Keep going."),
        ("cost", "partner", "venue", "gear", "feeling", "document"),
    ),
)  # fmt: skip

FRIENDS = ("Tariq", "Inge", "Bela", "Maud", "Rafi", "Signe", "Otis", "Wanda", "Yuki", "Paolo")

DETAILS = {
    "cost": Detail(
        ("What is {who} charged for the {noun}?", "How expensive is the {noun} for {who}?"),
        ("What does the {noun} run you?", "How deep into your pocket does the {noun} go?"),
        ("Ouch, what is the damage?", "Does it hurt the wallet?"),
        ("{value} a month.", "{value}. Daylight robbery.", "They want {value}."),
        ("They bill me {value} for the {noun}.", "My {noun} is {value} altogether."),
        ("75 dollars", "1,900 dollars", "$420", "33 pounds", "£610", "2,250 dollars", "£88", "140 pounds"),
    ),
    "agent": Detail(
        ("Who handles the {noun} for {who}?", "Which person takes care of the {noun} of {who}?"),
        ("Who is your contact for the {noun}?", "Who looks after you regarding the {noun}?"),
        ("Got somebody decent?", "Who is on your case?"),
        ("{value}, thank goodness.", "That would be {value}.", "Someone called {value}."),
        ("{value} is in charge of my {noun}.", "My {noun} is handled by {value}."),
        ("Ms Adeyemi", "Dr Brandt", "Mr Castellano", "Nurse Iqbal", "Dr Sorensen", "Ms Petrova",
         "Mr Nakamura", "Ms Oyelaran"),
    ),
    "deadline": Detail(
        ("By when must {who} be done with the {noun}?", "What is the deadline of {who} for the {noun}?"),
        ("Until when can you delay the {noun}?", "Is there a cut-off for the {noun}?"),
        ("How much time is left?", "Any pressure?"),
        ("{value}, no excuses.", "{value} at the latest.", "They gave me till {value}."),
        ("The {noun} has to be through by {value}.", "{value} is the last day for the {noun}."),
        ("3 March", "Friday noon", "12 October", "the end of June", "Monday morning", "24 May",
         "mid-August", "7 January"),
    ),
    "hitch": Detail(
        ("What is holding up the {noun} of {who}?", "What obstacle did {who} meet with the {noun}?"),
        ("Is the {noun} going smoothly?", "Any bumps with the {noun} so far?"),
        ("Smooth sailing?", "What's the catch?"),
        ("Not with {value}.", "One thing: {value}.", "{value}. Of course."),
        ("{value} stalled my {noun}.", "Because of {value} the {noun} is on hold."),
        ("a typo in my name", "a strike", "a lost signature", "a swollen ankle", "an expired passport",
         "a leaking hose", "a faulty sensor", "bad weather"),
    ),
    "document": Detail(
        ("Which paper does {who} need for the {noun}?", "What must {who} submit for the {noun}?"),
        ("Did they ask for papers for the {noun}?", "What paperwork goes with the {noun}?"),
        ("What did they ask for?", "Forms and more forms?"),
        ("Just {value}.", "{value}, in triplicate.", "First {value}."),
        ("The {noun} requires {value}.", "I handed in {value} for the {noun}."),
        ("a birth certificate", "a floor plan", "proof of income", "three references", "a consent form",
         "a police report", "a signed affidavit", "bank statements"),
    ),
    "provider": Detail(
        ("Which company does {who} use for the {noun}?", "With which firm is the {noun} of {who}?"),
        ("What outfit did you choose for the {noun}?", "Who is behind the {noun}, the usual lot?"),
        ("With the same lot as before?", "Which one did you pick?"),
        ("{value}, cheapest of the bunch.", "{value} this time.", "Went with {value}."),
        ("I took {value} for the {noun}.", "The {noun} comes from {value}."),
        ("Northgate", "Bluebird & Sons", "Helvetic", "Quantum Direct", "Old Mutual", "Sparrow Ltd",
         "Tandem", "Ironbridge"),
    ),
    "feeling": Detail(
        ("How is {who} coping with the {noun}?", "What does {who} feel about the {noun}?"),
        ("Does the {noun} stress you out?", "Are you all right with the {noun}?"),
        ("Holding up?", "You sound odd, all fine?"),
        ("Truth be told, {value}.", "{value} is the word.", "Mostly {value}."),
        ("I am {value} about the {noun}.", "The {noun} makes me {value}."),
        ("anxious", "thrilled", "worn out", "optimistic", "skeptical", "numb", "giddy", "torn"),
    ),
    "meal": Detail(
        ("What does {who} eat during the {noun}?", "Which dish is part of the {noun} of {who}?"),
        ("What are you allowed to eat with the {noun}?", "Has the {noun} changed your menu?"),
        ("What is on your plate then?", "Are you starving?"),
        ("{value} and more {value}.", "They put me on {value}.", "{value}, mainly."),
        ("During the {noun} I live on {value}.", "{value} is my fuel for the {noun}."),
        ("oatmeal", "bone broth", "chickpea curry", "steamed fish", "beet smoothies", "plain rice",
         "kale omelettes", "protein shakes"),
    ),
    "gear": Detail(
        ("What equipment did {who} get for the {noun}?", "Which kit does {who} use for the {noun}?"),
        ("Do you own the kit for the {noun}?", "What stuff does the {noun} demand?"),
        ("Do you have the kit?", "New toys?"),
        ("Only {value} yet.", "{value}, second-hand.", "I splurged on {value}."),
        ("I ordered {value} for my {noun}.", "For the {noun} we rely on {value}."),
        ("a foam roller", "a ring light", "carbon shoes", "a mixing desk", "a soldering iron",
         "resistance bands", "two tripods", "a heart-rate strap"),
    ),
    "partner": Detail(
        ("Who does {who} run the {noun} with?", "Who is the partner of {who} in the {noun}?"),
        ("Are you doing the {noun} by yourself?", "Who shares the {noun} with you?"),
        ("Solo?", "Anyone on board?"),
        ("Nope, {value} joined.", "{value} and me.", "I roped in {value}."),
        ("{value} and I run the {noun}.", "I share the {noun} with {value}."),
        FRIENDS,
    ),
    "venue": Detail(
        ("At what location is the {noun} of {who}?", "Where does {who} hold the {noun}?"),
        ("Where does the {noun} happen?", "Do you have a roof over the {noun}?"),
        ("Whereabouts?", "In your garage again?"),
        ("{value}, ground floor.", "We got {value}.", "At {value}, believe me."),
        ("Our {noun} is at {value}.", "We booked {value} for the {noun}."),
        ("the Corn Exchange", "Studio Nine", "the old bakery", "Riverside School", "the Lighthouse",
         "Bishop's Hall", "the bus garage", "Elm Court"),
    ),
}  # fmt: skip

COUNTABLE = frozenset({"document", "gear", "partner", "meal"})

UPDATES = (
    "Status of the {noun}: {value}.", "{value} is where my {noun} stands.", "Today the {noun} meant {value}.",
)  # fmt: skip
UPDATE_QUESTIONS = (
    "What was the status of the {noun} of {who} on {day}?",
    "What did {who} report about the {noun} on {day}?",
)
STEPS = (
    "draft number three", "endless phone calls", "the kick-off", "a rejected request", "a dry run",
    "a signed offer", "a fresh start", "the final check", "a small breakthrough", "total silence",
)  # fmt: skip

CORRECTED_REACTIONS = ("Hang on, {value}?", "{value}, noted.", "Huh. {value}.")
CORRECTIONS = (
    "Actually it is {value}.", "My bad, {value}.", "Not quite right, make that {value}.", "I got confused, {value} it is.",
)  # fmt: skip
LATE_CORRECTIONS = (
    "Forget what I told you on the {noun}, it is {value}.",
    "Correction regarding the {noun}: {value}.",
)
ADDITIONS = ("Plus {value}.", "{value} too, come to think of it.", "Add {value} to that.")
DATED = ("The {noun} happens {when}.", "{when} is when the {noun} kicks off.")
PAST = ("We wrapped up the {noun} {when}.", "The {noun} took place {when}.")
DATE_QUESTIONS = ("When does {who} have the {noun}?", "What day is the {noun} of {who}?")
PAST_QUESTIONS = ("When did {who} have the {noun}?", "What day was the {noun} of {who}?")
DATE_ASKED = ("So when is it?", "Got a day for that?")
PAST_ASKED = ("When did that happen?", "How long ago?")

GREETINGS = (
    "Morning {other}!",
    "Yo {other}, long time.",
    "{other}, got five minutes?",
    "Hiya {other}.",
)
REPLIES = (
    "Always for you, {other}.",
    "Morning! Coffee in hand.",
    "Hey there, what's up?",
    "All ears, {other}.",
)
REMARKS = (
    "Classic you, {other}.", "I can picture it.", "Fair enough.", "No way!", "Well, at least something moves.",
    "You should write that down.", "Huh, interesting.", "My cousin had the same.", "Respect.", "Got it.",
)  # fmt: skip
SMALL_TALK = (
    ("{friend} sends regards.", "Give mine back to {friend}."),
    ("The heat is unbearable today.", "Thirty degrees in my kitchen."),
    ("Did you catch the match?", "Missed it, {other}, again."),
    ("Bumped into {friend} downtown.", "What is {friend} up to?"),
    ("My train got cancelled.", "Typical Thursday."),
    ("I broke my favourite mug.", "{friend} makes mugs, ask around."),
)
WONDERING = (
    ("Should you try a {noun}, what do you think?", "Give me a year or two."),
    ("{friend} brought up a {noun} as well.", "Compare notes then."),
)
BYES = ("Gotta dash!", "Sleep well, {other}.", "Catch you later, {other}.")
