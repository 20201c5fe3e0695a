import { expect, test } from "vitest";

import { conditionText, isGuess, patternsOf, type Proposal } from "./conditions";

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

const added = (...add: string[]): Proposal => ({ add, remove: [] });

test("places whose constants differ become variables", () => {
  const proposals = [added("can_raed(ann, ann)"), added("can_raed(ann, bob)"), added("can_raed(ann, 'a b')")];
  expect(patternsOf("can_raed(?who, ?doc)", proposals)).toEqual([
    { add: ["can_raed(?x, ?y)"], remove: [], values: [{ variable: "?x", constants: ["ann"] }, { variable: "?y", constants: ["ann", "bob", "'a b'"] }] },
  ]);
});

test("constants of the goal, and those that facts determine, stay", () => {
  const patterns = patternsOf("can_read(zed, ?doc)", [added("grant(ann, ann)", "member(zed, ann)"), added("grant(ann, bob)", "member(zed, ann)")]);
  expect(patterns.map(({ add }) => add)).toEqual([["grant(?x, ?y)", "member(zed, ?x)"]]);
  expect(patternsOf("can_read(?who, ?doc)", [added("grant(eng, ann)"), added("grant(eng, bob)")])[0]?.add).toEqual(["grant(eng, ?x)"]);
});

test("changes that differ otherwise stay apart", () => {
  const proposals = [added("owner(zed, plan)"), added("member(zed, eng)"), { add: [], remove: ["banned(zed)"] }];
  expect(patternsOf("can_read(zed, plan)", proposals)).toEqual(proposals.map((each) => ({ ...each, values: [] })));
  expect(patternsOf("p", [added("a(x)"), { add: [], remove: ["a(y)"] }])).toHaveLength(2);
});
