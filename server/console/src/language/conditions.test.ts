import { expect, test } from "vitest";

import { conditionText, isGuess, type Proposal } from "./conditions";

function sentence(goal: string, proposal: Proposal): string {
  const { begin, conditions } = conditionText(goal, proposal);
  return [begin, ...conditions.map(({ word, fact }) => `${word} ${fact}`)].join(" ");
}

test("a goal about a right would be allowed, any other would hold", () => {
  expect(sentence("can_read(zed, plan)", { add: ["member(zed, eng)"], remove: [] })).toBe("It would be allowed if member(zed, eng)");
  expect(sentence("parent(a, b)", { add: ["p(a)", "q(b)"], remove: [] })).toBe("It would hold if p(a) and q(b)");
});

test("facts to remove follow those to add", () => {
  expect(sentence("may(bob)", { add: ["a"], remove: ["b", "c"] })).toBe("It would be allowed if a without b and c");
});

test("the goal itself with any constants is a guess, what a rule lacks is not", () => {
  expect(isGuess("diet(?who)", { add: ['diet(")")'], remove: [] })).toBe(true);
  expect(isGuess("diet(?who, 'a (b)')", { add: ['diet(mia, "a (b)")'], remove: [] })).toBe(true);
  expect(isGuess("can_serve(lea, ?dish)", { add: ["diet(lea, vegan)"], remove: [] })).toBe(false);
  expect(isGuess("diet(lea, 'why?')", { add: ["diet(lea, 'why?')"], remove: [] })).toBe(false);
  expect(isGuess("diet(lea, ?x), likes(lea, ?x)", { add: ["diet(lea, tofu)"], remove: [] })).toBe(false);
});
