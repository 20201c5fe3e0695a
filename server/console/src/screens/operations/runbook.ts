// The runbook of the documentation, which the compiled console has in it: the page of an alert needs no other server.
import RUNBOOK from "../../../../../docs/operations/runbook.md?raw";

/** A part of the runbook: what the alert means, and what to do. */
export interface Entry {
  meaning: string;
  steps: string[];
}

/** Return the entry of an alert; null if the runbook has none. */
export function entryOf(name: string, text = RUNBOOK): Entry | null {
  const part = text.split(/^## /m).find((each) => each.startsWith(`${name}\n`));
  if (part === undefined) return null;
  const paragraphs = part.slice(name.length).split(/\n{2,}/).map((each) => each.trim()).filter((each) => each !== "");
  const isList = (each: string) => each.startsWith("- ");
  return {
    meaning: plain(paragraphs.filter((each) => !isList(each)).join(" ")),
    steps: paragraphs.filter(isList).flatMap((each) => each.replace(/^- /, "").split(/\n- /)).map(plain),
  };
}

/** Return a text without line breaks, and with the words of its links. */
function plain(text: string): string {
  return text.replace(/\s+/g, " ").replace(/\[([^\]]+)\]\([^)]+\)/g, "$1");
}
