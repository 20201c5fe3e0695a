// What a change would make true, false or undefined: the answer of `POST /preview`.
import { useQuery } from "@tanstack/react-query";

import { dataOf, type Schemas } from "../api/client";
import { useConnection } from "../connection";
import { ErrorMessage } from "./ErrorMessage";
import "./impact.css";

type Impact = Schemas["Previewed"];

/** A change to preview, in the fields of `POST /preview`. */
export interface Change {
  forget?: readonly object[];
  forgetRules?: readonly string[];
  tell?: readonly object[];
  teach?: string;
  scope?: string | null;
}

const LISTS = [
  { key: "becomesTrue", title: "Becomes true", sign: "+" },
  { key: "becomesFalse", title: "No longer holds", sign: "−" },
  { key: "becomesUndefined", title: "Becomes undefined", sign: "?" },
] as const;

/** Return the query for the impact of a change; it does not run while the change is null. */
export function useImpact(change: Change | null) {
  const { connection, client } = useConnection();
  return useQuery({
    queryKey: ["preview", connection, change],
    enabled: change !== null,
    queryFn: ({ signal }) => dataOf(client.POST("/preview", { body: change as never, params: {} as never, signal })),
    retry: false,
    // A change of another client may alter the impact: it is computed again each time that it is shown.
    gcTime: 0,
  });
}

/** Show the state of a query of `useImpact`. `text` is the text that was sent, for the positions of mistakes. */
export function ImpactOf({ impact, text }: { impact: ReturnType<typeof useImpact>; text?: string }) {
  if (impact.error !== null) return <ErrorMessage error={impact.error} {...(text === undefined ? {} : { text })} />;
  if (impact.data === undefined) return <p role="status">Computing the impact …</p>;
  return <ImpactView impact={impact.data} />;
}

export function ImpactView({ impact }: { impact: Impact }) {
  const { counts, byPredicate, warnings, truncated } = impact;
  return (
    <div className="impact">
      <ImpactCounts counts={counts} truncated={truncated} />
      {warnings.map((warning) => <p key={warning} className="warning">{warning}</p>)}
      {byPredicate.length > 1 && <PredicateTable rows={byPredicate} />}
      {LISTS.map(({ key, title, sign }) =>
        impact[key].length === 0 ? null : (
          <section key={key} aria-label={title}>
            <h3>{title} <span className="soft">{number(counts[key])}</span></h3>
            <ul className={`impact-changes ${key}`} tabIndex={0} aria-label={title}>
              {impact[key].map((atom) => (
                <li key={`${atom.scope ?? ""} ${atom.text}`}>
                  <span aria-hidden="true">{sign}</span> <code>{atom.text}</code>
                  {atom.scope !== null && <span className="kind">{atom.scope}</span>}
                  <span className="kind">{atom.stored ? "stored fact" : "conclusion"}</span>
                </li>
              ))}
            </ul>
            {counts[key] > impact[key].length && <p className="soft">The first {number(impact[key].length)} of {number(counts[key])}.</p>}
          </section>
        ),
      )}
    </div>
  );
}

/** Say how many facts and conclusions change, and if a limit ended the count. */
export function ImpactCounts({ counts, truncated }: Pick<Impact, "counts" | "truncated">) {
  const isEmpty = counts.becomesTrue + counts.becomesFalse + counts.becomesUndefined === 0;
  return (
    <>
      <p role="status">{isEmpty ? "Nothing becomes true or false." : sentenceOf(counts)}</p>
      {truncated && <p className="warning">The preview reached its limit: predicates are missing, and the counts are too low.</p>}
    </>
  );
}

/** Show the numbers of facts and conclusions that change, by predicate. */
export function PredicateTable({ rows }: { rows: Impact["byPredicate"] }) {
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Changes by predicate">
      <table>
        <thead>
          <tr><th>Predicate</th>{LISTS.map(({ key, title }) => <th key={key} className="number">{title}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.scope ?? ""} ${row.negated} ${row.predicate}/${row.arity}`}>
              <td><code>{row.negated ? "~" : ""}{row.predicate}/{row.arity}</code>{row.scope !== null && <> <span className="kind">{row.scope}</span></>}</td>
              {LISTS.map(({ key }) => <td key={key} className="number">{number(row[key])}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function sentenceOf({ becomesTrue, becomesFalse, becomesUndefined }: Impact["counts"]): string {
  const parts = [
    [becomesTrue, becomesTrue === 1 ? "becomes true" : "become true"],
    [becomesFalse, becomesFalse === 1 ? "no longer holds" : "no longer hold"],
    [becomesUndefined, becomesUndefined === 1 ? "becomes undefined" : "become undefined"],
  ] as const;
  const text = parts.filter(([count]) => count > 0).map(([count, verb]) => `${number(count)} ${verb}`).join(", ");
  return `Facts and conclusions: ${text}.`;
}

function number(value: number): string {
  return value.toLocaleString("en");
}
