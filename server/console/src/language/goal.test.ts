import { expect, test } from "vitest";

import { atomText, constantText } from "./atom";
import { parseGoal } from "./goal";

test("columns are the distinct variables of an atom", () => {
  expect(parseGoal("p(?x, a, ?y, ?x)")).toEqual({
    literals: 1,
    variables: ["x", "y"],
    columns: [
      { name: "x", argument: 0 },
      { name: "y", argument: 2 },
    ],
  });
});

test.each([
  ["?- p(?x).", 1, ["x"]],
  ["p(?x)", 1, ["x"]],
  ["not p(?x, _)", 1, ["x"]],
  ["~p(?x)", 1, ["x"]],
  ["p(?x), q(?x, ?y), ?y >= 3", 3, ["x", "y"]],
  ["raining", 1, []],
  ['"a b"(?x, "it (is)")', 1, ["x"]],
  ["", 0, []],
])("%s", (text, literals, variables) => {
  const goal = parseGoal(text);
  expect(goal.literals).toBe(literals);
  expect(goal.variables).toEqual(variables);
});

test("constants are quoted where the rule language requires it", () => {
  expect(["ann", "part-of", "iso:4217", "30", "-1.5", "Zoë", "not", "a b", 'x"y', "?x"].map(constantText)).toEqual([
    "ann", "part-of", "iso:4217", "30", "-1.5", "Zoë", '"not"', '"a b"', '"x\\"y"', '"?x"',
  ]);
});

test("an atom as text", () => {
  expect(atomText({ predicate: "is in", args: ["ann", "São Paulo"], negated: true })).toBe('~"is in"(ann, "São Paulo")');
  expect(atomText({ predicate: "raining", args: [] })).toBe("raining");
});
