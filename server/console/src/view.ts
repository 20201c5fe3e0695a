// Views: levels and groups by the name of their dimension.

/** A level, or groups. */
export type Value = string | readonly string[];

/** Return the view of the address; an empty one if it is no object. */
export function viewOf(text: string | null): Record<string, Value> {
  if (text === null) return {};
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === "object" && parsed !== null && !Array.isArray(parsed) ? (parsed as Record<string, Value>) : {};
  } catch (error) {
    if (error instanceof SyntaxError) return {};
    throw error;
  }
}

/** Return the view with another value of a dimension, as text; an undefined value removes it, and a view without values is null. */
export function changed(view: Record<string, Value>, name: string, value: Value | undefined): string | null {
  const next = Object.fromEntries(Object.entries(view).filter(([other]) => other !== name));
  if (value !== undefined) next[name] = value;
  return Object.keys(next).length === 0 ? null : JSON.stringify(next);
}

/** Return labels as they are read: "trust: web, team: eng or hr". */
export function labelsText(labels: object | undefined): string {
  return Object.entries((labels ?? {}) as Record<string, Value>)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : value.join(" or ")}`)
    .join(", ");
}
