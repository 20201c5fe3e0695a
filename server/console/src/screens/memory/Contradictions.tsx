// Facts that violate a constraint or deny each other, side by side, with a way to decide.
import { useQueries, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "wouter";

import { linkTo } from "../../address";
import { dataOf, type Schemas } from "../../api/client";
import { useMayWrite } from "../../api/queries";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";
import { atomText } from "../../language/atom";
import { RetractFactDialog } from "../facts/FactDialogs";
import type { StoredFact } from "../facts/requests";
import { Sources } from "./FactActions";
import { FactText } from "./FactText";

const GOAL = "contradiction(?kind, ?first, ?second)";
const MAX_SHOWN = 50;

const KINDS: Record<string, { title: string; text: string }> = {
  key: { title: "Only one can hold", text: "The predicate is declared to have one value at a time." },
  disjoint: { title: "They exclude each other", text: "The two predicates are declared to have nothing in common." },
  total: { title: "Something is missing", text: "The first is declared never to hold without the second." },
  different: { title: "One name or two", text: "The two names are one thing by one statement, and different by another." },
  denied: { title: "Stored and denied", text: "One source says it, another denies it." },
};

interface Conflict {
  kind: string;
  texts: readonly [string, string];
}

export default function Contradictions() {
  const { connection, client } = useConnection();
  const { scope } = connection;
  const [message, setMessage] = useState<string | null>(null);
  const violations = useQuery({
    queryKey: ["contradictions", connection],
    queryFn: async ({ signal }): Promise<Conflict[]> => {
      const rows = await dataOf(client.POST("/ask", { body: { text: GOAL, scope, limit: MAX_SHOWN } as never, params: {} as never, signal }));
      return (rows as unknown as { args: string[] }[]).map(({ args: [kind = "", first = "", second = ""] }) => ({ kind, texts: [first, second] as const }));
    },
  });
  const denials = useQuery({
    queryKey: ["denials", connection],
    queryFn: async ({ signal }): Promise<Conflict[]> => {
      const body = { maxFacts: 1000, format: "structured", compat: false, autoResolveContradictions: false, scope };
      const { entries } = (await dataOf(client.POST("/memory/context", { body: body as never, params: {} as never, signal }))) as Schemas["AnyWindow"];
      return entries
        .filter(({ contradicted, negated }) => contradicted && !negated)
        .map(({ predicate, args }) => ({ kind: "denied", texts: [atomText({ predicate, args }), atomText({ predicate, args, negated: true })] as const }));
    },
  });
  const error = violations.error ?? denials.error;
  const seen = new Set<string>();
  const conflicts = [...(violations.data ?? []), ...(denials.data ?? [])].filter(({ texts }) => {
    const id = [...texts].sort().join("\n");
    return !seen.has(id) && seen.add(id);
  });
  if (error !== null) return <ErrorMessage error={error} />;
  if (violations.data === undefined || denials.data === undefined) return <p role="status">Loading …</p>;
  return (
    <>
      <p role="status">{message ?? (conflicts.length === 0 ? "Nothing disagrees." : `${conflicts.length} to resolve`)}</p>
      {conflicts.length === 0 && (
        <section className="card teach">
          <h2>How disagreement is found</h2>
          <p>Say what cannot hold together, and facts that break it are listed here, with who said each:</p>
          <pre tabIndex={0} aria-label="Constraints">{"@key phone(?who, _).          % one value at a time\n@disjoint cat/1, dog/1.       % nothing is both\n@total person(?x), age(?x, _). % a person has an age"}</pre>
        </section>
      )}
      <ul className="conflicts" aria-label="Contradictions">
        {conflicts.map((conflict) => <li key={`${conflict.kind} ${conflict.texts.join()}`} className="card"><ConflictView conflict={conflict} onMessage={setMessage} /></li>)}
      </ul>
    </>
  );
}

function ConflictView({ conflict: { kind, texts }, onMessage }: { conflict: Conflict; onMessage: (message: string) => void }) {
  const { connection, client } = useConnection();
  const [search] = useSearchParams();
  const mayWrite = useMayWrite();
  const [dropped, setDropped] = useState<StoredFact | null>(null);
  const { title, text } = KINDS[kind] ?? { title: kind, text: "" };
  const sides = useQueries({
    queries: texts.map((atom) => ({
      queryKey: ["stored", connection, atom],
      queryFn: async ({ signal }: { signal: AbortSignal }) => {
        const negated = atom.startsWith("~");
        const rows = await dataOf(client.POST("/query", { body: { text: atom.replace(/^~/, ""), negated, scope: connection.scope, limit: 1 } as never, params: {} as never, signal }));
        return (rows as unknown as StoredFact[])[0] ?? null;
      },
    })),
  });
  const facts = sides.map(({ data }) => data ?? null);
  const goal = kind === "denied" ? null : `contradiction(${[kind, ...texts.map((each) => JSON.stringify(each))].join(", ")})`;
  return (
    <>
      <h2>{title}</h2>
      <p className="soft">{text} {goal !== null && <Link href={linkTo("playground", search, { goal })}>Why</Link>}</p>
      <div className="sides">
        {texts.map((atom, index) => {
          const fact = facts[index] ?? null;
          const other = facts[1 - index] ?? null;
          return (
            <section key={atom} aria-label={atom}>
              <p className="fact">{fact === null ? <code>{atom}</code> : <FactText fact={fact} />}</p>
              {fact === null ? <p className="soft">{sides[index]?.isPending === true ? "Loading …" : kind === "total" && index === 1 ? "Nothing is stored for it." : "A conclusion: it goes with the facts that it follows from."}</p> : <Sources fact={fact} />}
              <p className="toolbar">
                {mayWrite && fact !== null && other !== null && <button type="button" aria-label={`Keep … ${atom}`} onClick={() => setDropped(other)}>Keep …</button>}
                <Link href={linkTo("memory", search, { part: "timeline", about: atom.replace(/^~/, "") })}>Timeline</Link>
              </p>
            </section>
          );
        })}
      </div>
      {dropped !== null && (
        <RetractFactDialog
          fact={dropped}
          onClose={(done) => {
            setDropped(null);
            if (done !== null) onMessage(done);
          }}
        />
      )}
    </>
  );
}
