// Two contents of a rule set side by side, with the statements that differ.
import type { Difference } from "./requests";

/** Show a difference in two columns with these titles. */
export function DifferenceTable({ difference, before, after }: { difference: Difference; before: string; after: string }) {
  const { facts } = difference;
  const rows = [...rowsOf(difference), ...rowsOf(facts)];
  const hidden = facts.addedCount + facts.changedCount + facts.removedCount - facts.added.length - facts.changed.length - facts.removed.length;
  if (rows.length === 0) return <p>The contents are the same.</p>;
  return (
    <>
      <div className="scroll" tabIndex={0} role="region" aria-label="Differences">
        <table className="side-by-side">
          <thead><tr><th scope="col">{before}</th><th scope="col">{after}</th></tr></thead>
          <tbody>
            {rows.map(([left, right], index) => (
              <tr key={index}>
                <td>{left !== null && <del><code>{left}</code></del>}</td>
                <td>{right !== null && <ins><code>{right}</code></ins>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {hidden > 0 && <p className="soft">{hidden.toLocaleString("en")} more facts differ.</p>}
    </>
  );
}

function rowsOf({ added, changed, removed }: Pick<Difference, "added" | "changed" | "removed">): [string | null, string | null][] {
  return [
    ...changed.map(({ before, after }): [string, string] => [before, after]),
    ...removed.map((text): [string, null] => [text, null]),
    ...added.map((text): [null, string] => [null, text]),
  ];
}
