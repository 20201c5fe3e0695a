// How a context window spends its budget: tokens and characters for each category of its entries.
import type { Schemas } from "./api/client";

type Window = Schemas["AnyWindow"];

/** A part of a window's text: the entries of one category, or all that is not an entry. */
export interface BudgetPart {
  /** The category of the entries; null for rules, headings and notes. */
  category: string | null;
  facts: number;
  characters: number;
  /** The part's share of the token estimate of the window, rounded. */
  tokens: number;
  /** Width of the bar, 0 to 1: share of the token budget, or of the window if it has none. */
  share: number;
}

/** Characters per token where the server counts without a plugin, and the window has no text. */
const CHARACTERS_PER_TOKEN = 4;

/**
 * Return the parts of a window, largest first, then the rest of its text.
 *
 * The server counts the tokens of the whole text; here they are shared out by characters.
 */
export function budgetOf(window: Pick<Window, "entries" | "tokenEstimate" | "formattedText">, maxTokens: number | null): BudgetPart[] {
  const sums = new Map<string, { facts: number; characters: number }>();
  for (const { category, charCount } of window.entries) {
    const sum = sums.get(category) ?? { facts: 0, characters: 0 };
    sums.set(category, { facts: sum.facts + 1, characters: sum.characters + charCount });
  }
  const entryCharacters = [...sums.values()].reduce((total, { characters }) => total + characters, 0);
  const textCharacters = window.formattedText?.length ?? window.tokenEstimate * CHARACTERS_PER_TOKEN;
  const characters = Math.max(entryCharacters, textCharacters);
  const budget = Math.max(1, maxTokens ?? window.tokenEstimate);
  const part = (category: string | null, facts: number, size: number): BudgetPart => {
    const tokens = characters === 0 ? 0 : (window.tokenEstimate * size) / characters;
    return { category, facts, characters: size, tokens: Math.round(tokens), share: Math.min(1, tokens / budget) };
  };
  const parts = [...sums]
    .sort(([, one], [, other]) => other.characters - one.characters)
    .map(([category, sum]) => part(category, sum.facts, sum.characters));
  return characters > entryCharacters ? [...parts, part(null, 0, characters - entryCharacters)] : parts;
}
