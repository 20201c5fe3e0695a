// Why an entry is in a context window, in words.
import type { Schemas } from "./api/client";
import { dayText } from "./time";

type Entry = Schemas["Entry"];
type Source = Schemas["Source"];

const COMMON = new Set("a an and are as at be but by can did do does for from has have he her his how i in is it its me my of on or she that the their them they this to was we were what when where which who whose why will with you your".split(" "));
const ENDINGS = ["ing", "ies", "ed", "es", "s", "e"];
const LITTLE_CONFIDENCE = 0.8;

/** Return why an entry is in the window of a question, the most important reason first. */
export function reasonsOf(entry: Entry, query: string, sources: readonly Source[]): string[] {
  const why = (entry.why ?? {}) as { reason?: string; recency?: number; accesses?: number; priority?: number };
  const reason = why.reason ?? "";
  const reasons: string[] = [];
  const matches = matchedWords(query, [entry.predicate, ...entry.args]);
  if (reason === "query") reasons.push(matches.length > 0 ? `matches ${listed(matches)}` : "close in meaning, or said near a match");
  else if (reason === "rank") reasons.push(rankText(why));
  else if (reason === "bucket") reasons.push("fills its bucket");
  else if (reason !== "") reasons.push(reason);
  if (entry.contradicted) reasons.push("the opposite is known too");
  const saying = entry.predicate === "said";
  if (!saying && entry.validFrom != null && entry.validFrom !== entry.createdAt) reasons.push(`current value since ${dayText(entry.validFrom)}`);
  const cited = (entry.citations ?? []).map((number) => sources.find((source) => source.number === number)).find((source) => source !== undefined);
  if (saying && entry.args[0] !== undefined) reasons.push(`said by ${entry.args[0]}${entry.validFrom == null ? "" : ` on ${dayText(entry.validFrom)}`}`);
  else if (cited !== undefined) reasons.push(`said by ${cited.speaker}`);
  const { source } = entry.metadata as { source?: unknown };
  if (typeof source === "string") reasons.push(`from ${source}`);
  const { confidence } = entry.why as { confidence?: number | null } ?? {};
  if (typeof confidence === "number" && confidence < LITTLE_CONFIDENCE) reasons.push(`confidence ${confidence}`);
  return reasons;
}

/** Return the words of a question that texts contain in any form, in the order of the question. */
export function matchedWords(query: string, texts: readonly string[]): string[] {
  const known = new Set(texts.flatMap(wordsOf).map(stem));
  const matches = wordsOf(query).filter((word) => !COMMON.has(word.toLowerCase()) && known.has(stem(word)));
  return [...new Set(matches)];
}

function wordsOf(text: string): string[] {
  return text.match(/[\p{L}\p{N}]+/gu) ?? [];
}

/** Return a word without its usual English ending: enough to see that "lives" is a form of "live". */
function stem(word: string): string {
  const lower = word.toLowerCase();
  const ending = ENDINGS.find((each) => lower.length - each.length >= 3 && lower.endsWith(each));
  return ending === undefined ? lower : lower.slice(0, -ending.length);
}

function listed(words: readonly string[]): string {
  const quoted = words.map((word) => `“${word}”`);
  return quoted.length < 2 ? quoted.join("") : `${quoted.slice(0, -1).join(", ")} and ${quoted.at(-1) ?? ""}`;
}

/** Return why a fact fills a window that no question fills. */
function rankText({ accesses = 0, priority = 0 }: { accesses?: number; priority?: number }): string {
  if (priority >= 0.5) return "has a high priority";
  return accesses > 1 ? `in use: read ${accesses.toLocaleString("en")} times` : "among the newest facts";
}
