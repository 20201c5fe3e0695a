import { expect, test } from "vitest";

import { conditionText, type Proposal } from "./conditions";

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
