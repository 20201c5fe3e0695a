import { expect, test } from "vitest";

import { goalsOf, isQuestion, programOf } from "./goals";

const texts = (text: string) => goalsOf(text).map((goal) => goal.text);

test.each([
  ["p(?x)", ["p(?x)"]],
  ["?- p(?x).", ["p(?x)"]],
  ["p(?x). q(?x).", ["p(?x)", "q(?x)"]],
  ["p(?x)\nq(?y)\n", ["p(?x)", "q(?y)"]],
  ["p(?x),\nq(?x)", ["p(?x),\nq(?x)"]],
  ["p(?x)\n  , q(?x)", ["p(?x)\n  , q(?x)"]],
  ["p(a,\n  b)", ["p(a,\n  b)"]],
  ["age(?x, 3.5). raining", ["age(?x, 3.5)", "raining"]],
  ['says(?x, "a. b")\nq', ['says(?x, "a. b")', "q"]],
  ["% all of them\np(?x)\n# and\nq(?x)", ["p(?x)", "q(?x)"]],
  ["", []],
  ["?-", []],
])("the goals of %j", (text, goals) => {
  expect(texts(text)).toEqual(goals);
});

test("mistakes in a checked text are placed in the text of the goals", () => {
  const { text, place } = programOf(goalsOf("p(?x).  ?- q(\n?y)\nr(?z"));
  expect(text).toBe("?- p(?x).\n?- q(\n?y).\n?- r(?z.");
  expect(place({ line: 2, column: 4, message: "" })).toMatchObject({ line: 1, column: 12, endColumn: 13 });
  expect(place({ line: 3, column: 2, message: "" })).toMatchObject({ line: 2, column: 2 });
  expect(place({ line: 4, column: 6, message: "" })).toMatchObject({ line: 3, column: 3 });
});

test.each([
  ["Who is the parent of bob?", true],
  ["who likes tea", true],
  ["Where does Mia live, and since when?", true],
  ["raining?", false],
  ["raining, sunny", false],
  ["not raining", false],
  ["parent(ann, ?who)", false],
  ["?x = 3", false],
  ["", false],
])("%j", (text, expected) => {
  expect(isQuestion(text)).toBe(expected);
});
