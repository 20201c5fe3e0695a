// Stored facts and rules: browse, filter, add, edit, expire and retract them.
import { lazy, Suspense, useMemo, useState } from "react";
import { Link } from "wouter";

import { linkTo, useAddressParts } from "../address";
import { useMayWrite, usePredicateQuery } from "../api/queries";
import { ErrorMessage } from "../components/ErrorMessage";
import { SubNavigation } from "../components/SubNavigation";
import { Tabs } from "../components/Tabs";
import { FactBrowser } from "./facts/FactBrowser";
import { AddDialog } from "./facts/FactDialogs";
import { PredicateList } from "./facts/PredicateList";
import { RuleBrowser } from "./facts/RuleBrowser";
import "./facts.css";

const PasteDialog = lazy(() => import("./facts/PasteDialog"));

export default function Facts() {
  const [search, change] = useAddressParts();
  const query = usePredicateQuery();
  const [adding, setAdding] = useState<"typed" | "pasted" | null>(null);
  const [message, setMessage] = useState<string | null>(null);
  const predicates = query.data?.predicates ?? [];
  const mayWrite = useMayWrite();
  const name = search.get("predicate");
  const current = useMemo(() => predicateOf(name), [name]);
  const select = (predicate: string | null) => {
    const filters = Object.fromEntries([...search.keys()].filter((key) => /^arg\d+$/.test(key)).map((key) => [key, null]));
    change({ ...filters, predicate, page: null, sign: null }, { replace: false });
    setMessage(null);
  };
  const view = search.get("view") ?? (predicates.some((each) => nameOf(each) === name && each.factCount === 0 && each.hasRules) ? "rules" : "facts");
  const close = (done: string | null) => {
    setAdding(null);
    if (done !== null) setMessage(done);
  };
  return (
    <>
      <h1>{view === "rules" ? "Rules" : "Facts"}</h1>
      {view === "rules" && <SubNavigation />}
      <p className="toolbar">
        {mayWrite && <button type="button" className="primary" onClick={() => setAdding("typed")}>Add facts</button>}
        {mayWrite && <button type="button" onClick={() => setAdding("pasted")}>Paste from a spreadsheet</button>}
        {mayWrite && <button type="button" onClick={() => change({ view: "rules", rule: "new", draft: null }, { replace: false })}>New rule</button>}
        <span role="status">{message}</span>
      </p>
      {query.error !== null && <ErrorMessage error={query.error} />}
      {query.data !== undefined && predicates.length === 0 && (
        <section className="card teach">
          <h2>No facts yet</h2>
          <p>A fact is a predicate with its arguments: <code>lives_in(mia, Berlin)</code>. Agents store facts as they learn them, with the sentence that each is based on and the time from which it holds. {mayWrite ? "Add the first, or load an example." : ""}</p>
          {mayWrite && <p><Link href={linkTo("start", search)}>Examples</Link></p>}
        </section>
      )}
      <div className="browser">
        {predicates.length > 0 && <PredicateList predicates={predicates} selected={name} onSelect={select} />}
        <div className="contents">
          <Tabs
            label="Contents"
            selected={view}
            onSelect={(id) => change({ view: id })}
            tabs={[
              {
                id: "facts",
                title: "Facts",
                content: () =>
                  current === null ? <p className="soft">Choose a predicate to see its facts.</p> : <FactBrowser key={name} {...current} onMessage={setMessage} />,
              },
              { id: "rules", title: "Rules", content: () => <RuleBrowser predicate={current} onMessage={setMessage} /> },
            ]}
          />
        </div>
      </div>
      {adding === "typed" && <AddDialog start={current === null ? "" : `${current.predicate}(`} onClose={close} />}
      {adding === "pasted" && <Suspense fallback={null}><PasteDialog start={current?.predicate ?? ""} onClose={close} /></Suspense>}
    </>
  );
}

/** Return a predicate and its number of arguments as one text. */
function nameOf({ predicate, arity }: { predicate: string; arity: number }): string {
  return `${predicate}/${arity}`;
}

/** Return the predicate and the number of arguments that a text of `nameOf` stands for; null if it is none. */
function predicateOf(name: string | null): { predicate: string; arity: number } | null {
  const match = /^(.+)\/(\d{1,3})$/s.exec(name ?? "");
  return match?.[1] === undefined ? null : { predicate: match[1], arity: Number(match[2]) };
}
