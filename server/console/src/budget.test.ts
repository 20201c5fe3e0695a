import { describe, expect, it } from "vitest";

import { budgetOf } from "./budget";

const entry = (category: string, charCount: number) => ({ category, charCount }) as Parameters<typeof budgetOf>[0]["entries"][number];

describe("budgetOf", () => {
  it("shares the tokens of the text out by characters, the rest last", () => {
    const window = { entries: [entry("recent", 20), entry("goal_relevant", 30), entry("goal_relevant", 10)], tokenEstimate: 20, formattedText: "x".repeat(80) };
    expect(budgetOf(window, null)).toEqual([
      { category: "goal_relevant", facts: 2, characters: 40, tokens: 10, share: 0.5 },
      { category: "recent", facts: 1, characters: 20, tokens: 5, share: 0.25 },
      { category: null, facts: 0, characters: 20, tokens: 5, share: 0.25 },
    ]);
  });

  it("draws shares of the token budget where there is one", () => {
    const window = { entries: [entry("recent", 40)], tokenEstimate: 10, formattedText: "x".repeat(40) };
    expect(budgetOf(window, 40).map(({ share }) => share)).toEqual([0.25]);
  });

  it("has no rest where sentences are shorter than their facts", () => {
    const window = { entries: [entry("recent", 40)], tokenEstimate: 5, formattedText: "x".repeat(20) };
    expect(budgetOf(window, null)).toEqual([{ category: "recent", facts: 1, characters: 40, tokens: 5, share: 1 }]);
  });

  it("is empty for a window without entries and text", () => {
    expect(budgetOf({ entries: [], tokenEstimate: 0 }, null)).toEqual([]);
  });
});
