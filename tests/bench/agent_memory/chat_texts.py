"""What people say in made chats: subjects, details, and the sentences for them.

`{noun}` is a subject, `{who}` its person, `{other}` the other person, `{value}` a detail. A short
answer has no word of the later question.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """Subjects that begin alike, and details of them."""

    nouns: tuple[str, ...]
    openers: tuple[str, ...]
    reactions: tuple[str, ...]
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Detail:
    """A detail: later questions, and how people ask for it, answer in short and tell it in full."""

    questions: tuple[str, ...]
    asked: tuple[str, ...]
    asked_again: tuple[str, ...]
    short: tuple[str, ...]
    full: tuple[str, ...]
    values: tuple[str, ...]


FAMILIES = (
    Family(
        ("pottery class", "sailing course", "Italian course", "dance workshop", "first aid course",
         "chess club", "watercolour class", "climbing group", "beekeeping course", "choir",
         "photography workshop", "woodwork class"),
        ("I finally signed up for the {noun}.", "Guess what, I started with the {noun}.",
         "You know I kept talking about the {noun}? I am in.", "My {noun} began this week.",
         "So, the {noun} has taken over my evenings.", "I had the {noun} again and I am sore."),
        ("Oh, that suits you!", "Finally! You have wanted that for ages.",
         "Really? I would be hopeless at it.", "Good for you, tell me everything."),
        ("companion", "place", "price", "teacher", "made", "trouble"),
    ),
    Family(
        ("camping trip", "trip to Norway", "road trip", "hiking tour", "weekend in Prague",
         "cycling tour", "train journey", "visit to the coast", "ski holiday", "island holiday",
         "canoe tour", "city break"),
        ("We are back from the {noun}.", "I have been dreaming of the {noun} all week.",
         "The {noun} is settled at last.", "Let me tell you about the {noun}.",
         "I have photos of the {noun} for you.", "About the {noun}: it actually happened."),
        ("I am so jealous.", "I want to hear all about it.", "You two deserve a break.",
         "Lovely, I have not been away in months."),
        ("companion", "place", "price", "packed", "trouble", "food"),
    ),
    Family(
        ("kitchen renovation", "garden shed", "new bathroom", "balcony garden", "attic room",
         "vegetable patch", "garage roof", "front door", "hen house", "greenhouse",
         "living room floor", "garden pond"),
        ("I have made a start on the {noun}.", "The {noun} is driving me up the wall.",
         "You would not recognise the {noun}.", "There is news about the {noun}.",
         "I spent all Sunday on the {noun}.", "My back hurts because of the {noun}."),
        ("Oh dear, that again.", "You are braver than I am.", "I cannot wait to see it.",
         "How exciting, and how dusty."),
        ("helper", "price", "colour", "bought", "trouble", "finish"),
    ),
    Family(
        ("school reunion", "birthday party", "choir concert", "charity run", "street festival",
         "wedding", "housewarming", "poetry reading", "flea market", "quiz night",
         "neighbourhood picnic", "theatre evening"),
        ("The {noun} was something else.", "I still think about the {noun}.",
         "Did I mention the {noun}?", "Everybody talks about the {noun} here.",
         "I went to the {noun} after all.", "I was asked to help with the {noun}."),
        ("Go on, I am listening.", "I heard a little about it.", "Sorry that I missed it!",
         "That must have been a long day."),
        ("companion", "place", "food", "gift", "music", "finish"),
    ),
    Family(
        ("puppy", "old cat", "parrot", "rabbit", "pony", "rescue dog", "tortoise", "kitten",
         "hamster", "goat", "pair of ducks", "budgie"),
        ("The {noun} has moved in with us.", "I have to tell you about the {noun}.",
         "The {noun} kept me awake all night.", "My days turn around the {noun} now.",
         "We took the {noun} to the vet.", "The {noun} is doing well."),
        ("How sweet!", "I did not know you wanted one.", "Poor thing.", "Send me a picture!"),
        ("called", "colour", "price", "food", "trouble", "helper"),
    ),
    Family(
        ("job interview", "driving test", "exam", "presentation", "doctoral defence",
         "first day at work", "audition", "language exam", "pitch to investors",
         "citizenship test", "piano recital", "court hearing"),
        ("I survived the {noun}.", "The {noun} is behind me.", "I am so nervous about the {noun}.",
         "I have been learning for the {noun}.", "There is a date for the {noun}.",
         "I was not warned about the {noun}."),
        ("I kept my fingers crossed.", "You will be fine, as always.", "I know that feeling.",
         "And? Do not keep me waiting."),
        ("helper", "place", "wore", "trouble", "gift", "mood"),
    ),
)  # fmt: skip

FRIENDS = (
    "Ava",
    "Ben",
    "Cleo",
    "Dov",
    "Fern",
    "Gwen",
    "Ike",
    "Juno",
    "Kurt",
    "Lotte",
    "Moe",
    "Nell",
)
"""People that both speakers know; they come up in small talk as well."""

DETAILS = {
    "companion": Detail(
        ("Who went with {who} to the {noun}?", "Who joined {who} at the {noun}?"),
        ("Did anyone come along to the {noun}?", "Did you do the {noun} on your own?"),
        ("And were you alone?", "All by yourself?"),
        ("No, {value} did too.", "{value} did, to my surprise.", "Not quite, {value} tagged along."),
        ("{value} came to the {noun} with me.", "I took {value} along to the {noun}.",
         "I was at the {noun} together with {value}."),
        FRIENDS,
    ),
    "place": Detail(
        ("Where was the {noun} of {who}?", "In which place did {who} have the {noun}?"),
        ("Where do they hold the {noun}?", "Is the {noun} far from you?"),
        ("And how do you get there?", "Is that far?"),
        ("Ten minutes by bike, at {value}.", "Just behind {value}.", "Over at {value}, luckily."),
        ("They moved the {noun} to {value}.", "For the {noun} I had to find {value} first.",
         "You find the {noun} at {value} now."),
        ("the old mill", "the harbour hall", "Lake Orrin", "the town library", "Maple Street",
         "the red barn", "the north beach", "Hill Park", "the fire station", "Saint Anne's",
         "the tram depot", "the castle yard"),
    ),
    "price": Detail(
        ("How much did {who} pay for the {noun}?", "What did the {noun} cost {who}?"),
        ("Was the {noun} expensive?", "Can I ask what you spend on the {noun}?"),
        ("And does that ruin you?", "Is it worth the money?"),
        ("{value}, all in.", "Around {value}, sadly.", "{value}, and not a cent less."),
        ("I paid {value} for the {noun}.", "The {noun} set me back {value}.",
         "All in all the {noun} came to {value}."),
        ("90 euros", "240 euros", "35 euros", "1,100 euros", "480 euros", "65 euros", "310 euros",
         "720 euros", "150 euros", "28 euros", "560 euros", "205 euros"),
    ),
    "teacher": Detail(
        ("Who teaches {who} in the {noun}?", "Who is the teacher of {who} in the {noun}?"),
        ("Do you like the head of the {noun}?", "Are you in good hands in the {noun}?"),
        ("And are the people nice?", "Who is in charge?"),
        ("{value}, very patient.", "It is {value}, strict but funny.", "{value}, you would get along."),
        ("{value} leads the {noun}.", "The {noun} is run by {value}.",
         "In the {noun} we learn from {value}."),
        ("a retired captain", "Mrs Okafor", "Mr Lindqvist", "a former nurse", "Professor Amari",
         "a young Scot", "Madame Perrin", "an opera singer", "Doctor Weiss", "a quiet monk",
         "the mayor's wife", "Captain Rossi"),
    ),
    "made": Detail(
        ("What did {who} produce in the {noun}?", "What is the first work of {who} from the {noun}?"),
        ("Do you bring things home from the {noun}?", "Have you got anything to show from the {noun}?"),
        ("Anything to show yet?", "And what comes out of it?"),
        ("{value}, a bit crooked.", "So far only {value}.", "{value}, believe it or not."),
        ("In the {noun} I managed {value}.", "I finished {value} in the {noun}.",
         "My result of the {noun} is {value}."),
        ("a blue bowl", "a tiny stool", "three portraits", "a knotted rope", "a jar of honey",
         "a short waltz", "a wooden spoon", "a signed certificate", "a painted fan",
         "two clay birds", "a picture frame", "a lampshade"),
    ),
    "trouble": Detail(
        ("What went wrong with the {noun} of {who}?", "Which problem did {who} have with the {noun}?"),
        ("Did everything work out with the {noun}?", "No disasters with the {noun}, I hope?"),
        ("And it all went well?", "No drama this time?"),
        ("Well, there was {value}.", "Almost. Then came {value}.", "Do not ask, {value}."),
        ("The {noun} had a bad start because of {value}.", "With the {noun} we ran into {value}.",
         "Thanks to {value} the {noun} nearly failed."),
        ("a burst pipe", "a flat tyre", "a wasp nest", "a lost key", "a power cut", "heavy hail",
         "a broken zip", "a sprained ankle", "food poisoning", "a double booking",
         "a missing form", "a swarm of midges"),
    ),
    "packed": Detail(
        ("What did {who} carry in the bag for the {noun}?", "What did {who} pack for the {noun}?"),
        ("Did you have everything you need for the {noun}?", "Was your luggage for the {noun} heavy?"),
        ("And did you travel light?", "Was your rucksack heavy?"),
        ("Mostly {value}.", "Heavy, with {value} in it.", "Only {value}, honestly."),
        ("For the {noun} I packed {value}.", "I carried {value} all through the {noun}.",
         "My bag for the {noun} was full of {value}."),
        ("a tin kettle", "wool blankets", "four novels", "a head torch", "a folding chair",
         "rain capes", "a travel chess set", "spare boots", "a fishing rod", "sun hats",
         "a ukulele", "maps on paper"),
    ),
    "food": Detail(
        ("What did {who} serve or eat with the {noun}?", "Which food goes with the {noun} of {who}?"),
        ("Was there anything good to eat at the {noun}?", "How do meals go with the {noun}?"),
        ("And the meals?", "Did you at least eat well?"),
        ("Plenty of {value}.", "{value}, from morning on.", "Nothing but {value}."),
        ("With the {noun} it is {value} every day.", "The {noun} means {value} for breakfast.",
         "We had {value} because of the {noun}."),
        ("lentil soup", "plum dumplings", "smoked trout", "carrot cake", "cheese toast",
         "sunflower seeds", "grilled corn", "pea stew", "rice pudding", "dried apricots",
         "potato salad", "fennel leaves"),
    ),
    "helper": Detail(
        ("Who helped {who} with the {noun}?", "Who gave {who} a hand with the {noun}?"),
        ("Do you do everything for the {noun} yourself?", "Does anyone support you with the {noun}?"),
        ("And you manage alone?", "Surely not all by yourself?"),
        ("Thank heavens for {value}.", "{value} does the hard part.", "No, {value} steps in."),
        ("{value} helped me with the {noun}.", "Without {value} the {noun} would not work.",
         "I asked {value} for a hand with the {noun}."),
        ("my neighbour Olaf", "my sister Ruth", "Uncle Piet", "our caretaker", "my old boss",
         "cousin Irma", "the twins", "a student from Ghent", "my godmother", "Grandpa Emil",
         "my flatmate Sol", "the plumber's son"),
    ),
    "colour": Detail(
        ("What colour is the {noun} of {who}?", "Which shade does the {noun} of {who} have?"),
        ("How does the {noun} look?", "What should I imagine when I think of the {noun}?"),
        ("Describe it!", "And how does it look?"),
        ("{value}, it glows.", "Sort of {value}.", "Very {value} from top to bottom."),
        ("The {noun} is {value} all over.", "I love that the {noun} is {value}.",
         "In the sun the {noun} looks {value}."),
        ("dark green", "pale yellow", "rust red", "silver grey", "sky blue", "chestnut brown",
         "cream white", "jet black", "apricot", "lavender", "mustard", "teal"),
    ),
    "bought": Detail(
        ("What did {who} buy for the {noun}?", "Which purchase did {who} make for the {noun}?"),
        ("Do you have the material for the {noun}?", "Did you go shopping for the {noun}?"),
        ("And where do you stand?", "Do you still need things?"),
        ("I have got {value} by now.", "{value} arrived on Friday.", "Only {value} so far."),
        ("I bought {value} for the {noun}.", "For the {noun} I ordered {value}.",
         "The shop had {value}, just right for the {noun}."),
        ("oak boards", "brass hinges", "forty bricks", "a roll of felt", "two buckets of paint",
         "clay tiles", "a second-hand sink", "copper pipes", "a bag of lime", "cedar planks",
         "old windows", "a skylight"),
    ),
    "finish": Detail(
        ("How did the {noun} of {who} end?", "What was at the end of the {noun} of {who}?"),
        ("How late did it get with the {noun}?", "Is the {noun} over?"),
        ("And then?", "And how long did that go on?"),
        ("Until {value}.", "Then came {value}.", "It all stopped with {value}."),
        ("The {noun} ended with {value}.", "At the close of the {noun} there was {value}.",
         "The last thing of the {noun} was {value}."),
        ("a thunderstorm", "fireworks", "a long speech", "tears of joy", "a snowball fight",
         "a toast to grandma", "a visit by the police", "a raffle", "a group photo",
         "midnight soup", "a lantern walk", "an unexpected bill"),
    ),
    "gift": Detail(
        ("What present did {who} get for the {noun}?", "What was given to {who} at the {noun}?"),
        ("Did people spoil you at the {noun}?", "Did you get anything for the {noun}?"),
        ("And did they spoil you?", "Any surprises?"),
        ("Oh yes, {value}.", "{value}, would you believe it.", "{value} from all of them together."),
        ("For the {noun} they handed me {value}.", "I got {value} for the {noun}.",
         "My surprise at the {noun} was {value}."),
        ("a silk scarf", "a fountain pen", "a kite", "concert tickets", "a cactus", "a wall clock",
         "a box of truffles", "a leather diary", "a snow globe", "walking poles",
         "a crossword book", "a telescope"),
    ),
    "music": Detail(
        ("Which music was played at the {noun} of {who}?", "What did {who} hear at the {noun}?"),
        ("Was there a band at the {noun}?", "Did you dance at the {noun}?"),
        ("Did you dance?", "And was it loud?"),
        ("Until my feet hurt, to {value}.", "Yes, {value}, my ears still ring.", "They had {value}."),
        ("At the {noun} there was {value}.", "The {noun} opened with {value}.",
         "What I liked most of the {noun} was {value}."),
        ("a brass quartet", "Cuban drums", "an accordion trio", "a ukulele orchestra",
         "bagpipes", "a gospel group", "swing records", "a harp duo", "a punk cover band",
         "barrel organs", "a children's choir", "a jazz pianist"),
    ),
    "called": Detail(
        ("What is the name of the {noun} of {who}?", "How does {who} name the {noun}?"),
        ("What do you shout when the {noun} runs off?", "Have you agreed how to call the {noun}?"),
        ("And you call it?", "What do the children shout?"),
        ("{value}, the kids decided.", "It is {value} now.", "{value}, after my grandmother."),
        ("We call the {noun} {value}.", "The {noun} listens to {value}.",
         "The papers of the {noun} say {value}."),
        ("Biscuit", "Waffle", "Domino", "Nutmeg", "Comet", "Pixel", "Marzipan", "Zorro", "Pepper",
         "Olive", "Bramble", "Tofu"),
    ),
    "wore": Detail(
        ("What was {who} wearing at the {noun}?", "Which clothes did {who} choose for the {noun}?"),
        ("What did you put on for the {noun}?", "Did you dress up for the {noun}?"),
        ("Did you dress up?", "And in jeans?"),
        ("No, {value} had to do.", "{value}, borrowed.", "In {value}, can you imagine."),
        ("I wore {value} at the {noun}.", "For the {noun} I put on {value}.",
         "I ironed {value} for the {noun}."),
        ("a velvet jacket", "a striped tie", "green corduroys", "a linen suit", "red shoes",
         "a tweed coat", "my mother's brooch", "a bow tie", "a denim skirt", "a grey cardigan",
         "silver earrings", "a black turtleneck"),
    ),
    "mood": Detail(
        ("How did {who} feel about the {noun}?", "In which mood was {who} after the {noun}?"),
        ("How was it for you, the {noun}?", "Are you happy with the {noun}?"),
        ("And how are you now?", "Are you happy?"),
        ("Honestly? Just {value}.", "{value}, more than anything.", "A little {value}, I must say."),
        ("The {noun} left me {value}.", "I came out of the {noun} {value}.",
         "Since the {noun} I have been {value}."),
        ("relieved", "furious", "exhausted", "grateful", "bored", "homesick", "proud", "puzzled",
         "hopeful", "sleepless", "embarrassed", "cheerful"),
    ),
}  # fmt: skip

COUNTABLE = frozenset({"companion", "made", "packed", "food", "helper", "bought", "gift", "music"})
"""Details of which there can be several."""

UPDATES = (
    "With the {noun} I am at {value} now.", "The {noun} has got as far as {value}.",
    "As for the {noun}, today it was {value}.", "Small step with the {noun}: {value}.",
)  # fmt: skip
"""News of a subject that comes up again and again; the later question names the day."""

UPDATE_QUESTIONS = (
    "What did {who} say about the {noun} on {day}?",
    "What was new with the {noun} of {who} on {day}?",
)
STEPS = (
    "the second chapter", "a long pause", "the boring paperwork", "the first coat", "a rehearsal",
    "the hardest part", "a quarrel with the office", "the final list", "a new plan",
    "the insurance letter", "half of the list", "a visit from an expert", "a lot of waiting",
    "the measurements", "a second opinion", "the invitations", "a big clean-up", "the deposit",
    "a trial run", "the last signature",
)  # fmt: skip

CORRECTED_REACTIONS = ("{value}? Really?", "Oh, {value}, I see.", "Wait, {value}?", "Ah, {value}.")
CORRECTIONS = (
    "No, I meant {value}.", "Sorry, I mixed it up: {value}.", "Oops, not that. It was {value}.",
    "Let me correct myself, {value}.", "I said that wrong, {value} is right.",
)  # fmt: skip
LATE_CORRECTIONS = (
    "By the way, what I told you about the {noun} was wrong: it is {value}.",
    "Scrap what I said the other day, for the {noun} it became {value}.",
    "One more thing on the {noun}: it is {value} after all.",
)
ADDITIONS = (
    "Oh, and {value} as well.", "And {value}, before I forget.", "Then there was also {value}.",
    "Not to forget {value}.",
)  # fmt: skip
DATED = (
    "The {noun} is {when}.", "It gets serious with the {noun} {when}.",
    "They put the {noun} on my calendar for {when}.", "I have the {noun} {when}, hopefully.",
)  # fmt: skip
PAST = ("The {noun} was {when}.", "I had the {noun} {when}.", "{when} it was time for the {noun}.")
DATE_QUESTIONS = ("When is the {noun} of {who}?", "On which day does {who} have the {noun}?")
PAST_QUESTIONS = ("When was the {noun} of {who}?", "On which day did {who} have the {noun}?")
DATE_ASKED = ("Is there a date?", "And when is that?", "When, then?")
PAST_ASKED = ("And when was that?", "Was that recently?", "That was lately, right?")

GREETINGS = (
    "Hey {other}, good to see you again.", "Hi {other}, how have you been?", "{other}! Finally.",
    "Good evening {other}, do you have a minute?", "Hello {other}, are you still up?",
    "Hi {other}, I was just thinking of you.",
)  # fmt: skip
REPLIES = (
    "Hi {other}, all good here, a bit busy.", "Hey {other}, doing well, thanks.",
    "{other}! I was about to write to you.", "Hello {other}, tired but fine.",
    "Hi {other}, same as ever.", "Evening {other}, the tea is ready, go ahead.",
)  # fmt: skip
REMARKS = (
    "That sounds wonderful, {other}.", "Wow, I am happy for you!", "Ha, typical.",
    "I wish I could do something like that.", "Thanks for telling me, {other}.",
    "You always have something going on.", "I would not have expected that.",
    "Oh, my mother would like that story.", "Makes sense.", "You see, I told you so.",
    "I need to think about that.", "Good, good.", "That is a lot for one week.", "I believe you.",
)  # fmt: skip
SMALL_TALK = (
    ("{friend} says hello, by the way.", "Oh, say hello back to {friend}."),
    ("I ran into {friend} at the bakery.", "How is {friend} these days?"),
    ("It has been raining here since Monday.", "Here too, the whole street is under water."),
    ("Did you see the news?", "I stopped reading them, {other}."),
    ("{friend} and I talked about you yesterday.", "Only good things, I hope."),
    ("Work is endless at the moment.", "Take a day off, {other}, seriously."),
    ("I slept badly, the neighbours were loud.", "Earplugs, {other}. I swear by them."),
    ("Is {friend} still living in the old flat?", "I think so, I have not seen {friend} in weeks."),
    ("My phone is dying, I have to be quick.", "No problem, {other}."),
    ("I tried a new recipe and burnt it.", "You and {friend} should open a restaurant."),
    ("I cannot find my glasses again.", "Look in the fridge, {other}."),
    ("The bus was late again.", "It is always late when {friend} is waiting for me."),
)
WONDERING = (
    ("Have you ever done anything like a {noun}?", "Not yet, maybe some day."),
    ("{friend} asked me about a {noun} too.", "Then you can swap stories."),
    ("Would a {noun} be something for you?", "Perhaps when the kids are older."),
)
"""Turns that name a subject and tell nothing."""

BYES = ("I have to run, talk soon!", "Good night, {other}.", "Let us talk next week, {other}.")
