// Search in short names, such as tenants, screens and constants.

/** Return the items whose text contains every word of a query, those that begin with the query first. */
export function matching<T>(items: readonly T[], query: string, textOf: (item: T) => string): T[] {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return [...items];
  const whole = query.trim().toLowerCase();
  const found = items.filter((item) => {
    const text = textOf(item).toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const rank = (item: T) => (textOf(item).toLowerCase().startsWith(whole) ? 0 : 1);
  return found.sort((first, second) => rank(first) - rank(second));
}

/** Return the name that differs least from a text, if at most a third of its letters differ; else null. */
export function nearest(names: readonly string[], text: string): string | null {
  let best: string | null = null;
  let least = Math.floor(text.length / 3) + 1;
  for (const name of names) {
    const distance = editDistance(name.toLowerCase(), text.toLowerCase(), least);
    if (distance < least) [best, least] = [name, distance];
  }
  return best;
}

/** Return the edit distance of Levenshtein with swapped neighbours as one edit, or `limit` if it is not below. */
function editDistance(first: string, second: string, limit: number): number {
  if (Math.abs(first.length - second.length) >= limit) return limit;
  let before: number[] = [];
  let previous = Array.from({ length: second.length + 1 }, (_, index) => index);
  for (let row = 1; row <= first.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= second.length; column += 1) {
      const isEqual = first[row - 1] === second[column - 1];
      let cost = Math.min((previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1, (previous[column - 1] ?? 0) + (isEqual ? 0 : 1));
      const isSwapped = first[row - 1] === second[column - 2] && first[row - 2] === second[column - 1];
      if (row > 1 && column > 1 && isSwapped) cost = Math.min(cost, (before[column - 2] ?? 0) + 1);
      current.push(cost);
    }
    before = previous;
    previous = current;
  }
  return Math.min(previous[second.length] ?? limit, limit);
}
