// A message cut where the passages of facts begin and end.

export interface Passage {
  /** The fact that is based on it. */
  fact: string;
  start: number;
  end: number;
}

export interface Segment {
  text: string;
  facts: string[];
}

/** Return the parts of a text with the facts that are based on each. Positions count characters, not UTF-16 units. */
export function segmentsOf(text: string, passages: readonly Passage[]): Segment[] {
  const characters = [...text];
  const cuts = [...new Set([0, characters.length, ...passages.flatMap(({ start, end }) => [start, end])])]
    .filter((cut) => cut >= 0 && cut <= characters.length)
    .sort((first, second) => first - second);
  return cuts.slice(0, -1).map((start, index) => {
    const end = cuts[index + 1] ?? characters.length;
    const facts = passages.filter((passage) => passage.start <= start && end <= passage.end).map(({ fact }) => fact);
    return { text: characters.slice(start, end).join(""), facts };
  });
}
